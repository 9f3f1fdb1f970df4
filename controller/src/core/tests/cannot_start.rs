//! Jobs whose pods cannot start through a fault of their own.

use super::*;
use engine::facts::{PodFact, PodPhase};
use engine::faults::Symptom;

/// The member shows a pod of job `a` that is bound and waits with `reason`.
fn show_waiting_pod(stage: &mut Stage, reason: &str) {
    let pod = PodFact {
        cluster: ClusterName::new("m1"),
        uid: engine::Uid::new("pod"),
        node: Some(NodeName::new("n1")),
        request: Resources::parse([("cpu", "1"), ("pods", "1")]).unwrap(),
        job: Some(JobKey::new("team", "a")),
        phase: PodPhase::Starting,
        symptom: Some(Box::new(Symptom {
            reason: reason.to_owned(),
            message: "it says why".to_owned(),
            exit_code: None,
        })),
    };
    stage.take(Input::Member(MemberEvent::Fact(Event::PodUpserted(pod))));
}

fn generation(number: i64) -> Value {
    json!({"metadata": {"generation": number}})
}

/// Job `a`, whose only pod waits with `reason` until its start deadline has passed and its Work is gone.
async fn evicted_after(reason: &str) -> Stage {
    let mut stage = stage().await;
    stage.template("a", 1, generation(1));
    stage.binding("a", 1, json!({}));
    stage.rest(&["a"]).await;
    stage.work("a", true);
    show_waiting_pod(&mut stage, reason);
    stage.rest_later(&["a"], 601_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.work("a", false);
    let pod = Event::PodGone(ClusterName::new("m1"), engine::Uid::new("pod"));
    stage.take(Input::Member(MemberEvent::Fact(pod)));
    stage.rest_later(&["a"], 20_000).await;
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
async fn a_controller_that_restarts_holds_it_as_well() {
    let before = evicted_after("InvalidImageName").await;
    let left = before.get("a");
    let mut stage = stage().await;
    stage.template("a", 1, generation(1));
    stage.binding("a", 1, left);
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_node_could_not_start_it_is_tried_again() {
    let mut stage = evicted_after("OutOfcpu").await;
    stage.rest_later(&["a"], 10 * 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}
