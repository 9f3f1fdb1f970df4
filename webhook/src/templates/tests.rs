//! Edits of an admitted Volcano Job, and values that are certain to fail.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::released::RecordedBinding;
use runtime::Delta;
use serde_json::json;

fn volcano_job(workers: i64, gpus: &str) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "team-a", "uid": "t-1"},
        "spec": {"minAvailable": 1, "tasks": [{
            "name": "worker", "replicas": workers,
            "template": {"spec": {"containers": [
                {"name": "c", "resources": {"requests": {"nvidia.com/gpu": gpus}}},
            ]}},
        }]},
    })
}

fn update(old: Value, new: Value) -> ReviewRequest<Value> {
    let kind = new["kind"].clone();
    let api_version = new["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    serde_json::from_value(json!({
        "uid": "r", "operation": "UPDATE", "name": "train", "namespace": "team-a",
        "kind": {"group": group, "version": version, "kind": kind},
        "object": new, "oldObject": old,
    }))
    .unwrap()
}

fn create(new: Value) -> ReviewRequest<Value> {
    ReviewRequest {
        operation: "CREATE".to_owned(),
        old_object: None,
        ..update(Value::Null, new)
    }
}

/// An index in which the job with the template `uid` is in `state`.
fn index(uid: &str, state: &str) -> ReleasedIndex {
    index_with(uid, state, json!(null))
}

/// Like `index`, for a job whose parts are in the state `parts`.
fn index_with(uid: &str, state: &str, parts: Value) -> ReleasedIndex {
    let record = json!({
        "templateUID": uid, "attempt": 2, "state": state, "queue": "team-a", "clusters": [],
        "time": "2026-11-21T04:00:00Z", "parts": parts,
    });
    let binding: RecordedBinding = serde_json::from_value(json!({"metadata": {
        "name": "train-job", "namespace": "team-a",
        "annotations": {"muster.io/admission": record.to_string()},
    }}))
    .unwrap();
    let released = ReleasedIndex::default();
    released.apply(Delta::Upserted(binding));
    released.apply(Delta::Listed);
    released
}

fn denial(answer: ReviewAnswer) -> String {
    match answer {
        ReviewAnswer::Deny { message, .. } => message,
        ReviewAnswer::Allow { .. } => panic!("allowed"),
    }
}

#[test]
fn an_admitted_job_cannot_grow() {
    let released = index("t-1", "Admitted");
    let more_pods = update(volcano_job(4, "1"), volcano_job(8, "1"));
    for scope in [
        TemplateRegistration::Managed,
        TemplateRegistration::Elsewhere,
    ] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(denial(review(scope, &more_pods, &released)), @"Job train is admitted (attempt 2, queue team-a) and cannot grow: pods of worker: 4 -> 8; members would get such an edit at once, past the queue. Delete the job and submit it again with the larger size, or suspend it first where its kind can be suspended");
        }
    }
    let more_gpus = update(volcano_job(4, "1"), volcano_job(4, "2"));
    insta::assert_snapshot!(denial(review(TemplateRegistration::Elsewhere, &more_gpus, &released)), @"Job train is admitted (attempt 2, queue team-a) and cannot grow: nvidia.com/gpu of each pod of worker: 1 -> 2; members would get such an edit at once, past the queue. Delete the job and submit it again with the larger size, or suspend it first where its kind can be suspended");
}

#[test]
fn an_admitted_job_may_shrink_and_be_labelled() {
    let released = index("t-1", "Admitted");
    let mut labelled = volcano_job(4, "1");
    labelled["metadata"]["labels"] = json!({"a": "b"});
    for new in [volcano_job(2, "1"), labelled] {
        let edit = update(volcano_job(4, "1"), new);
        assert_eq!(
            review(TemplateRegistration::Managed, &edit, &released),
            ReviewAnswer::allow()
        );
    }
}

#[test]
fn a_job_that_is_not_admitted_may_grow() {
    let edit = update(volcano_job(4, "1"), volcano_job(8, "1"));
    let unlisted = ReleasedIndex::default();
    for (released, why) in [
        (index("t-0", "Admitted"), "an earlier job of the name"),
        (index("t-1", "Ending"), "evicted"),
        (index("t-1", "Requeued"), "queued again"),
        (unlisted, "nothing known yet"),
    ] {
        assert_eq!(
            review(TemplateRegistration::Managed, &edit, &released),
            ReviewAnswer::allow(),
            "{why}"
        );
    }
}

