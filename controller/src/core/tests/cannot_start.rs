//! Jobs whose pods cannot start through a fault of their own.

use super::*;
use engine::facts::PodPhase;

/// The member shows the pod of job `a`, which is bound and waits with `reason`.
fn show_waiting_pod(stage: &mut Stage, reason: &str) {
    let said = Some((reason, "it says why"));
    stage.member_shows(Event::PodUpserted(pod("pod", PodPhase::Starting, said)));
}

fn generation(number: i64) -> Value {
    json!({"metadata": {"generation": number}})
}

/// Job `a` of one pod is placed.
async fn placed() -> Stage {
    let mut stage = stage().await;
    stage.template("a", 1, generation(1));
    stage.binding("a", 1, json!({}));
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage
}

/// Its start deadline passes, and its Work and its pod go.
async fn ends_late(stage: &mut Stage) {
    stage.rest_later(&["a"], 601_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.work("a", false);
    stage.member_shows(Event::PodGone(
        ClusterName::new("m1"),
        engine::Uid::new("pod"),
    ));
    stage.rest_later(&["a"], 20_000).await;
}

/// Job `a`, whose only pod waits with `reason` until its start deadline has passed and its Work is gone.
async fn evicted_after(reason: &str) -> Stage {
    let mut stage = placed().await;
    show_waiting_pod(&mut stage, reason);
    ends_late(&mut stage).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_image_does_not_exist_waits_for_another_template() {
    let mut stage = evicted_after("InvalidImageName").await;
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
    let explained = stage
        .core
        .reconciler
        .engine
        .explain(&JobKey::new("team", "a"));
    let explained = explained.unwrap();
    assert_eq!(explained.reason, engine::Reason::PodsCannotStart);
    assert_eq!(
        explained.message,
        "0 of the 1 pods it needs on m1 were running 601 s after its release: 1 has InvalidImageName (it says why); \
         it is not tried again before its template changes: mend it, or delete it and submit it again"
    );
    stage.template("a", 1, generation(2));
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_template_that_was_mended_while_its_pods_waited_is_tried() {
    let mut stage = placed().await;
    show_waiting_pod(&mut stage, "InvalidImageName");
    stage.template("a", 1, generation(2));
    ends_late(&mut stage).await;
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_restarts_holds_it_as_well() {
    let before = evicted_after("InvalidImageName").await;
    let left = before.get("a");
    let mut stage = stage().await;
    stage.template("a", 1, generation(1));
    stage.earlier_binding("a", 1, left);
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_node_could_not_start_it_is_tried_again() {
    let mut stage = evicted_after("OutOfcpu").await;
    stage.rest_later(&["a"], 10 * 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}
