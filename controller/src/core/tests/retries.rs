//! Volcano Jobs over two clusters whose policies restart, abort or complete the whole gang.

use super::*;
use engine::facts::{PodFact, PodPhase};

fn volcano_kind() -> TemplateKind {
    TemplateKind {
        api_version: "batch.volcano.sh/v1alpha1".into(),
        kind: "Job".into(),
    }
}

/// A record of the gang in `state`, with `change` merged into it.
fn record_of(state: RecordState, change: Value) -> Value {
    let share = |name: &str, master: u32, workers: u32| {
        let all = (master + workers).to_string();
        json!({
            "name": name,
            "pods": [{"role": "master", "count": master}, {"role": "worker", "count": workers}],
            "charge": {"cpu": {"cpu": all, "pods": all}},
        })
    };
    let mut record = json!({
        "templateUID": "a-uid", "attempt": 1, "state": state, "queue": "q",
        "clusters": [share("m1", 1, 7), share("m2", 0, 4)], "parts": "Dispatched",
        "maxRetry": 3, "restartPhase": "Terminated",
        "time": jiff::Timestamp::now().to_string(),
    });
    merge(&mut record, change);
    json!({ names::ADMISSION_ANNOTATION: record.to_string() })
}

impl Stage {
    /// Creates the template: a gang of twelve pods with one CPU each, for which one cluster is too small.
    fn volcano(&mut self, annotations: Value) {
        let task = |name: &str, replicas: u32| {
            json!({
                "name": name, "replicas": replicas, "template": {"spec": {"containers": [
                    {"name": "main", "resources": {"requests": {"cpu": "1"}}},
                ]}},
            })
        };
        let mut template = json!({
            "metadata": {
                "name": "a", "namespace": "team", "uid": "a-uid",
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"muster.io/queue": "q"},
                "annotations": {"muster.io/split": "Allowed"},
            },
            "spec": {
                "maxRetry": 3, "policies": [{"event": "PodFailed", "action": "RestartJob"}],
                "tasks": [task("master", 1), task("worker", 11)],
            },
        });
        merge(
            &mut template,
            json!({"metadata": {"annotations": annotations}}),
        );
        let template = Template::read(&volcano_kind(), read(template));
        self.take(Input::Template(volcano_kind(), Delta::Upserted(template)));
    }

    /// The members' status of both parts; Karmada reports it.
    fn report(&mut self, first: Value, second: Value) {
        let parts = json!([
            {"clusterName": "m1", "status": first}, {"clusterName": "m2", "status": second},
        ]);
        self.change("a", json!({"status": {"aggregatedStatus": parts}}));
    }

    /// Karmada has removed both parts.
    async fn emptied(&mut self) {
        self.change("a", forgotten());
        self.rest_later(&["a"], 10_000).await;
    }

    fn cause(&self) -> (engine::Reason, String) {
        let key = JobKey::new("team", "a");
        let explained = self.core.reconciler.engine.explain(&key).unwrap();
        (explained.reason, explained.message)
    }
}

/// A controller that has just started, with a gang in the state of its record. The scheduler runs
/// in a process of its own, so a new attempt is first planned.
async fn started(state: RecordState, change: Value) -> Stage {
    let mut stage = Stage::bare(&FakeApi::new(), false).await;
    stage.volcano(json!({}));
    let resource = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"});
    let mut binding = json!({
        "metadata": {"annotations": record_of(state, change)},
        "spec": {"resource": resource},
    });
    if state == RecordState::Admitted {
        let clusters = json!([{"name": "m1"}, {"name": "m2"}]);
        let placed = json!({"suspension": {"scheduling": false}, "clusters": clusters});
        merge(&mut binding, json!({ "spec": placed }));
    }
    stage.binding("a", 12, binding);
    stage.list_all();
    stage.queue("16");
    for name in ["m1", "m2"] {
        for fact in member_facts() {
            let fact = match fact {
                Event::ClusterUpserted(mut cluster) => {
                    cluster.name = ClusterName::new(name);
                    cluster.apis = Some(["batch.volcano.sh/v1alpha1/Job".to_owned()].into());
                    Event::ClusterUpserted(cluster)
                }
                Event::NodeUpserted(mut node) => {
                    node.cluster = ClusterName::new(name);
                    Event::NodeUpserted(node)
                }
                other => other,
            };
            stage.member_shows(fact);
        }
    }
    stage.rest(&["a"]).await;
    stage
}

