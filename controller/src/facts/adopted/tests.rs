#![allow(clippy::unwrap_used)]

use super::*;
use engine::facts::{ClusterPlacement, Demand, Held};
use engine::{JobKey, QueueName, Resources};
use serde_json::json;

/// A job of 4 pods with one CPU each.
fn job(held: Held) -> ResolvedJob {
    let role = Role::of("main", 4, Resources::parse([("cpu", "1")]).unwrap());
    ResolvedJob {
        fact: JobFact {
            key: JobKey::new("team", "a"),
            uid: Uid::new("u"),
            queue: QueueName::new("q"),
            priority_class: None,
            queued_at: Time(0),
            demand: Demand {
                roles: vec![role],
                min_available: 4,
                natively_divisible: held == Held::ByReplicas,
                held,
                elastic: false,
                split: engine::facts::Split::Never,
                topology: None,
                placement: ClusterPlacement::default(),
            },
            hold: None,
            expected_duration_ms: None,
            user: String::new(),
            preemptible: true,
            checkpointed_at: None,
            images: Vec::new(),
        },
        ask: None,
        unsplit: None,
    }
}

fn binding(clusters: serde_json::Value) -> ResourceBinding {
    let resource = json!({"apiVersion": "batch/v1", "kind": "Job", "uid": "u"});
    let binding = json!({"metadata": {}, "spec": {"resource": resource, "clusters": clusters}});
    serde_json::from_value(binding).unwrap()
}

/// CPUs charged in each cluster.
fn charged(clusters: serde_json::Value, held: Held) -> String {
    let record = record(&binding(clusters), &job(held), Time(0));
    let parts: Vec<String> = record
        .clusters
        .iter()
        .map(|share| {
            let charge = &share.charge[&PoolClass::new(CLASS)];
            format!("{}: {} pods, {charge}", share.name, share.pods[0].count)
        })
        .collect();
    parts.join("; ")
}

#[test]
fn each_cluster_is_charged_what_karmada_starts_there() {
    let divided = || json!([{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 3}]);
    insta::assert_snapshot!(charged(divided(), Held::ByReplicas), @"m1: 1 pods, cpu 1; m2: 3 pods, cpu 3");
    // A job that Karmada cannot divide runs as a whole in each cluster.
    insta::assert_snapshot!(charged(divided(), Held::Not), @"m1: 4 pods, cpu 4; m2: 4 pods, cpu 4");
    insta::assert_snapshot!(charged(json!([{"name": "m1"}]), Held::ByReplicas), @"m1: 4 pods, cpu 4");
}

#[test]
fn the_record_says_that_it_was_adopted() {
    let record = record(
        &binding(json!([{"name": "m1"}])),
        &job(Held::ByReplicas),
        Time(5),
    );
    assert!(record.adopted);
    assert_eq!(
        (record.state, record.attempt),
        (RecordState::Admitted, Attempt(1))
    );
    assert_eq!(record.template_uid, Uid::new("u"));
    insta::assert_snapshot!(message(&record), @"it ran in m1 before Muster managed it; it runs on and is charged to queue q");
}
