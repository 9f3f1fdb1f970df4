//! Who may submit to which queue, with an API server that knows the rights.
#![allow(clippy::unwrap_used)]

use super::*;
use crds::capacity_policy::CapacityPolicy;
use crds::kubernetes::Namespace;
use runtime::Delta;
use runtime::testing::{FakeApi, Fault};
use serde_json::json;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// An API server where `alice`, group `gold-users` and the service accounts of `team-b` may use queue
/// `gold`.
fn server() -> FakeApi {
    let api = FakeApi::new();
    api.answers(REVIEWS, |review| {
        let spec = &review["spec"];
        let groups = spec["groups"].as_array().unwrap();
        let granted = spec["user"] == "alice"
            || groups.contains(&json!("gold-users"))
            || groups.contains(&json!("system:serviceaccounts:team-b"));
        let gold = spec["resourceAttributes"]["name"] == "gold";
        json!({"spec": spec, "status": {"allowed": granted && gold}})
    });
    api
}

fn policy(queues: &QueueIndex, name: &str, spec: Value) {
    let policy: CapacityPolicy = serde_json::from_value(json!({
        "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy",
        "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap();
    queues.policy(Delta::Upserted(policy));
}

fn namespace(queues: &QueueIndex, name: &str, default_queue: &str) {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {
        "name": name, "labels": {"team": name},
        "annotations": {"muster.io/default-queue": default_queue},
    }}))
    .unwrap();
    queues.namespace(Delta::Upserted(namespace));
}

/// Queue `gold` is closed, `silver` belongs to `team-a`, all others are open.
fn permits(api: &FakeApi) -> Permits {
    let queues = QueueIndex::default();
    policy(
        &queues,
        "gold",
        json!({"tenancy": "Closed", "priorityClasses": ["low"]}),
    );
    let selector = json!({"matchLabels": {"team": "team-a"}});
    policy(&queues, "silver", json!({"namespaceSelector": selector}));
    let preemption = json!({"preemptableLabel": "Ignore"});
    policy(&queues, "tin", json!({"preemption": preemption}));
    namespace(&queues, "team-a", "");
    namespace(&queues, "team-b", "");
    namespace(&queues, "team-c", "gold");
    queues.policy(Delta::Listed);
    queues.config(Delta::Listed);
    queues.namespace(Delta::Listed);
    Permits {
        queues,
        rights: RightsCache::new(api.client()),
    }
}

fn job(queue: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "labels": {"muster.io/queue": queue}},
        "spec": {"parallelism": 1, "template": {"spec": {"containers": [{"name": "c"}]}}},
    })
}

fn create(namespace: &str, user: &str, groups: &[&str], object: Value) -> ReviewRequest<Value> {
    serde_json::from_value(json!({
        "uid": "u", "operation": "CREATE", "namespace": namespace, "name": "train",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "userInfo": {"username": user, "groups": groups}, "object": object,
    }))
    .unwrap()
}

fn update(request: ReviewRequest<Value>, old: Value) -> ReviewRequest<Value> {
    ReviewRequest {
        operation: "UPDATE".to_owned(),
        old_object: Some(old),
        ..request
    }
}