fn phase(phase: &str) -> Value {
    json!({"state": {"phase": phase}, "running": 4})
}

#[tokio::test(start_paused = true)]
async fn a_part_that_restarts_the_job_restarts_the_gang_and_it_is_counted() {
    let mut stage = started(RecordState::Admitted, json!({})).await;
    stage.report(phase("Running"), phase("Terminating"));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1", "m2"]"#);
    stage.rest_later(&["a"], 3_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::GangRestarted));
    assert_eq!(
        record.message,
        "the part on m2 asked for a restart of the job (RestartJob): retry 1 of 3"
    );
    stage.emptied().await;
    stage.rest_later(&["a"], 2_000).await;
    assert_eq!(stage.shown("a"), "Planned 2 gated []");
    let record = stage.record("a").unwrap();
    assert_eq!(record.retries, 1);
    let policies = record.policies().unwrap();
    assert_eq!(policies.restart_phase.as_deref(), Some("Terminated"));
    assert_eq!(policies.max_retry, 3);
    assert_eq!(policies.failed_action, Some(workload::GangAction::Restart));
}

/// The pods of a part fail because those of another are gone: all parts stop before Muster acts.
#[tokio::test(start_paused = true)]
async fn a_gang_of_which_all_parts_have_stopped_restarts() {
    let mut stage = started(RecordState::Admitted, json!({"retries": 1})).await;
    stage.report(phase("Terminated"), phase("Terminated"));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 3_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    assert_eq!(stage.record("a").unwrap().retries, 2);
    assert_eq!(stage.charged(), "12");
}

/// All pods of a part fail together, and its Volcano loses the policy that restarts the job.
#[tokio::test(start_paused = true)]
async fn a_part_whose_every_failure_restarts_the_job_restarts_the_gang() {
    let change = json!({"failedAction": "Restart"});
    let mut stage = started(RecordState::Admitted, change).await;
    stage.report(phase("Running"), phase("Failed"));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 3_000).await;
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::GangRestarted));
    assert_eq!(record.retries, 1);
}

/// A part fails because a device did, and no policy of the template asks for anything.
#[tokio::test(start_paused = true)]
async fn a_gang_of_which_a_part_fails_through_no_fault_of_its_own_is_queued_again() {
    let mut stage = started(RecordState::Admitted, json!({})).await;
    let xid = ("Error", "NVRM: Xid 79: GPU has fallen off the bus");
    let pod = objects::pod("pod", PodPhase::Ended, Some(xid));
    stage.member_shows(Event::PodUpserted(pod));
    stage.report(phase("Failed"), phase("Running"));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 3_000).await;
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::InfrastructureFailed));
    assert_eq!((record.infrastructure_failures, record.retries), (1, 0));
}

/// All pods of a task in two clusters have to succeed.
#[tokio::test(start_paused = true)]
async fn a_gang_is_completed_by_a_task_when_its_pods_have_succeeded_in_all_clusters() {
    let change = json!({"restartPhase": null, "completingTasks": ["worker"]});
    let mut stage = started(RecordState::Admitted, change).await;
    let done = |succeeded: u32, running: u32| {
        let phases = json!({"Succeeded": succeeded, "Running": running});
        let counts = json!({"worker": {"phase": phases}, "master": {"phase": {"Running": 1}}});
        json!({"state": {"phase": "Running"}, "running": running + 1, "taskStatusCount": counts})
    };
    stage.report(done(3, 4), done(4, 0));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 30_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1", "m2"]"#);
    stage.report(done(7, 0), done(4, 0));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 10_000).await;
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::Succeeded));
    assert!(
        record
            .message
            .contains("all pods of task worker have succeeded"),
        "{}",
        record.message
    );
}

