#![allow(clippy::unwrap_used)]

use super::*;
use engine::decision::{PlacedUsage, PoolUsage};
use engine::{Explanation, JobKey, PoolClass, Reason};

fn cpus(amount: &str) -> Resources {
    Resources::parse([("cpu", amount)]).unwrap()
}

fn queue_of(value: Value) -> Queue {
    serde_json::from_value(value).unwrap()
}

fn policy_of(spec: Value) -> CapacityPolicy {
    let object = json!({"metadata": {"name": "q", "generation": 4}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn bounded() -> Queue {
    queue_of(json!({"metadata": {"name": "q"}, "spec": {"capability": {"cpu": "10"}}}))
}

fn usage() -> QueueUsage {
    let placed = |cluster: &str, class: &str, amount: &str| PlacedUsage {
        cluster: ClusterName::new(cluster),
        class: PoolClass::new(class),
        allocated: cpus(amount),
    };
    QueueUsage {
        allocated: cpus("6"),
        deserved: Resources::new(),
        real_capability: Resources::new(),
        borrowed: Resources::new(),
        lent: Resources::new(),
        pools: Vec::new(),
        decayed_usage: None,
        pending: cpus("500m"),
        unadmitted: Vec::new(),
        placed: vec![
            placed("m1", "a100", "3"),
            placed("m1", "cpu", "1"),
            placed("m2", "a100", "2"),
        ],
        pending_jobs: 1,
        admitted_jobs: 2,
        running_jobs: 3,
        ending_jobs: 4,
        finished_jobs: 5,
        head: Some((
            JobKey::new("team", "a"),
            Explanation {
                position: Some(1),
                ..Explanation::of(Reason::WaitingForRoom, "no room".into())
            },
        )),
        closed: None,
    }
}

fn lent() -> BTreeMap<(ClusterName, NodeName), bool> {
    BTreeMap::from([(("m1".into(), "n1".into()), true)])
}

fn stated<'a>(policy: &'a CapacityPolicy, queue: &'a Queue) -> StatedBy<'a> {
    StatedBy {
        policy,
        queue,
        conflicts: &[],
    }
}

fn status_of(spec: Value, usage: &QueueUsage) -> CapacityPolicyStatus {
    policy(
        &stated(&policy_of(spec), &bounded()),
        usage,
        lent(),
        &KnownNames::default(),
        jiff::Timestamp::UNIX_EPOCH,
    )
}

fn condition(status: &CapacityPolicyStatus, type_: &str) -> String {
    let found = status.conditions.iter().find(|c| c.type_ == type_).unwrap();
    format!("{} {}: {}", found.status, found.reason, found.message)
}

#[test]
fn a_queue_status_shows_charges_and_leaves_the_state_alone() {
    let mut new = bounded();
    new.metadata.resource_version = Some("7".to_owned());
    let patch = queue(&new, &usage());
    let shown = &patch["status"];
    assert_eq!(shown["state"], "Open");
    // The patch is for the version without a state: it does not open a queue that was closed meanwhile.
    assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(shown["allocated"], json!({"cpu": "6"}));
    assert_eq!(
        (&shown["pending"], &shown["inqueue"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(
        (&shown["running"], &shown["unknown"], &shown["completed"]),
        (&json!(3), &json!(4), &json!(5))
    );
    let closing = queue_of(json!({"metadata": {}, "spec": {}, "status": {"state": "Closing"}}));
    // A merge patch without the field leaves it as it is when the patch arrives.
    let patch = queue(&closing, &usage());
    assert_eq!(patch["status"].get("state"), None);
    assert_eq!(patch.get("metadata"), None);
    // Deleted, and kept by another client's finalizer. A queue that is applied again is another version.
    let deleted = queue_of(json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "8"},
        "spec": {}, "status": {"state": "Open"},
    }));
    let patch = queue(&deleted, &usage());
    assert_eq!(patch["status"]["state"], "Closing");
    assert_eq!(patch["metadata"], json!({"resourceVersion": "8"}));
}

#[test]
fn a_resource_without_charge_is_written_as_zero() {
    let used = queue_of(json!({
        "metadata": {}, "spec": {}, "status": {"allocated": {"cpu": "9", "nvidia.com/gpu": "4"}},
    }));
    assert_eq!(
        queue(&used, &usage())["status"]["allocated"],
        json!({"cpu": "6", "nvidia.com/gpu": "0"})
    );
}

#[test]
fn a_policy_shows_use_by_resource_cluster_and_bound() {
    let pool = json!({"name": "a100", "class": "a100", "clusters": ["m1"], "resources": [{"name": "cpu", "capability": "4"}]});
    let usage = QueueUsage {
        deserved: cpus("5"),
        real_capability: cpus("8"),
        borrowed: cpus("1"),
        lent: cpus("0"),
        decayed_usage: Some(cpus("12340m")),
        pools: vec![PoolUsage {
            class: PoolClass::new("a100"),
            clusters: vec![ClusterName::new("m1")],
            allocated: cpus("3"),
            deserved: cpus("2"),
            real_capability: cpus("4"),
        }],
        ..usage()
    };
    let status = status_of(json!({"pools": [pool]}), &usage);
    assert_eq!(status.observed_generation, Some(4));
    let cpu = &status.resources[0];
    assert_eq!((cpu.name.as_str(), cpu.allocated.0.as_str()), ("cpu", "6"));
    assert_eq!(cpu.pending.0, "500m");
    let shown = [
        &cpu.deserved,
        &cpu.capability,
        &cpu.real_capability,
        &cpu.borrowed,
        &cpu.lent,
        &cpu.decayed_use,
    ]
    .map(|text| text.as_ref().map_or("-", |text| text.0.as_str()));
    assert_eq!(shown, ["5", "10", "8", "1", "-", "12.3"]);
    let clusters: Vec<String> = status
        .clusters
        .iter()
        .map(|used| format!("{} {}", used.name, used.allocated["cpu"].0))
        .collect();
    assert_eq!(clusters, ["m1 4", "m2 2"]);
    let bound = &status.pools[0];
    assert_eq!(
        [&bound.allocated, &bound.deserved, &bound.capability].map(|list| list["cpu"].0.as_str()),
        ["3", "2", "4"]
    );
    assert_eq!(status.counts.ending, 4);
    let spare = &status.spare_nodes[0];
    assert_eq!(
        (spare.cluster.as_str(), spare.node.as_str(), spare.lent),
        ("m1", "n1", true)
    );
    let head = status.head.unwrap();
    assert_eq!(
        (head.job.as_str(), head.reason.as_str()),
        ("team/a", "WaitingForRoom")
    );
}

#[test]
fn conditions_say_what_is_wrong_or_closed() {
    let fine = status_of(json!({}), &usage());
    insta::assert_snapshot!(condition(&fine, "Valid"), @"True Checked: every value can be used");
    insta::assert_snapshot!(condition(&fine, "Open"), @"True Open: the queue takes jobs");
    let closed = QueueUsage {
        closed: Some((Reason::QueueClosed, "its state is Closed".into())),
        ..usage()
    };
    let closed = status_of(json!({}), &closed);
    insta::assert_snapshot!(condition(&closed, "Open"), @"False QueueClosed: its state is Closed");
    insta::assert_snapshot!(condition(&closed, "Valid"), @"True Checked: every value can be used");
    let broken =
        queue_of(json!({"metadata": {"name": "q"}, "spec": {"capability": {"cpu": "-1"}}}));
    let broken = policy(
        &stated(&policy_of(json!({})), &broken),
        &usage(),
        BTreeMap::new(),
        &KnownNames::default(),
        jiff::Timestamp::UNIX_EPOCH,
    );
    let said = condition(&broken, "Valid");
    assert!(
        said.starts_with("False QueueInvalid") && said.contains("-1"),
        "{said}"
    );
}

#[test]
fn a_policy_without_its_queue_says_so() {
    let status = |spec| policy_without_queue(&policy_of(spec), jiff::Timestamp::UNIX_EPOCH);
    let lone = status(json!({"ordering": "BestEffort"}));
    insta::assert_snapshot!(condition(&lone, "Open"), @"False QueueNotFound: queue q does not exist, so that this policy has no effect; create a Queue (scheduling.volcano.sh) named q, state its quota in spec.resources of this policy, or name the policy as its queue");
    insta::assert_snapshot!(condition(&lone, "Valid"), @"True Checked: every value can be used");
    assert_eq!((lone.observed_generation, lone.summary), (Some(4), None));
    let wrong = status(json!({"stopPolicy": "Drain"}));
    insta::assert_snapshot!(condition(&wrong, "Valid"), @r#"False QueueInvalid: spec.stopPolicy: "Drain" is not known; None, Hold or HoldAndDrain is needed"#);
}

#[test]
fn a_condition_keeps_its_time_while_it_holds() {
    let mut policy_object = policy_of(json!({}));
    let first = status_of(json!({}), &usage());
    policy_object.status = Some(first.clone());
    let later = jiff::Timestamp::from_second(500).unwrap();
    assert_eq!(
        policy(
            &stated(&policy_object, &bounded()),
            &usage(),
            lent(),
            &KnownNames::default(),
            later
        ),
        first
    );
}

#[test]
fn values_that_name_nothing_are_listed_with_what_is_meant() {
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let known = KnownNames {
        resources: set(&["cpu", "nvidia.com/gpu"]),
        classes: set(&["a100", "cpu"]),
        clusters: set(&["m1", "m2"]),
        priority_classes: set(&["high"]),
        complete: true,
    };
    let said = |known: &KnownNames, capability: Value, spec: Value| {
        let queue =
            queue_of(json!({"metadata": {"name": "q"}, "spec": {"capability": capability}}));
        let at = jiff::Timestamp::UNIX_EPOCH;
        let status = policy(
            &stated(&policy_of(spec), &queue),
            &usage(),
            lent(),
            known,
            at,
        );
        let mut found = status.conditions.iter();
        let found = found.find(|condition| condition.type_ == "Effective");
        found.map(|told| format!("{} {}: {}", told.status, told.reason, told.message))
    };
    let cpu = json!([{"name": "cpu", "capability": "4"}]);
    let fine =
        json!({"pools": [{"name": "a100", "class": "a100", "clusters": ["m1"], "resources": cpu}]});
    let told = said(&known, json!({"cpu": "8"}), fine).unwrap();
    insta::assert_snapshot!(told, @"True Checked: every name in it exists");
    let told = said(&known, json!({"nvidia.com/gpus": "8"}), json!({})).unwrap();
    insta::assert_snapshot!(told, @"False NoEffect: capability of the queue: nvidia.com/gpus has no effect: no node has this resource and no job of the queue asks for it; nvidia.com/gpu is meant?");
    let wrong = json!({
        "pools": [{
            "name": "h100", "class": "h100", "clusters": ["m3"], "resources": [{"name": "memory", "capability": "4"}],
        }],
        "priorityClasses": ["hihg", "other"],
        "placement": {"preferredClusters": ["elsewhere"]},
    });
    let told = said(&known, json!({}), wrong.clone()).unwrap();
    for part in [
        "spec.pools[0].class: h100 has no effect: no node is of this class; a100 is meant?",
        "spec.pools[0].clusters: m3 has no effect: no cluster has this name; spec",
        "spec.pools[0].resources: memory has no effect",
        "spec.priorityClasses: hihg has no effect: no PriorityClass has this name; high is meant?",
        "spec.priorityClasses: other has no effect",
        "spec.placement.preferredClusters: elsewhere has no effect",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // A member that is not seen may have it.
    let known = KnownNames {
        complete: false,
        ..known
    };
    assert_eq!(said(&known, json!({}), wrong), None);
}