#[test]
fn kinds_that_karmada_holds_may_grow() {
    let batch = |parallelism| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "train", "namespace": "team-a", "uid": "t-1"},
            "spec": {"parallelism": parallelism, "template": {"spec": {"containers": [{"name": "c"}]}}},
        })
    };
    let edit = update(batch(2), batch(9));
    assert_eq!(
        review(
            TemplateRegistration::Managed,
            &edit,
            &index("t-1", "Admitted")
        ),
        ReviewAnswer::allow()
    );
    // Not for a job in parts, whose size an override sets.
    let in_parts = index_with("t-1", "Admitted", json!("Dispatched"));
    insta::assert_snapshot!(denial(review(TemplateRegistration::Managed, &edit, &in_parts)), @"Job train is admitted (attempt 2, queue team-a) and cannot grow: pods of main: 2 -> 9; its parts are limited to what was admitted. Delete the job and submit it again with the larger size, or suspend it first where its kind can be suspended");
}

fn service(kind: &str, replicas: u32, gpus: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": "train", "namespace": "team-a", "uid": "t-1"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}},
        ]}}},
    })
}

/// Like [`index_with`], for a job of another kind.
fn index_of(kind: &str) -> ReleasedIndex {
    let record = json!({
        "templateUID": "t-1", "attempt": 2, "state": "Admitted", "queue": "team-a", "clusters": [],
        "time": "2026-11-21T04:00:00Z",
    });
    let binding: RecordedBinding = serde_json::from_value(json!({"metadata": {
        "name": binding_name(kind, "train"), "namespace": "team-a",
        "annotations": {"muster.io/admission": record.to_string()},
    }}))
    .unwrap();
    let released = ReleasedIndex::default();
    released.apply(Delta::Upserted(binding));
    released.apply(Delta::Listed);
    released
}

#[test]
fn requests_of_kinds_that_karmada_holds_may_not_grow() {
    for kind in ["Deployment", "StatefulSet", "ReplicaSet"] {
        let released = index_of(kind);
        for scope in [
            TemplateRegistration::Managed,
            TemplateRegistration::Elsewhere,
        ] {
            let raise = update(service(kind, 2, "1"), service(kind, 2, "4"));
            let message = denial(review(scope, &raise, &released));
            let want = format!(
                "{kind} train is admitted (attempt 2, queue team-a) and cannot grow: nvidia.com/gpu of each pod of main: 1 -> 4; \
                 members would get such an edit at once, past the queue. Delete the job and submit it again with the larger size, \
                 or suspend it first where its kind can be suspended"
            );
            assert_eq!(message, want);
            // With fewer replicas the requests still grow: the old pods go one by one.
            let fewer = update(service(kind, 4, "1"), service(kind, 1, "4"));
            denial(review(scope, &fewer, &released));
            for new in [service(kind, 9, "1"), service(kind, 2, "0")] {
                let edit = update(service(kind, 2, "1"), new);
                assert_eq!(review(scope, &edit, &released), ReviewAnswer::allow());
            }
        }
    }
}

#[test]
fn every_way_to_request_more_is_growth() {
    let released = index_of("Deployment");
    let old = service("Deployment", 4, "1");
    let pods = |change: Value| {
        let mut new = old.clone();
        json_patch::merge(&mut new["spec"], &change);
        denial(review(
            TemplateRegistration::Managed,
            &update(old.clone(), new),
            &released,
        ))
    };
    let spec = |change: Value| json!({"template": {"spec": change}});
    let limits = |gpus: &str| json!({"limits": {"nvidia.com/gpu": gpus}});
    for (change, growth) in [
        (
            spec(json!({"initContainers": [{"name": "i", "resources": limits("2")}]})),
            "nvidia.com/gpu of each pod of main: 1 -> 2",
        ),
        (
            spec(json!({"initContainers": [
                {"name": "i", "restartPolicy": "Always", "resources": limits("1")},
            ]})),
            "nvidia.com/gpu of each pod of main: 1 -> 2",
        ),
        (
            spec(json!({"containers": [
                {"name": "c", "resources": limits("1")}, {"name": "d", "resources": limits("1")},
            ]})),
            "nvidia.com/gpu of each pod of main: 1 -> 2",
        ),
        (
            spec(json!({"overhead": {"memory": "1Gi"}})),
            "memory of each pod of main: 0 -> 1Gi",
        ),
        (
            spec(json!({"resources": {"limits": {"cpu": "3"}}})),
            "cpu of each pod of main: 0 -> 3",
        ),
        (
            json!({"strategy": {"rollingUpdate": {"maxSurge": "100%"}}}),
            "pods of main: 5 -> 8",
        ),
    ] {
        let message = pods(change);
        assert!(message.contains(growth), "{message}");
    }
}

