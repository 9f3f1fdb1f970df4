//! Writes that fail, watches that lag, plans that no scheduler answers.

use super::*;
use runtime::testing::Fault;

fn patches_binding(request: &Recorded) -> bool {
    request.verb == "PATCH" && request.path == path("a")
}

#[tokio::test(start_paused = true)]
async fn a_write_that_conflicts_waits_for_the_watch() {
    let mut stage = stage().await;
    stage.template("a", 2, json!({}));
    stage.binding("a", 2, json!({"spec": {"suspension": null}}));
    // Another user places it; the watch lags.
    let placed = json!({"spec": {"clusters": [{"name": "m1"}]}});
    stage.api.merge(&path("a"), &placed);
    for _ in 0..3 {
        stage.settle().await;
    }
    assert_eq!(
        stage.patches("a").len(),
        1,
        "no loop while the watch is behind"
    );
    for _ in 0..3 {
        stage.rest_later(&["a"], 6_000).await;
    }
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_refused_placement_is_released_and_retried() {
    let mut stage = stage().await;
    stage
        .api
        .fault(1, Fault::Status(403, "no"), patches_binding);
    stage.job("a", 2);
    stage.settle().await;
    assert_eq!(stage.charged(), "0");
    // Who may not place it now may later.
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.charged(), "0");
    stage.rest_later(&["a"], 3_600_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
    assert_eq!(stage.charged(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_placement_whose_answer_is_lost_is_written_once() {
    let mut stage = stage().await;
    stage.api.fault(1, Fault::LoseAnswer, patches_binding);
    stage.job("a", 2);
    stage.settle().await;
    for _ in 0..200 {
        stage.settle().await;
    }
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_refused_resize_keeps_the_placement_and_its_charge() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    stage.change("a", reported(json!({"active": 2, "ready": 2})));
    stage.rest(&["a"]).await;
    let before = stage.patches("a").len();
    stage
        .api
        .fault(usize::MAX, Fault::Status(403, "no"), patches_binding);
    stage.template("a", 3, json!({}));
    stage.settle().await;
    let tries = stage.patches("a").len() - before;
    assert!((1..3).contains(&tries), "{tries} tries in no time");
    assert_eq!(stage.state("a"), Some(JobState::Running));
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_no_scheduler_answers_is_evicted() {
    let mut stage = stage_of(false).await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Planned 1 gated []");
    assert_eq!(stage.charged(), "3");
    stage.rest_later(&["a"], 601_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.rest_later(&["a"], 6_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_podgroup_is_not_recreated_for_a_deleted_job() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.change(
        "a",
        json!({"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}}),
    );
    stage.rest(&["a"]).await;
    let applies = |stage: &Stage| stage.api.requests_of("APPLY").len();
    let before = applies(&stage);
    // Garbage collection removes it together with the template.
    stage.take(Input::Template(
        job_kind(),
        Delta::Gone(object_key("team", "a")),
    ));
    stage.take(Input::PodGroup(Delta::Gone(object_key("team", "a"))));
    stage.rest(&["a"]).await;
    assert_eq!(applies(&stage), before);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_while_the_admission_policies_are_not_in_force() {
    let mut stage = stage().await;
    stage.job("runs", 2);
    stage.rest(&["runs"]).await;
    let broken = Enforcement::Broken("a tenant may write bindings".into());
    stage.take(Input::Enforcement(broken));
    stage.job("waits", 2);
    stage.rest(&["runs", "waits"]).await;
    assert_eq!(stage.shown("waits"), "no record, gated []");
    assert_eq!(stage.shown("runs"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "2");
    // A core that may not decide does not poll.
    assert!(stage.core.pause(stage.now()) > Duration::from_secs(1));
    // A finished job still gives its quota back.
    let complete = json!({"succeeded": 2, "conditions": [{"type": "Complete", "status": "True"}]});
    stage.change("runs", reported(complete));
    stage.rest(&["runs", "waits"]).await;
    assert_eq!(stage.charged(), "0");
    stage.take(Input::Enforcement(Enforcement::InForce));
    stage.rest(&["waits"]).await;
    assert_eq!(stage.shown("waits"), r#"Admitted 1 open ["m1"]"#);
}
