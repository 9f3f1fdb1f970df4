//! A new leader charges Works whose bindings were deleted while no replica led, until the Works are gone.

use super::*;

/// After a restart: a Work requests three CPUs and its binding is gone; `b` requests two of four.
async fn left_behind() -> Stage {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.rendered("a", "a-id", 3, 1);
    stage.job("b", 2);
    stage
}

#[tokio::test(start_paused = true)]
async fn leftover_works_are_charged_after_a_restart_as_before() {
    let mut stage = left_behind().await;
    stage.list_all();
    stage.rest_later(&["b"], 60_000).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.state("a"), Some(JobState::Ending));
    assert_eq!(stage.shown("b"), "no record, gated []");
    // The next job of that name also waits.
    stage.template("a", 1, json!({}));
    let next = json!({"metadata": {"labels": {names::BINDING_PERMANENT_ID: "next"}}});
    stage.binding("a", 1, next);
    stage.rest_later(&["a", "b"], 60_000).await;
    assert_eq!(stage.shown("a"), "no record, gated []");
    stage.work("a", false);
    stage.rest_later(&["a", "b"], 2_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
}

#[tokio::test(start_paused = true)]
async fn a_running_job_of_the_same_name_is_charged_besides() {
    let mut stage = left_behind().await;
    stage.template("a", 1, json!({}));
    let next = json!({
        "metadata": {
            "labels": {names::BINDING_PERMANENT_ID: "next"},
            "annotations": left("a", RecordState::Admitted, 1, 1),
        },
        "spec": {"suspension": {"scheduling": false}, "clusters": [{"name": "m1", "replicas": 1}]},
    });
    stage.binding("a", 1, next);
    stage.list_all();
    stage.rest_later(&["a", "b"], 60_000).await;
    assert_eq!(stage.charged(), "4");
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    stage.work("a", false);
    stage.rest_later(&["a", "b"], 2_000).await;
    assert_eq!(stage.charged(), "3", "of a and b");
}

#[tokio::test(start_paused = true)]
async fn leftover_works_of_an_unmanaged_namespace_are_charged_to_no_queue() {
    let mut stage = left_behind().await;
    stage.list_all();
    stage.core.role = Leading::CatchesUp(binding_writer::term::Lead::new(0));
    stage.namespace(false);
    stage.rest(&["b"]).await;
    assert_eq!(stage.state("a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_the_watch_shows_late_is_not_gone() {
    let mut stage = left_behind().await;
    stage.list_all();
    stage.settle().await;
    assert_eq!(stage.state("a"), Some(JobState::Ending));
    stage.template("a", 3, json!({}));
    let placed = json!({
        "metadata": {"annotations": left("a", RecordState::Admitted, 1, 3)},
        "spec": {"suspension": {"scheduling": false}, "clusters": [{"name": "m1", "replicas": 3}]},
    });
    stage.earlier_binding("a", 3, placed);
    stage.rest_later(&["a", "b"], 60_000).await;
    assert_eq!(stage.state("a"), Some(JobState::Placed));
    assert_eq!(stage.charged(), "3");
}