#[tokio::test(start_paused = true)]
async fn a_gang_fails_at_its_last_retry() {
    let mut stage = started(RecordState::Admitted, json!({"retries": 2})).await;
    stage.report(phase("Running"), phase("Terminated"));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 3_000).await;
    stage.emptied().await;
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    let (reason, message) = stage.cause();
    assert_eq!(reason, engine::Reason::Failed);
    assert!(
        message.contains("its maxRetry of 3 is reached"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn restarts_of_tasks_and_pods_count_over_all_parts_and_attempts() {
    let restarted =
        |times: u32| json!({"state": {"phase": "Running"}, "running": 4, "retryCount": times});
    let mut stage = started(RecordState::Admitted, json!({"maxRetry": 5, "retries": 1})).await;
    stage.report(restarted(1), restarted(2));
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1", "m2"]"#);
    // It is evicted for another reason meanwhile.
    stage.change("a", json!({"spec": {"clusters": [{"name": "m1"}]}}));
    stage.rest(&["a"]).await;
    assert_eq!(
        stage.record("a").unwrap().reason,
        Some(engine::Reason::RoomLost)
    );
    assert_eq!(stage.record("a").unwrap().retries, 4);

    let mut stage = started(RecordState::Admitted, json!({"retries": 1})).await;
    stage.report(restarted(1), restarted(1));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 3_000).await;
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::PartFailed));
    assert!(
        record.message.contains("restarted 3 times"),
        "{}",
        record.message
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_for_another_reason_is_no_retry() {
    let mut stage = started(RecordState::Admitted, json!({"retries": 2})).await;
    stage.change("a", json!({"spec": {"clusters": [{"name": "m1"}]}}));
    stage.rest(&["a"]).await;
    assert_eq!(
        stage.record("a").unwrap().reason,
        Some(engine::Reason::RoomLost)
    );
    stage.emptied().await;
    stage.rest_later(&["a"], 2_000).await;
    assert_eq!(stage.shown("a"), "Planned 2 gated []");
    assert_eq!(stage.record("a").unwrap().retries, 2);
}

/// Its node is gone, and the member's Volcano restarts the job because of that.
#[tokio::test(start_paused = true)]
async fn a_restart_because_of_a_lost_node_is_no_retry() {
    let mut stage = started(RecordState::Admitted, json!({"retries": 2})).await;
    let pod = PodFact {
        cluster: ClusterName::new("m2"),
        ..pod("pod", PodPhase::Running, None)
    };
    let gone = Event::NodeGone(ClusterName::new("m2"), NodeName::new("n1"));
    for fact in [Event::PodUpserted(pod), gone] {
        stage.member_shows(fact);
    }
    stage.report(phase("Running"), phase("Terminating"));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 3_000).await;
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::PodsLost));
    assert_eq!(record.retries, 2);
}

#[tokio::test(start_paused = true)]
async fn the_count_survives_a_restart_of_the_controller_by_the_record_alone() {
    let change = json!({"retries": 2, "attempt": 4, "reason": "GangRestarted"});
    let mut stage = started(RecordState::Requeued, change).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), "Planned 5 gated []");
    let record = stage.record("a").unwrap();
    assert_eq!((record.retries, record.max_retry), (2, Some(3)));
}

#[tokio::test(start_paused = true)]
async fn an_aborted_gang_waits_until_a_user_resumes_it() {
    let mut stage = started(RecordState::Admitted, json!({"retries": 1})).await;
    stage.report(phase("Aborted"), phase("Running"));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 3_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.emptied().await;
    stage.volcano(json!({ names::RESUME_ANNOTATION: "7" }));
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    let (reason, message) = stage.cause();
    assert_eq!(reason, engine::Reason::Aborted);
    assert!(message.contains("muster.io/resume-attempt=1"), "{message}");
    stage.volcano(json!({ names::RESUME_ANNOTATION: "1" }));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Planned 2 gated []");
    assert_eq!(stage.record("a").unwrap().retries, 1);
}

#[tokio::test(start_paused = true)]
async fn what_stops_a_gang_for_good_comes_before_a_restart() {
    // Here TerminateJob is in use, and a part is aborted to restart the gang.
    let change = json!({"restartPhase": "Aborted"});
    let mut stage = started(RecordState::Admitted, change).await;
    stage.report(phase("Aborting"), phase("Terminating"));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 3_000).await;
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::PartFailed));
    assert_eq!(record.retries, 0);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_a_policy_completes_completes_the_gang() {
    let mut stage = started(RecordState::Admitted, json!({})).await;
    stage.report(phase("Running"), phase("Completing"));
    stage.rest_later(&["a"], 9_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1", "m2"]"#);
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(
        stage.record("a").unwrap().reason,
        Some(engine::Reason::Succeeded)
    );
    stage.emptied().await;
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.cause().0, engine::Reason::Succeeded);
}
