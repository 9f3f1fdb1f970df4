//! Jobs that fail because their nodes did, or by themselves, and are queued again.

use super::*;
use crate::reconcile::placed::failures::told_failure;
use engine::facts::PodPhase;

/// The member shows the pod of job `a` in this phase, with this reason and message.
fn show_pod(stage: &mut Stage, phase: PodPhase, said: Option<(&str, &str)>) {
    stage.member_shows(Event::PodUpserted(pod("pod", phase, said)));
}

fn pod_gone(stage: &mut Stage) {
    stage.member_shows(Event::PodGone(
        ClusterName::new("m1"),
        engine::Uid::new("pod"),
    ));
}

/// Job `a` runs.
async fn running() -> Stage {
    let mut stage = stage().await;
    stage.job("a", 1);
    stage.rest(&["a"]).await;
    run(&mut stage).await;
    stage
}

async fn run(stage: &mut Stage) {
    stage.work("a", true);
    show_pod(stage, PodPhase::Running, None);
    stage.change("a", reported(json!({"active": 1, "ready": 1})));
    stage.rest(&["a"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Running));
}

async fn fails(stage: &mut Stage) {
    let failed = json!({"failed": 1, "conditions": [{"type": "Failed", "status": "True", "message": "too often"}]});
    stage.change("a", reported(failed));
    stage.rest(&["a"]).await;
}

/// The Work of the evicted job goes.
async fn ends(stage: &mut Stage) {
    stage.change("a", json!({"status": {"aggregatedStatus": null}}));
    stage.work("a", false);
    pod_gone(stage);
    stage.rest_later(&["a"], 20_000).await;
    stage.rest_later(&["a"], 10 * 60_000).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_because_its_node_is_emptied_is_queued_again() {
    let mut stage = running().await;
    let taint = ("DeletionByTaintManager", "deleting due to NoExecute taint");
    show_pod(&mut stage, PodPhase::Evicting, Some(taint));
    pod_gone(&mut stage);
    fails(&mut stage).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::InfrastructureFailed));
    assert_eq!(record.infrastructure_failures, 1);
    assert_eq!(
        record.message,
        "it failed (too often) after a fault of class Node on m1: DeletionByTaintManager (deleting due to NoExecute \
         taint); it is queued again, which costs it no retry of its own (failure 1 of 10 of this kind)"
    );
    ends(&mut stage).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
    let record = stage.record("a").unwrap();
    assert_eq!(record.infrastructure_failures, 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_a_drained_node_ends_has_not_failed() {
    let mut stage = running().await;
    let drained = Some(("EvictionByEvictionAPI", "Eviction API: evicting"));
    show_pod(&mut stage, PodPhase::Evicting, drained);
    pod_gone(&mut stage);
    fails(&mut stage).await;
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::NodeEnding));
    assert_eq!(record.infrastructure_failures, 0);
    stage.change("a", json!({"status": {"aggregatedStatus": null}}));
    stage.work("a", false);
    stage.rest_later(&["a"], 1_000).await;
    assert_eq!(
        stage.shown("a"),
        r#"Admitted 2 open ["m1"]"#,
        "without a back-off"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_by_itself_has_failed() {
    let mut stage = running().await;
    show_pod(&mut stage, PodPhase::Ended, Some(("Error", "bad input")));
    fails(&mut stage).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.state("a"), Some(JobState::Finished));
}

#[tokio::test(start_paused = true)]
async fn the_error_in_a_pod_says_whether_a_device_failed() {
    let mut stage = running().await;
    let xid = ("Error", "NVRM: Xid 79: GPU has fallen off the bus");
    show_pod(&mut stage, PodPhase::Ended, Some(xid));
    fails(&mut stage).await;
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::InfrastructureFailed));
    assert!(record.message.contains("a fault of class Device on m1"));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_with_its_nodes_again_and_again_has_failed() {
    let mut stage = running().await;
    for number in 1..=10 {
        show_pod(&mut stage, PodPhase::Disrupted, Some(("OutOfcpu", "")));
        fails(&mut stage).await;
        let record = stage.record("a").unwrap();
        assert_eq!(record.infrastructure_failures, number);
        ends(&mut stage).await;
        let shown = format!("Admitted {} open [\"m1\"]", number + 1);
        assert_eq!(stage.shown("a"), shown);
        run(&mut stage).await;
    }
    show_pod(&mut stage, PodPhase::Disrupted, Some(("OutOfcpu", "")));
    fails(&mut stage).await;
    assert_eq!(stage.state("a"), Some(JobState::Finished));
}

