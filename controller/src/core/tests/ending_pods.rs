//! Pods of evicted jobs that end after their Works are gone.

use super::*;
use engine::facts::PodPhase;

fn other_pod_runs(stage: &mut Stage, grace_s: u32) {
    let pod = pod("other", PodPhase::Running, None);
    stage.member_shows(Event::PodUpserted(engine::facts::PodFact {
        grace_s,
        ..pod
    }));
}

fn other_pod_goes(stage: &mut Stage) {
    pod_goes(stage, "other");
}

fn pod_goes(stage: &mut Stage, uid: &str) {
    let gone = Event::PodGone(ClusterName::new("m1"), engine::Uid::new(uid));
    stage.member_shows(gone);
}

/// Job `a` of three pods is placed, and a pod of it runs.
async fn placed_with_another_pod() -> Stage {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    other_pod_runs(&mut stage, 30);
    stage
}

/// Job `a` was evicted and its Work is gone. A pod of it still ends, as in its grace period.
async fn evicted(grace_s: u32) -> Stage {
    let mut stage = stage().await;
    stage.job("a", 1);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    other_pod_runs(&mut stage, grace_s);
    stage.change("a", reported(json!({"active": 1, "ready": 1})));
    stage.rest(&["a"]).await;
    let refused = Some(("OutOfcpu", ""));
    stage.member_shows(Event::PodUpserted(pod("pod", PodPhase::Disrupted, refused)));
    let failed = json!({"failed": 1, "conditions": [{"type": "Failed", "status": "True"}]});
    stage.change("a", reported(failed));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.change("a", json!({"status": {"aggregatedStatus": null}}));
    stage.work("a", false);
    pod_goes(&mut stage, "pod");
    stage
}

