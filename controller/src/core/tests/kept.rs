//! A charge ends only when nothing is left that could run, whatever a tenant removes from a binding.

use super::*;

fn unclaimed() -> Value {
    json!({"metadata": {"labels": {names::POLICY_PERMANENT_ID: null}}})
}

/// A job of three CPUs that runs in `m1`, and a pending job of two, in a queue of four.
async fn full() -> Stage {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.change("a", reported(json!({"active": 3, "ready": 3})));
    stage.job("b", 2);
    stage.rest(&["a", "b"]).await;
    stage
}

/// The running job stays charged, and no other job started.
fn holds(stage: &Stage) {
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
    let finalizers = &stage.get("a")["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!([names::ACCOUNTING_FINALIZER]));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_loses_its_policy_stays_charged() {
    let mut stage = full().await;
    let patches = stage.patches("a").len();
    stage.change("a", unclaimed());
    stage.rest_later(&["a", "b"], 60_000).await;
    holds(&stage);
    // Another policy claims it.
    let claimed = json!({"metadata": {"labels": {names::CLUSTER_POLICY_PERMANENT_ID: "other"}}});
    stage.change("a", claimed);
    stage.rest_later(&["a", "b"], 60_000).await;
    holds(&stage);
    assert_eq!(stage.patches("a").len(), patches, "nothing was written");
    assert!(!stage.record("a").unwrap().adopted);
}

#[tokio::test(start_paused = true)]
async fn a_pending_job_that_loses_its_policy_is_not_admitted() {
    let mut stage = full().await;
    stage.change("b", unclaimed());
    stage.queue("8");
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("b"), "no record, gated []");
    let why = stage
        .core
        .reconciler
        .engine
        .explain(&JobKey::new("team", "b"))
        .unwrap();
    assert_eq!(why.reason, engine::Reason::PolicyNotFound);
    let claimed = json!({"metadata": {"labels": {names::POLICY_PERMANENT_ID: "new"}}});
    stage.change("b", claimed);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_removed_finalizer_is_restored() {
    let mut stage = full().await;
    stage.change("a", json!({"metadata": {"finalizers": []}}));
    stage.rest(&["a", "b"]).await;
    holds(&stage);
    assert_eq!(
        stage.core.reconciler.out.metrics.finalizers_restored.get(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_removed_or_forged_record_is_restored() {
    let cheap = stage_of_record("a", 1);
    for forged in [Value::Null, json!("{}"), cheap] {
        let mut stage = full().await;
        let annotations = json!({ names::ADMISSION_ANNOTATION: forged });
        let change = json!({"metadata": {"annotations": annotations, "finalizers": []}});
        stage.change("a", change);
        stage.rest(&["a", "b"]).await;
        holds(&stage);
        assert_eq!(stage.core.reconciler.out.metrics.records_changed.get(), 1);
        let share = &stage.record("a").unwrap().clusters[0];
        assert_eq!(share.pods[0].count, 3);
    }
}

/// The whole record is restored, whatever part of it was changed.
#[tokio::test(start_paused = true)]
async fn a_record_is_restored_completely() {
    let mut stage = full().await;
    let record = stage.record("a").unwrap();
    assert!(!record.requests.is_empty());
    let mut forged = record.clone();
    for request in forged.requests.values_mut() {
        *request = Resources::parse([("cpu", "500m")]).unwrap();
    }
    let text = forged.to_annotation().unwrap();
    stage.change(
        "a",
        json!({"metadata": {"annotations": {names::ADMISSION_ANNOTATION: text}}}),
    );
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.record("a").unwrap(), record);
    let in_flight = &stage.core.reconciler.in_flight[&JobKey::new("team", "a")];
    let changed = in_flight.guard.changed();
    let changed = changed.unwrap().to_owned();
    assert!(changed.contains("was changed (requests)"), "{changed}");
}

fn stage_of_record(name: &str, cpus: u32) -> Value {
    left(name, RecordState::Admitted, 1, cpus)[names::ADMISSION_ANNOTATION].clone()
}

#[tokio::test(start_paused = true)]
async fn a_forged_admission_is_gated_and_charged() {
    let mut stage = full().await;
    stage.work("a", false);
    let change = json!({
        "metadata": {"annotations": left("b", RecordState::Admitted, 1, 2)},
        "spec": {"suspension": {"scheduling": false}, "clusters": [{"name": "m1"}]},
    });
    stage.work("b", true);
    stage.change("b", change);
    stage.rest(&["a", "b"]).await;
    assert!(
        stage.shown("b").starts_with("Ending"),
        "{}",
        stage.shown("b")
    );
    assert_eq!(stage.charged(), "5");
    stage.work("b", false);
    stage.rest_later(&["a", "b"], 10_000).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_record_was_forged_without_a_leader_is_charged_for_its_works() {
    // It is gated, its record says that nothing of it is left, and its Work still exists.
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.template("a", 3, json!({}));
    let annotations = left("a", RecordState::Requeued, 1, 3);
    stage.binding("a", 3, json!({"metadata": {"annotations": annotations}}));
    stage.work("a", true);
    stage.job("b", 2);
    stage.list_all();
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
    stage.work("a", false);
    stage.rest_later(&["a", "b"], 10_000).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_job_without_its_binding_is_charged_until_its_works_are_gone() {
    let mut stage = full().await;
    // A user deletes it and removes the finalizer at the same moment.
    stage.api.remove(&path("a"));
    stage.echo("a");
    stage.rest_later(&["b"], 30_000).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
    // The next job of that name also waits.
    stage.template("a", 2, json!({}));
    stage.binding(
        "a",
        1,
        json!({"metadata": {"labels": {names::BINDING_PERMANENT_ID: "new"}}}),
    );
    stage.rest_later(&["a", "b"], 30_000).await;
    assert_eq!(stage.shown("a"), "no record, gated []");
    stage.work("a", false);
    stage.rest_later(&["a", "b"], 2_000).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
}

/// A job of three CPUs that another scheduler has placed.
fn placed_by_another() -> Value {
    json!({
        "metadata": {"finalizers": null},
        "spec": {"suspension": null, "clusters": [{"name": "m1", "replicas": 3}]},
    })
}

const NAMESPACE: &str = "/api/v1/namespaces/team";

fn marks(stage: &Stage) -> Vec<Value> {
    let patches = stage.api.requests_of("PATCH").into_iter();
    patches
        .filter(|request| request.path == NAMESPACE)
        .map(|request| {
            request.body["metadata"]["annotations"][names::ADOPTED_AT_ANNOTATION].clone()
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_marked_once_all_its_earlier_workloads_are_recorded() {
    let mut stage = stage().await;
    stage.binding("a", 3, placed_by_another());
    stage.settle().await;
    // Its template has not been seen, so its size is unknown; it still counts as existing.
    stage.rest_later(&["a"], 4_000).await;
    assert_eq!(stage.shown("a"), r#"no record, open ["m1"]"#);
    stage.rest_later(&["a"], 4_000).await;
    assert!(stage.record("a").unwrap().adopted);
    assert_eq!(marks(&stage), Vec::<Value>::new());
    stage.rest_later(&["a"], 4_000).await;
    assert_eq!(marks(&stage).len(), 1);
    stage.template("a", 3, json!({}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "3");
}

#[tokio::test(start_paused = true)]
async fn a_marked_namespace_adopts_nothing() {
    // After a restart only the mark counts.
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.list_all();
    stage.marked_namespace(true);
    stage.template("a", 3, json!({}));
    stage.binding("a", 3, placed_by_another());
    stage.work("a", true);
    stage.job("b", 2);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
}

#[tokio::test(start_paused = true)]
async fn a_queued_job_is_not_adopted_before_the_mark() {
    let mut stage = full().await;
    let change = json!({
        "metadata": {"finalizers": null},
        "spec": {"suspension": null, "clusters": [{"name": "m1"}]},
    });
    stage.change("b", change);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("b"), "Ending 1 gated []");
    assert_eq!(stage.charged(), "5");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_loses_its_mark_before_its_bindings_are_unmanaged() {
    let mut stage = stage().await;
    stage.marked_namespace(true);
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.marked_namespace(false);
    stage.change("a", unclaimed());
    stage.rest(&["a"]).await;
    assert_eq!(marks(&stage), [Value::Null]);
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
    stage.namespace(false);
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"no record, open ["m1"]"#);
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn an_adopted_job_scaled_above_the_quota_is_evicted() {
    let mut stage = stage().await;
    stage.template("a", 3, json!({}));
    stage.binding("a", 3, placed_by_another());
    stage.rest(&["a"]).await;
    assert!(stage.record("a").unwrap().adopted);
    stage.change(
        "a",
        json!({"spec": {"clusters": [{"name": "m1", "replicas": 5}]}}),
    );
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    assert_eq!(stage.charged(), "5");
}

fn propagation(change: Value) -> Input {
    let object = crate::status::kept_policies::propagation("team");
    let mut object = json!({"metadata": object["metadata"], "spec": object["spec"]});
    merge(&mut object, change);
    Input::Propagation(Delta::Upserted(read(object)))
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_a_namespace_is_maintained() {
    let mut stage = stage().await;
    let applied = |stage: &Stage| {
        let patches = stage.api.requests_of("APPLY").into_iter();
        let path = "/apis/policy.karmada.io/v1alpha1/namespaces/team/propagationpolicies/muster";
        patches.filter(|request| request.path == path).count()
    };
    let mut count = applied(&stage);
    // Fields that Karmada fills in are no difference.
    stage.take(propagation(json!({"spec": {"preemption": "Never"}})));
    stage.settle().await;
    assert_eq!(applied(&stage), count);
    for edit in [
        json!({"spec": {"preserveResourcesOnDeletion": true}}),
        json!({"spec": {"resourceSelectors": []}}),
        json!({"spec": {"priority": 7}}),
    ] {
        stage.take(propagation(edit.clone()));
        stage.settle().await;
        count += 1;
        assert_eq!(applied(&stage), count, "{edit}");
        // An edit that always comes back is not corrected for ever.
        stage.take(propagation(edit));
        stage.settle().await;
        assert_eq!(applied(&stage), count);
    }
    stage.take(Input::Propagation(Delta::Gone(object_key(
        "team", "muster",
    ))));
    stage.settle().await;
    assert_eq!(applied(&stage), count + 1);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_an_earlier_leader_wrote_late_is_removed() {
    let mut stage = stage().await;
    stage.namespace(false);
    stage.settle().await;
    let path = "/apis/policy.karmada.io/v1alpha1/namespaces/team/propagationpolicies/muster";
    let late = |manager: &str| {
        let managed = json!([{"manager": manager, "operation": "Apply"}]);
        json!({"metadata": {"managedFields": managed}})
    };
    for (manager, stays) in [
        ("kubectl", true),
        (binding_writer::overrides::MANAGER, false),
    ] {
        stage.api.put(path, late(manager));
        stage.take(propagation(json!({})));
        stage.settle().await;
        assert_eq!(stage.api.get(path).is_some(), stays, "{manager}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mark_fits_the_label_that_was_seen() {
    let mut stage = stage().await;
    let labelled = |value: &str| json!({"metadata": {"labels": {names::MANAGED_LABEL: value}}});
    let show = |stage: &mut Stage| {
        let namespace = stage.api.get(NAMESPACE).unwrap();
        stage.take(Input::Namespace(Delta::Upserted(read(namespace))));
    };
    stage.api.put(NAMESPACE, labelled("true"));
    show(&mut stage);
    stage.settle().await;
    // The label is removed before the mark arrives, and the watch shows that later.
    stage.api.merge(NAMESPACE, &labelled("false"));
    stage.rest_later(&[], 60_000).await;
    let marked = |stage: &Stage| {
        let namespace = stage.api.get(NAMESPACE).unwrap();
        !namespace["metadata"]["annotations"][names::ADOPTED_AT_ANNOTATION].is_null()
    };
    assert!(!marks(&stage).is_empty() && !marked(&stage));
    stage.api.merge(NAMESPACE, &labelled("true"));
    show(&mut stage);
    stage.rest_later(&[], 60_000).await;
    assert!(marked(&stage));
}