#[tokio::test(start_paused = true)]
async fn a_failure_long_after_a_lost_pod_is_the_jobs_own() {
    let mut stage = running().await;
    show_pod(
        &mut stage,
        PodPhase::Evicting,
        Some(("EvictionByEvictionAPI", "")),
    );
    show_pod(&mut stage, PodPhase::Running, None);
    stage.change(
        "a",
        reported(json!({"active": 1, "ready": 1, "uncountedTerminatedPods": {}})),
    );
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 60_000).await;
    fails(&mut stage).await;
    assert_eq!(stage.state("a"), Some(JobState::Finished));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_found_at_the_start_is_left_as_it_is() {
    let mut before = running().await;
    show_pod(&mut before, PodPhase::Disrupted, Some(("OutOfcpu", "")));
    let left = before.get("a");
    let mut stage = stage().await;
    show_pod(&mut stage, PodPhase::Disrupted, Some(("OutOfcpu", "")));
    stage.template("a", 1, json!({}));
    stage.work("a", true);
    stage.earlier_binding("a", 1, left);
    fails(&mut stage).await;
    assert_eq!(stage.state("a"), Some(JobState::Finished));
}

impl Stage {
    fn told_failure(&self, name: &str) -> Option<&str> {
        let key = JobKey::new("team", name);
        let reconciler = &self.core.reconciler;
        told_failure(&reconciler.engine, reconciler.in_flight.get(&key)?, &key)
    }

    /// The CapacityPolicy of queue `q` allows these retries.
    fn allow(&mut self, retries: Value) {
        let policy = json!({"metadata": {"name": "q"}, "spec": {"retries": retries}});
        self.take(Input::Policy(Delta::Upserted(read(policy))));
    }
}

/// The container of job `a` ends with this exit code.
fn exits(stage: &mut Stage, code: i32) {
    let mut pod = pod("pod", PodPhase::Ended, Some(("Error", "")));
    if let Some(symptom) = &mut pod.symptom {
        symptom.exit_code = Some(code);
    }
    stage.member_shows(Event::PodUpserted(pod));
}

#[tokio::test(start_paused = true)]
async fn a_queue_says_how_often_a_job_that_fails_by_itself_is_queued_again() {
    let mut stage = running().await;
    stage.allow(json!({"user": 1, "onExitCodes": [75]}));
    exits(&mut stage, 75);
    fails(&mut stage).await;
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::FailureRetried));
    assert_eq!(
        (record.own_failures, record.infrastructure_failures),
        (1, 0)
    );
    assert_eq!(
        record.message,
        "it failed (too often) by itself, a fault of class Unknown on m1: Error, exit code 75; it is queued again: \
         retry 1 of 1 of its queue"
    );
    ends(&mut stage).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
    run(&mut stage).await;
    // A fault of the node costs none of these retries.
    show_pod(&mut stage, PodPhase::Disrupted, Some(("OutOfcpu", "")));
    fails(&mut stage).await;
    let record = stage.record("a").unwrap();
    assert_eq!(
        (record.own_failures, record.infrastructure_failures),
        (1, 1)
    );
    ends(&mut stage).await;
    run(&mut stage).await;
    exits(&mut stage, 75);
    fails(&mut stage).await;
    assert_eq!(stage.shown("a"), r#"Admitted 3 open ["m1"]"#);
    assert_eq!(stage.state("a"), Some(JobState::Finished));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_with_another_exit_code_stays_failed_and_says_why() {
    let mut stage = running().await;
    stage.allow(json!({"user": 9, "onExitCodes": [75, 76]}));
    exits(&mut stage, 1);
    fails(&mut stage).await;
    assert_eq!(stage.state("a"), Some(JobState::Finished));
    let told = stage.told_failure("a").unwrap();
    assert_eq!(
        told,
        "a fault of class Unknown on m1: Error, exit code 1; its queue allows retries of its own failures only after \
         the exit codes 75, 76 (spec.retries.onExitCodes)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_the_template_that_fails_the_job_comes_first() {
    let mut stage = running().await;
    stage.allow(json!({"user": 9}));
    show_pod(&mut stage, PodPhase::Disrupted, Some(("OutOfcpu", "")));
    let reason = "PodFailurePolicy";
    let failed = json!({"failed": 1, "conditions": [{"type": "Failed", "status": "True", "reason": reason}]});
    stage.change("a", reported(failed));
    stage.rest(&["a"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Finished));
    let told = stage.told_failure("a").unwrap();
    assert_eq!(
        told,
        "a fault of class Node on m1: OutOfcpu; its spec.podFailurePolicy (FailJob) says that it is not tried again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_may_let_no_job_be_queued_again() {
    let mut stage = running().await;
    stage.allow(json!({"infrastructure": 0}));
    show_pod(&mut stage, PodPhase::Disrupted, Some(("OutOfcpu", "")));
    fails(&mut stage).await;
    assert_eq!(stage.state("a"), Some(JobState::Finished));
    let told = stage.told_failure("a").unwrap();
    assert!(told.contains("(spec.retries.infrastructure)"), "{told}");
}