fn stamped(queue: &str, permitted: &str) -> Value {
    let mut job = job(queue);
    job["metadata"]["annotations"] = json!({ PERMITTED_QUEUE_ANNOTATION: permitted });
    job
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_used_by_its_namespaces_and_by_users_with_the_right() {
    let api = server();
    let permits = permits(&api);
    for (namespace, user, groups, queue, allowed, stamp) in [
        // Open, selected, or by the namespace's own right: no stamp.
        ("team-a", "bob", &[][..], "default", true, None),
        ("team-a", "bob", &[], "silver", true, None),
        ("team-b", "bob", &[], "gold", true, None),
        // The right of the user, or of a group.
        ("team-a", "alice", &[], "gold", true, Some("gold")),
        ("team-a", "bob", &["gold-users"], "gold", true, Some("gold")),
        ("team-a", "bob", &["others"], "gold", false, None),
        ("team-b", "alice", &[], "silver", false, None),
        // The namespace's default queue.
        ("team-c", "bob", &[], "", false, None),
        ("team-c", "alice", &[], "", true, Some("gold")),
    ] {
        let request = create(namespace, user, groups, job(queue));
        let case = format!("{user} of {groups:?} in {namespace} to {queue:?}");
        let written = permits.stamp(&request).await.unwrap();
        assert_eq!(written.as_deref(), stamp, "{case}");
        let object = stamp.map_or_else(|| job(queue), |stamp| stamped(queue, stamp));
        let request = create(namespace, user, groups, object);
        let checked = permits.check(&request).await;
        assert_eq!(checked.denial.is_none(), allowed, "{case}: {checked:?}");
    }
    let request = create("team-a", "bob", &[], job("gold"));
    let (denial, message) = permits.check(&request).await.denial.unwrap();
    assert_eq!(denial, Denial::Forbidden);
    insta::assert_snapshot!(message, @"bob may not submit to queue gold: queue gold selects no namespaces, and spec.tenancy of capacitypolicy gold is Closed, and neither bob nor the service accounts of team-a have the verb use on queues.scheduling.volcano.sh gold; name another queue (label muster.io/queue), or ask its owner");
}

/// One request stamps a template and the next one checks it. A right that is granted in between would let a
/// job pass that the controller holds because its stamp is missing.
#[tokio::test(start_paused = true)]
async fn a_right_granted_after_the_stamp_asks_for_a_retry() {
    let api = server();
    let permits = permits(&api);
    let unstamped = create("team-a", "alice", &[], job("gold"));
    let (denial, message) = permits.check(&unstamped).await.denial.unwrap();
    assert_eq!(denial, Denial::Forbidden);
    insta::assert_snapshot!(message, @"muster webhook: cannot check whether alice may use queue gold: the right was granted a moment ago; try again in a second");
}

/// Karmada's own accounts have all rights and update templates; that must not give a template the right.
#[tokio::test(start_paused = true)]
async fn an_update_gives_no_right_unless_the_queue_changes() {
    let api = server();
    let permits = permits(&api);
    let touched = update(create("team-a", "alice", &[], job("gold")), job("gold"));
    assert_eq!(permits.stamp(&touched).await.unwrap(), None);
    assert_eq!(
        permits.check(&touched).await,
        Checked::default(),
        "what is there stays editable"
    );
    assert_eq!(api.requests().len(), 0);
    // The annotation stays, whatever the update says and whichever user sends it.
    for new in [
        job("gold"),
        stamped("gold", "other"),
        stamped("gold", "gold"),
    ] {
        let kept = update(create("team-a", "bob", &[], new), stamped("gold", "gold"));
        assert_eq!(permits.stamp(&kept).await.unwrap().as_deref(), Some("gold"));
    }
    // When the queue changes, the user who changes it needs the right.
    for (user, allowed) in [("alice", true), ("bob", false)] {
        let moved = update(
            create("team-a", user, &[], stamped("gold", "gold")),
            job("default"),
        );
        assert_eq!(
            permits.stamp(&moved).await.unwrap().is_some(),
            allowed,
            "{user}"
        );
        assert_eq!(
            permits.check(&moved).await.denial.is_none(),
            allowed,
            "{user}"
        );
    }
    let away = update(
        create("team-a", "bob", &[], stamped("default", "gold")),
        stamped("gold", "gold"),
    );
    assert_eq!(permits.stamp(&away).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_right_is_neither_refused_nor_recorded() {
    let api = server();
    let permits = permits(&api);
    api.fault(2, Fault::Status(500, "etcd is away"), |_| true);
    let request = create("team-a", "alice", &[], job("gold"));
    let checked = permits.check(&request).await;
    assert_eq!(checked.denial, None);
    assert!(checked.warnings[0].contains("etcd is away"), "{checked:?}");
    let unknown = permits.stamp(&request).await.unwrap_err();
    insta::assert_snapshot!(unknown, @"muster webhook: cannot check whether alice may use queue gold: etcd is away; try again in a second");
    assert_eq!(
        permits.stamp(&request).await.unwrap().as_deref(),
        Some("gold")
    );

    let unread = Permits {
        queues: QueueIndex::default(),
        ..permits
    };
    assert_eq!(unread.check(&request).await, Checked::default());
    insta::assert_snapshot!(unread.stamp(&request).await.unwrap_err(), @"muster webhook: cannot check whether alice may use queue gold: queues have not been read yet; try again in a second");
}

#[tokio::test(start_paused = true)]
async fn disallowed_priority_classes_are_refused_when_they_are_set() {
    let api = server();
    let permits = permits(&api);
    let with_class = |class: &str| {
        let mut job = job("gold");
        job["spec"]["template"]["spec"]["priorityClassName"] = json!(class);
        job
    };
    let request = create("team-b", "bob", &[], with_class("high"));
    let (denial, message) = permits.check(&request).await.denial.unwrap();
    assert_eq!(denial, Denial::Forbidden);
    insta::assert_snapshot!(message, @"queue gold takes no jobs of PriorityClass high: spec.priorityClasses of capacitypolicy gold does not list PriorityClass high; it takes low");
    for (new, old, allowed) in [
        ("low", None, true),
        ("low", Some("high"), true),
        ("high", Some("low"), false),
        // The template had it before: an edit of another field must stay possible.
        ("high", Some("high"), true),
    ] {
        let request = create("team-b", "bob", &[], with_class(new));
        let request = match old {
            Some(old) => update(request, with_class(old)),
            None => request,
        };
        let denial = permits.check(&request).await.denial;
        assert_eq!(denial.is_none(), allowed, "{old:?} -> {new}");
    }
    // The label is checked as the template's own class is.
    for (label, allowed) in [("low", true), ("high", false)] {
        let mut job = with_class("low");
        job["metadata"]["labels"]["muster.io/priority-class"] = json!(label);
        let request = create("team-b", "bob", &[], job);
        let request = update(request, with_class("low"));
        let denial = permits.check(&request).await.denial;
        assert_eq!(denial.is_none(), allowed, "{label}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_opts_out_of_eviction_without_effect_gets_a_warning() {
    let permits = permits(&server());
    let mut never = job("tin");
    never["metadata"]["labels"]["volcano.sh/preemptable"] = json!("false");
    let checked = permits.check(&create("team-a", "bob", &[], never)).await;
    insta::assert_snapshot!(checked.warnings.join("\n"), @r#"volcano.sh/preemptable: "false" has no effect in queue tin: spec.preemption.preemptableLabel of capacitypolicy tin is Ignore"#);
    let plain = permits
        .check(&create("team-a", "bob", &[], job("tin")))
        .await;
    assert_eq!(plain, Checked::default());
}