#[tokio::test(start_paused = true)]
async fn an_evicted_job_is_charged_until_its_pods_have_ended() {
    let mut stage = evicted(30).await;
    stage.rest_later(&["a"], 40_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    assert_eq!(stage.charged(), "1");
    other_pod_goes(&mut stage);
    stage.rest_later(&["a"], 1_000).await;
    assert!(
        stage.shown("a").starts_with("Requeued 1"),
        "{}",
        stage.shown("a")
    );
    assert_eq!(stage.charged(), "0");
}

/// Job `a` was evicted, its Work is gone, and its pod has ended. The object of the pod is left: its kubelet removes it
/// a little later.
async fn evicted_with_an_ended_pod() -> Stage {
    let mut stage = evicted(30).await;
    let killed = Some(("Error", ""));
    stage.member_shows(Event::PodUpserted(pod("other", PodPhase::Ended, killed)));
    stage.rest_later(&["a"], 10_000).await;
    stage
}

/// Operators name pods by their job: one that finds a pod of that name may lose its job.
#[tokio::test(start_paused = true)]
async fn no_attempt_begins_before_the_pods_of_the_earlier_one_are_gone() {
    let mut stage = evicted_with_an_ended_pod().await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    let explained = stage
        .core
        .reconciler
        .engine
        .explain(&JobKey::new("team", "a"));
    let message = explained.unwrap().message;
    assert!(
        message.ends_with("its former pods in cluster m1 still end (1 is left)"),
        "{message}"
    );
    other_pod_goes(&mut stage);
    stage.rest_later(&["a"], 1_000).await;
    assert!(
        stage.shown("a").starts_with("Requeued 1"),
        "{}",
        stage.shown("a")
    );
}

#[tokio::test(start_paused = true)]
async fn an_ended_pod_that_is_not_removed_keeps_its_job_for_half_a_minute() {
    let mut stage = evicted_with_an_ended_pod().await;
    stage.rest_later(&["a"], 15_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.rest_later(&["a"], 20_000).await;
    assert_ne!(stage.shown("a"), "Ending 1 gated []");
}

/// Nothing says whether they are left, and no kubelet ends them.
#[tokio::test(start_paused = true)]
async fn pods_on_a_lost_node_keep_no_job() {
    let mut stage = evicted(30).await;
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    let [_, node] = member_facts();
    let Event::NodeUpserted(node) = node else {
        panic!("the second is the node");
    };
    stage.member_shows(Event::NodeUpserted(NodeFact { lost: true, ..node }));
    stage.rest_later(&["a"], 1_000).await;
    assert_ne!(stage.shown("a"), "Ending 1 gated []");
}

/// A cluster out of service answers again: Karmada has removed the Work, and the pods still end.
#[tokio::test(start_paused = true)]
async fn a_job_that_waits_goes_to_no_cluster_where_its_former_pods_still_end() {
    let mut stage = placed_with_another_pod().await;
    stage.member(Some(names::OUT_OF_SERVICE_ANNOTATION), "it does not answer");
    stage.rest(&["a"]).await;
    stage.work("a", false);
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    stage.member(None, "");
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    let explained = stage
        .core
        .reconciler
        .engine
        .explain(&JobKey::new("team", "a"));
    let message = explained.unwrap().message;
    assert!(
        message.contains("its former pods in cluster m1 still end"),
        "{message}"
    );
    other_pod_goes(&mut stage);
    stage.rest_later(&["a"], 300_000).await;
    let shown = stage.shown("a");
    assert!(shown.starts_with("Admitted"), "{shown}");
}

/// Its record is written while others are decided on.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_queued_again_without_a_back_off_keeps_its_place() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.job("b", 3);
    stage.rest(&["a", "b"]).await;
    stage.member(Some("maintenance"), "");
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.member(None, "");
    stage.work("a", false);
    stage.rest_later(&["a", "b"], 1_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
    assert_eq!(stage.shown("b"), "no record, gated []");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_ended_keeps_its_job_for_two_minutes() {
    let mut stage = evicted(30).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.rest_later(&["a"], 120_000).await;
    assert_ne!(stage.shown("a"), "Ending 1 gated []");
}

/// Its preemptor would find the nodes in use, and evict another job.
#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_have_a_long_grace_period_is_charged_for_as_long() {
    let mut stage = evicted(600).await;
    stage.rest_later(&["a"], 10_000).await;
    stage.rest_later(&["a"], 640_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    assert_eq!(stage.charged(), "1");
    stage.rest_later(&["a"], 60_000).await;
    assert_ne!(stage.shown("a"), "Ending 1 gated []");
}

#[tokio::test(start_paused = true)]
async fn no_grace_period_keeps_a_charge_for_longer_than_an_operator_allows() {
    let mut stage = evicted(u32::MAX).await;
    stage.rest_later(&["a"], 10_000).await;
    stage.rest_later(&["a"], 3_500_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.rest_later(&["a"], 200_000).await;
    assert_ne!(stage.shown("a"), "Ending 1 gated []");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_job_is_charged_until_its_pods_have_ended() {
    let mut stage = placed_with_another_pod().await;
    stage.change("a", deletion::deleted());
    stage.job("b", 3);
    stage.work("a", false);
    stage.rest_later(&["a", "b"], 40_000).await;
    assert_eq!(stage.charged(), "3", "its pod has not ended");
    assert_eq!(stage.shown("b"), "no record, gated []");
    other_pod_goes(&mut stage);
    stage.rest_later(&["a", "b"], 1_000).await;
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.api.get(&path("a")), None);
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_ended_stays_charged_without_its_binding() {
    let mut stage = placed_with_another_pod().await;
    stage.change("a", deletion::deleted());
    stage.work("a", false);
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 200_000).await;
    assert_eq!(stage.api.get(&path("a")), None, "its name is free again");
    stage.settle().await;
    assert_eq!(stage.charged(), "1", "its pod runs");
}

/// Job `a` is deleted and its Work is gone, while nothing is known of the pods in its member.
async fn deleted_unseen() -> Stage {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.member(None, "its nodes and pods are not listed yet");
    stage.change("a", deletion::deleted());
    stage.work("a", false);
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.charged(), "3", "pods of it may run");
    stage
}

/// Karmada may see a member that was away before its pods are listed here.
#[tokio::test(start_paused = true)]
async fn a_deleted_job_is_charged_until_its_member_is_seen_again() {
    let mut stage = deleted_unseen().await;
    other_pod_runs(&mut stage, 30);
    stage.member(None, "");
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.charged(), "3", "its pod has not ended");
    other_pod_goes(&mut stage);
    stage.rest_later(&["a"], 1_000).await;
    stage.rest(&["a"]).await;
    assert_eq!(stage.api.get(&path("a")), None);
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_not_seen_keeps_a_deleted_job_for_two_minutes() {
    let mut stage = deleted_unseen().await;
    stage.rest_later(&["a"], 120_000).await;
    stage.rest(&["a"]).await;
    assert_eq!(stage.api.get(&path("a")), None);
}

#[tokio::test(start_paused = true)]
async fn pods_that_outlive_a_finished_job_are_charged() {
    let mut stage = placed_with_another_pod().await;
    let complete = json!({"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]});
    stage.change("a", reported(complete));
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "1");
    other_pod_goes(&mut stage);
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn pods_of_no_job_are_charged_to_the_default_queue_of_their_namespace() {
    let mut stage = stage().await;
    let own = engine::facts::PodFact {
        job: Some(JobKey::of_namespace("team")),
        ..pod("own", PodPhase::Running, None)
    };
    stage.member_shows(Event::PodUpserted(own));
    stage.settle().await;
    assert_eq!(stage.charged(), "0", "queue default is charged");
    let namespace = json!({"metadata": {"name": "team", "labels": {
        names::MANAGED_LABEL: "true", names::DEFAULT_QUEUE_KEY: "q",
    }}});
    stage.take(Input::Namespace(Delta::Upserted(read(namespace))));
    stage.settle().await;
    assert_eq!(stage.charged(), "1");
    stage.namespace(false);
    stage.settle().await;
    assert_eq!(stage.charged(), "0", "it is not managed any more");
    stage.take(Input::Namespace(Delta::Upserted(read(
        json!({"metadata": {"name": "team", "labels": {
            names::MANAGED_LABEL: "true", names::DEFAULT_QUEUE_KEY: "q",
        }}}),
    ))));
    stage.job("a", 4);
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "no record, gated []", "1 of 4 is used");
}
