#![allow(clippy::unwrap_used)]

use super::bindings::{HandOver, hand_over, hand_over_of};
use super::policies::{OF_DEFAULT, successor};
use super::{copies, objects, policies, remover};
use crds::karmada::ResourceBinding;
use kube::api::DynamicObject;
use runtime::testing::{FakeApi, Fault};
use serde_json::{Value, json};

const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/team/resourcebindings";

/// Returns a gated binding of Muster with this record (fields of its JSON) in these clusters.
fn binding(name: &str, record: Option<&Value>, clusters: &[&str]) -> Value {
    let mut whole = json!({
        "version": 1, "templateUID": "u", "attempt": 1, "state": "Admitted", "queue": "q",
        "clusters": [], "time": "2026-01-01T00:00:00Z",
    });
    for (key, value) in record.and_then(Value::as_object).into_iter().flatten() {
        whole[key] = value.clone();
    }
    let annotations = match record {
        Some(_) => json!({"muster.io/admission": whole.to_string(), "other": "stays"}),
        None => json!({}),
    };
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "name": name, "namespace": "team", "uid": name, "annotations": annotations,
            "finalizers": ["karmada.io/binding-controller", "muster.io/accounting"],
        },
        "spec": {
            "schedulerName": "muster",
            "resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": name},
            "clusters": clusters.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
            "suspension": {"scheduling": clusters.is_empty()},
        },
    })
}

fn handed(object: Value) -> Option<(HandOver, Value)> {
    let binding: ResourceBinding = serde_json::from_value(object).unwrap();
    hand_over_of(&binding)
}

#[test]
fn a_waiting_job_is_opened() {
    let (fate, patch) = handed(binding("waits", None, &[])).unwrap();
    assert_eq!(fate, HandOver::Opened);
    assert_eq!(patch["spec"]["suspension"], json!({"scheduling": null}));
    assert_eq!(
        patch["metadata"]["finalizers"],
        json!(["karmada.io/binding-controller"])
    );
    assert_eq!(patch["spec"]["clusters"], Value::Null);
}

#[test]
fn a_placed_job_keeps_its_clusters_and_is_closed() {
    let (fate, patch) = handed(binding("runs", Some(&json!({})), &["m1", "m2"])).unwrap();
    assert_eq!(fate, HandOver::Placed);
    assert_eq!(patch["spec"], json!({"suspension": {"scheduling": true}}));
    assert_eq!(
        patch["metadata"]["annotations"],
        json!({"muster.io/admission": null})
    );
}

#[test]
fn an_unreadable_record_of_a_placed_job_is_removed_too() {
    let mut object = binding("runs", Some(&json!({})), &["m1"]);
    object["metadata"]["annotations"]["muster.io/admission"] = json!("no JSON");
    let (fate, patch) = handed(object).unwrap();
    assert_eq!(fate, HandOver::Placed);
    assert_eq!(
        patch["metadata"]["annotations"]["muster.io/admission"],
        Value::Null
    );
}

#[test]
fn parts_that_were_not_dispatched_are_no_placement() {
    let (fate, patch) = handed(binding(
        "held",
        Some(&json!({"parts": "Held"})),
        &["m1", "m2"],
    ))
    .unwrap();
    assert_eq!(fate, HandOver::Opened);
    assert_eq!(patch["spec"]["clusters"], json!([]));
    assert_eq!(
        patch["spec"]["suspension"],
        json!({"dispatching": null, "scheduling": null})
    );
}

#[test]
fn an_ended_job_does_not_run_again() {
    for reason in ["Succeeded", "PartFailed", "Aborted"] {
        let record = json!({"state": "Requeued", "reason": reason});
        let (fate, patch) = handed(binding("over", Some(&record), &[])).unwrap();
        assert_eq!(fate, HandOver::Ended, "{reason}");
        assert_eq!(patch["spec"]["suspension"]["scheduling"], true);
    }
    let record = json!({"state": "Requeued", "reason": "Evicted"});
    let (fate, _) = handed(binding("again", Some(&record), &[])).unwrap();
    assert_eq!(fate, HandOver::Opened);
}