#[test]
fn scaling_a_kind_without_held_replicas_is_growth() {
    let scale = |resource: &str, group: &str, from: u32, to: u32| -> ReviewRequest<Value> {
        let scale = |replicas: u32| {
            json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": "train", "namespace": "team-a", "uid": "t-1"},
                "spec": {"replicas": replicas},
            })
        };
        serde_json::from_value(json!({
            "uid": "r", "operation": "UPDATE", "name": "train", "namespace": "team-a",
            "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
            "resource": {"group": group, "version": "v1", "resource": resource},
            "subResource": "scale", "object": scale(to), "oldObject": scale(from),
        }))
        .unwrap()
    };
    let released = index_of("PyTorchJob");
    let raise = scale("pytorchjobs", "kubeflow.org", 2, 4);
    let message = denial(review(TemplateRegistration::Managed, &raise, &released));
    assert!(message.starts_with("PyTorchJob train is admitted (attempt 2, queue team-a) and cannot grow: replicas: 2 -> 4"), "{message}");
    let shrink = scale("pytorchjobs", "kubeflow.org", 4, 2);
    assert_eq!(
        review(TemplateRegistration::Managed, &shrink, &released),
        ReviewAnswer::allow()
    );
    // Karmada holds these until the growth is granted.
    let held = scale("deployments", "apps", 2, 4);
    let released = index_of("Deployment");
    assert_eq!(
        review(TemplateRegistration::Managed, &held, &released),
        ReviewAnswer::allow()
    );
}

#[test]
fn the_deletion_of_a_template_does_not_depend_on_its_values() {
    let mut ending = volcano_job(8, "x");
    ending["metadata"]["deletionTimestamp"] = json!("2026-11-21T04:00:00Z");
    let edit = update(volcano_job(4, "1"), ending);
    assert_eq!(
        review(
            TemplateRegistration::Managed,
            &edit,
            &index("t-1", "Admitted")
        ),
        ReviewAnswer::allow()
    );
}

#[test]
fn values_that_cannot_be_used_are_refused_in_managed_namespaces() {
    let nothing = ReleasedIndex::default();
    let bad = create(volcano_job(4, "-1"));
    insta::assert_snapshot!(denial(review(TemplateRegistration::Managed, &bad, &nothing)), @r#"spec.tasks[0].template.spec.containers[0].resources.requests[nvidia.com/gpu] is "-1"; needed: 0 or more"#);
    assert_eq!(
        review(TemplateRegistration::Elsewhere, &bad, &nothing),
        ReviewAnswer::allow()
    );

    let mut job = volcano_job(4, "1");
    job["spec"]["queue"] = json!("Team A");
    insta::assert_snapshot!(denial(review(TemplateRegistration::Managed, &create(job), &nothing)), @r#"queue "Team A" cannot be the name of a queue; needed: lower-case letters, digits, '-' and '.', at most 253, beginning and ending with a letter or digit"#);
}

#[test]
fn an_update_is_refused_only_for_what_it_breaks() {
    let nothing = ReleasedIndex::default();
    let mut labelled = volcano_job(4, "-1");
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let edit = update(volcano_job(4, "-1"), labelled);
    assert_eq!(
        review(TemplateRegistration::Managed, &edit, &nothing),
        ReviewAnswer::allow()
    );
    let breaking = update(volcano_job(4, "1"), volcano_job(4, "-1"));
    assert!(matches!(
        review(TemplateRegistration::Managed, &breaking, &nothing),
        ReviewAnswer::Deny { .. }
    ));
}

#[test]
fn names_that_karmada_may_refuse_cause_a_warning() {
    let mut job = volcano_job(1, "1");
    job["spec"]["tasks"][0]["name"] = json!("w".repeat(33));
    let ReviewAnswer::Allow { warnings, .. } = review(
        TemplateRegistration::Managed,
        &create(job),
        &ReleasedIndex::default(),
    ) else {
        panic!("refused");
    };
    assert!(
        warnings[0].starts_with("spec.tasks[0].name"),
        "{warnings:?}"
    );
}

#[test]
fn names_of_objects() {
    for (name, want) in [
        ("team-a", true),
        ("a.b-1", true),
        ("", false),
        ("Team", false),
        ("-a", false),
        ("a-", false),
        ("a..b", false),
        ("a_b", false),
    ] {
        assert_eq!(is_object_name(name), want, "{name}");
    }
    assert!(!is_object_name(&"a".repeat(254)));
}
