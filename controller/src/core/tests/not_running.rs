//! What keeps admitted jobs from running: nodes that refuse their pods, and schedulers that do not bind them.

use super::*;
use crate::messages::job_answer::JobAnswer;
use crate::messages::unbound_pods::UnboundPods;
use crate::reconcile::placed::not_running::what_keeps;
use engine::facts::PodPhase;
use engine::faults::Symptom;
use engine::{Attempt, Reason};

/// Job `a` is placed, and its Work is there.
async fn placed() -> Stage {
    let mut stage = stage().await;
    stage.job("a", 1);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.rest(&["a"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Placed));
    stage
}

/// Returns what job `a` shows in place of the engine's `reason`.
fn shows(stage: &Stage, reason: Reason) -> (Reason, String) {
    let key = JobKey::new("team", "a");
    let reconciler = &stage.core.reconciler;
    let now = stage.now();
    let asked = reconciler
        .in_flight
        .get(&key)
        .map(|known| &known.unscheduled);
    let (view, lost_pods) = (reconciler.view(), &reconciler.jobs.lost_pods);
    what_keeps(view, lost_pods, asked, &key, (reason, String::new()), now)
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_no_scheduler_binds_says_so_after_a_minute() {
    let mut stage = placed().await;
    stage.rest_later(&["a"], 50_000).await;
    assert_eq!(shows(&stage, Reason::Placed).0, Reason::Placed);
    stage.rest_later(&["a"], 11_000).await;
    let (reason, message) = shows(&stage, Reason::Placed);
    assert_eq!(reason, Reason::PodsNotScheduled);
    assert!(
        message.contains("0 of the 1 pods it needs on m1 have a node"),
        "{message}"
    );
    let said = |message: &str| {
        UnboundPods::Said(Symptom {
            reason: "Unschedulable".to_owned(),
            message: message.to_owned(),
            exit_code: None,
        })
    };
    let why = "pod a-0: 0/1 nodes are available: persistentvolumeclaim \"data\" not found.";
    let waits = UnboundPods::Waits(Symptom {
        reason: "PodGroup Pending".to_owned(),
        message: "a-7: its queue q is Closed".to_owned(),
        exit_code: None,
    });
    let not_made = UnboundPods::NotMade(Symptom {
        reason: "FailedCreate".to_owned(),
        message: "RuntimeClass \"gvisor\" not found".to_owned(),
        exit_code: None,
    });
    for (attempt, pods, want) in [
        (
            1,
            UnboundPods::Silent("scheduler nope of pod p has said nothing of it".to_owned()),
            "for more than a minute: scheduler nope of pod p has said nothing of it",
        ),
        (
            1,
            not_made,
            "they cannot be made: FailedCreate (RuntimeClass \"gvisor\" not found)",
        ),
        (
            1,
            UnboundPods::Absent,
            "no others are there, and the events",
        ),
        (
            1,
            waits,
            "has not let them in: PodGroup Pending (a-7: its queue q is Closed)",
        ),
        (
            1,
            said(why),
            "than a minute: Unschedulable (pod a-0: 0/1 nodes are",
        ),
        // An answer about another attempt.
        (2, said(why), "and their events there say why"),
    ] {
        let answer = JobAnswer::SchedulerSaid {
            attempt: Attempt(attempt),
            cluster: ClusterName::new("m1"),
            pods,
        };
        stage.take(Input::Answer(JobKey::new("team", "a"), answer));
        stage.rest(&["a"]).await;
        let (reason, message) = shows(&stage, Reason::Placed);
        assert_eq!(reason, Reason::PodsNotScheduled);
        assert!(message.contains(want), "{message}");
    }
    stage.member_shows(Event::PodUpserted(objects::pod(
        "pod",
        PodPhase::Starting,
        None,
    )));
    stage.rest_later(&["a"], 11_000).await;
    assert_eq!(shows(&stage, Reason::Placed).0, Reason::Placed);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_its_node_refuses_says_so() {
    let mut stage = placed().await;
    let waiting = ("ImagePullBackOff", "no such host");
    let pod = |phase, said| Event::PodUpserted(objects::pod("pod", phase, Some(said)));
    stage.member_shows(pod(PodPhase::Starting, waiting));
    let started = shows(&stage, Reason::PodsNotStarting);
    assert_eq!(started.0, Reason::PodsNotStarting);
    stage.member_shows(pod(PodPhase::Disrupted, ("UnexpectedAdmissionError", "")));
    let refused = shows(&stage, Reason::PodsNotStarting);
    assert_eq!(refused.0, Reason::PodsRefused);
}

/// A policy suspends what Muster has placed, or what it might place.
#[tokio::test(start_paused = true)]
async fn a_job_whose_policy_suspends_its_dispatch_says_so() {
    let suspended = |field: &str, value: Value| json!({"spec": {"suspension": {field: value}}});
    let mut stage = placed().await;
    stage.change("a", suspended("dispatching", json!(true)));
    stage.rest_later(&["a"], 61_000).await;
    let (reason, message) = shows(&stage, Reason::Placed);
    assert_eq!(reason, Reason::PodsNotScheduled);
    assert!(
        message.ends_with("its propagation policy suspends that (spec.suspension.dispatching)"),
        "{message}"
    );
    let mut stage = stage_of(true).await;
    stage.template("a", 1, json!({}));
    let on = json!({"clusterNames": ["m1"]});
    let mut change = suspended("dispatchingOnClusters", on);
    change["spec"]["suspension"]["scheduling"] = json!(true);
    stage.binding("a", 1, change);
    stage.rest(&["a"]).await;
    let explained = stage
        .core
        .reconciler
        .engine
        .explain(&JobKey::new("team", "a"));
    let explained = explained.unwrap();
    assert_eq!(explained.reason, Reason::NoEligibleCluster);
    assert!(
        explained
            .message
            .contains("m1: its propagation policy suspends the dispatch there"),
        "{}",
        explained.message
    );
}