#[test]
fn a_binding_without_marks_is_left_alone() {
    let mut object = binding("foreign", None, &[]);
    object["metadata"]["finalizers"] = json!(["karmada.io/binding-controller"]);
    assert_eq!(handed(object), None);
}

#[test]
fn a_deleted_binding_loses_only_its_marks() {
    let mut object = binding("deleted", Some(&json!({})), &["m1"]);
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (fate, patch) = handed(object).unwrap();
    assert_eq!(fate, HandOver::Deleting);
    assert_eq!(patch["spec"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_failed_in_the_middle_is_finished_by_the_next() {
    let api = FakeApi::new();
    for (name, clusters) in [("a", &[] as &[&str]), ("b", &["m1"]), ("c", &[])] {
        let record = (!clusters.is_empty()).then(|| json!({}));
        api.put(
            &format!("{BINDINGS}/{name}"),
            binding(name, record.as_ref(), clusters),
        );
    }
    let of_b = |request: &runtime::testing::Recorded| {
        request.verb == "PATCH" && request.path.ends_with("/b")
    };
    api.fault(1, Fault::Status(500, "away"), of_b);
    assert!(hand_over(&remover(api.client())).await.is_err());
    let again = remover(api.client());
    let kept = hand_over(&again).await.unwrap();
    assert_eq!(kept.kinds(), [("batch/v1".to_owned(), "Job".to_owned())]);
    assert_eq!(again.count(), 2, "a was done");
    let third = remover(api.client());
    let kept = hand_over(&third).await.unwrap();
    assert_eq!((third.count(), kept.kinds().len()), (0, 1));
    let text = format!("{:?}", api.objects());
    assert!(!text.contains("muster.io"), "{text}");
    let clusters = api.get(&format!("{BINDINGS}/b")).unwrap()["spec"]["clusters"].clone();
    assert_eq!(clusters, json!([{"name": "m1"}]));
}

#[tokio::test(start_paused = true)]
async fn overrides_of_waiting_jobs_go_and_those_of_placed_ones_stay() {
    let api = FakeApi::new();
    api.put(
        &format!("{BINDINGS}/runs"),
        binding("runs", Some(&json!({})), &["m1"]),
    );
    api.put(&format!("{BINDINGS}/waits"), binding("waits", None, &[]));
    let overrides = "/apis/policy.karmada.io/v1alpha1/namespaces/team/overridepolicies";
    for name in ["runs", "waits"] {
        let owner = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "name": name, "uid": name});
        let metadata = json!({"name": format!("muster-{name}"), "namespace": "team", "ownerReferences": [owner]});
        api.put(
            &format!("{overrides}/muster-{name}"),
            json!({"metadata": metadata}),
        );
    }
    let users = json!({"metadata": {"name": "muster-own", "namespace": "team"}});
    api.put(&format!("{overrides}/muster-own"), users);
    hand_over(&remover(api.client())).await.unwrap();
    let left = api.objects();
    let names: Vec<&str> = left
        .keys()
        .filter_map(|path| path.strip_prefix(overrides))
        .collect();
    assert_eq!(names, ["/muster-own", "/muster-runs"]);
}

fn policy(name: &str) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {
            "name": name, "namespace": "team", "uid": "p", "resourceVersion": "7",
            "finalizers": ["karmada.io/propagation-policy-controller"],
            "labels": {"propagationpolicy.karmada.io/permanent-id": "x", "team": "a"},
            "annotations": {"muster.io/description": "y"},
        },
        "spec": {
            "schedulerName": "muster", "priority": -1000, "propagateDeps": true,
            "placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
        },
    }))
    .unwrap()
}

#[test]
fn a_policy_gets_a_successor_for_karmadas_scheduler() {
    let own = successor(&policy("mine"));
    assert_eq!(own.metadata.name.as_deref(), Some("mine-default-scheduler"));
    let mut wanted = policy("mine").data["spec"].clone();
    wanted["schedulerName"] = json!("default-scheduler");
    assert_eq!(own.data["spec"], wanted);
    assert_eq!(json!(own.metadata.labels), json!({"team": "a"}));
    assert_eq!(own.metadata.resource_version, None);

    let of_muster = successor(&policy("muster"));
    assert_eq!(of_muster.metadata.name.as_deref(), Some(OF_DEFAULT));
    let spread = &of_muster.data["spec"]["placement"]["spreadConstraints"];
    assert_eq!(spread[0]["maxGroups"], 1);
    assert!(!json!(of_muster).to_string().contains("muster.io"));
}

#[tokio::test(start_paused = true)]
async fn a_successor_exists_before_its_policy_is_deleted() {
    let api = FakeApi::new();
    let path = "/apis/policy.karmada.io/v1alpha1/namespaces/team/propagationpolicies";
    let mut own = json!(policy("mine"));
    own["metadata"]["finalizers"] = json!([]);
    api.put(&format!("{path}/mine"), own);
    policies::replace_all(&remover(api.client()), true)
        .await
        .unwrap();
    let writes = ["POST", "DELETE"].map(|verb| api.requests_of(verb).len());
    assert_eq!(writes, [1, 1]);
    let all = api.requests();
    let at = |verb: &str| all.iter().position(|request| request.verb == verb);
    assert!(at("POST") < at("DELETE"));
    assert!(api.get(&format!("{path}/mine-default-scheduler")).is_some());
    assert!(api.get(&format!("{path}/mine")).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_queue_loses_only_the_finalizer_of_muster() {
    let api = FakeApi::new();
    let path = "/apis/scheduling.volcano.sh/v1beta1/queues";
    for (name, finalizers) in [
        ("a", json!(["other", "muster.io/accounting"])),
        ("b", json!(["other"])),
    ] {
        let metadata = json!({"name": name, "finalizers": finalizers});
        api.put(&format!("{path}/{name}"), json!({"metadata": metadata}));
    }
    let first = remover(api.client());
    objects::release_queues(&first).await.unwrap();
    assert_eq!(first.count(), 1);
    let finalizers = api.get(&format!("{path}/a")).unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["other"]));
}

#[tokio::test(start_paused = true)]
async fn what_jobs_use_in_a_member_stays() {
    let api = FakeApi::new();
    let volcano = "/apis/scheduling.volcano.sh/v1beta1";
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    for path in [format!("{volcano}/queues"), classes.to_owned()] {
        for name in ["used", "over"] {
            api.put(
                &format!("{path}/{name}"),
                json!({"metadata": {"name": name}}),
            );
        }
    }
    let groups = format!("{volcano}/namespaces/team/podgroups");
    for (name, phase, pod) in [
        ("used", "Running", "Running"),
        ("over", "Completed", "Succeeded"),
    ] {
        let metadata = json!({"name": name, "namespace": "team"});
        let group =
            json!({"metadata": metadata, "spec": {"queue": name}, "status": {"phase": phase}});
        api.put(&format!("{groups}/{name}"), group);
        let spec = json!({"priorityClassName": name, "containers": []});
        let pod = json!({"metadata": metadata, "spec": spec, "status": {"phase": pod}});
        api.put(&format!("/api/v1/namespaces/team/pods/{name}"), pod);
    }
    let kept = copies::remove(&remover(api.client())).await.unwrap();
    assert_eq!(kept, ["queue used", "priorityclass used"]);
    let left = [format!("{volcano}/queues"), classes.to_owned()]
        .map(|path| ["used", "over"].map(|name| api.get(&format!("{path}/{name}")).is_some()));
    assert_eq!(left, [[true, false]; 2]);
}
