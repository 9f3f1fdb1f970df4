//! Clusters that are paused because jobs fail there, nodes that are tainted, and their events.

use super::*;
use crds::node_health::{ClearedNodes, NodeCondition, NodeHealth};
use engine::facts::PodPhase;
use engine::faults::Symptom;
use members::ClusterMarks;

fn policy(spec: Value) -> Input {
    let policy = json!({"metadata": {"name": "p", "uid": "p-uid"}, "spec": spec});
    Input::FaultPolicy(Delta::Upserted(read(policy)))
}

fn marks(cleared: ClearedNodes) -> Input {
    let marks = ClusterMarks {
        uid: "m1-uid".to_owned(),
        cleared,
    };
    let cluster = ClusterName::new("m1");
    Input::Member(MemberEvent::Marks { cluster, marks })
}

/// The pod of `job` on `node` cannot be given its device.
fn fails(stage: &mut Stage, job: &str, node: &str) {
    let said = Some(("CreateContainerError", "libcuda.so: not found"));
    let mut pod = pod(job, PodPhase::Starting, said);
    pod.job = Some(JobKey::new("team", job));
    pod.node = Some(NodeName::new(node));
    stage.member_shows(Event::PodUpserted(pod));
}

/// The notes of the events on the Cluster.
fn notes(stage: &Stage) -> Vec<String> {
    let posted = stage.api.requests_of("POST").into_iter();
    let of_cluster = posted.filter(|request| request.body["regarding"]["kind"] == "Cluster");
    let notes = of_cluster.map(|request| {
        assert_eq!(request.body["regarding"]["uid"], "m1-uid");
        assert!(
            request.path.contains("/namespaces/default/"),
            "{}",
            request.path
        );
        let (reason, note) = (&request.body["reason"], &request.body["note"]);
        format!("{} {}", reason.as_str().unwrap(), note.as_str().unwrap())
    });
    notes.collect()
}

/// Lets the task that posts events work.
async fn posted() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_in_which_jobs_fail_takes_no_new_ones_until_one_that_is_tried_runs() {
    let mut stage = stage().await;
    stage.take(marks(ClearedNodes::default()));
    let breaker = json!({"jobs": 2, "namespaces": 1, "pauseSeconds": 120});
    stage.take(policy(json!({ "clusterBreaker": breaker })));
    for (job, node) in [("a", "n1"), ("b", "n2")] {
        stage.job(job, 1);
        stage.rest(&[job]).await;
        assert_eq!(stage.shown(job), r#"Admitted 1 open ["m1"]"#);
        fails(&mut stage, job, node);
    }
    stage.settle().await;
    stage.job("c", 1);
    stage.rest(&["c"]).await;
    assert_eq!(stage.shown("c"), "no record, gated []");
    posted().await;
    let notes_now = notes(&stage);
    assert_eq!(notes_now.len(), 1, "{notes_now:?}");
    assert!(
        notes_now[0].starts_with("ClusterPaused it takes no new jobs until")
            && notes_now[0].contains(
                "2 jobs of 1 namespace failed there on 2 nodes within 600 s (class Device)"
            ),
        "{notes_now:?}"
    );
    // One is tried.
    stage.rest_later(&["c"], 130_000).await;
    assert_eq!(stage.shown("c"), r#"Admitted 1 open ["m1"]"#);
    stage.job("d", 1);
    stage.rest(&["d"]).await;
    assert_eq!(stage.shown("d"), "no record, gated []");
    // It runs.
    stage.work("c", true);
    let mut pod = pod("c", PodPhase::Running, None);
    pod.job = Some(JobKey::new("team", "c"));
    stage.member_shows(Event::PodUpserted(pod));
    stage.change("c", reported(json!({"active": 1, "ready": 1})));
    stage.rest_later(&["c"], 6_000).await;
    assert_eq!(stage.state("c"), Some(JobState::Running));
    stage.rest_later(&["d"], 40_000).await;
    assert_eq!(stage.shown("d"), r#"Admitted 1 open ["m1"]"#);
    posted().await;
    assert!(
        notes(&stage)
            .iter()
            .any(|note| note.starts_with("ClusterResumed"))
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_fact_of_the_cluster_changes_does_not_end_its_pause() {
    let mut stage = stage().await;
    stage.take(policy(
        json!({"clusterBreaker": {"jobs": 2, "namespaces": 1}}),
    ));
    for (job, node) in [("a", "n1"), ("b", "n2")] {
        stage.job(job, 1);
        stage.rest(&[job]).await;
        fails(&mut stage, job, node);
    }
    stage.settle().await;
    for fact in member_facts() {
        stage.member_shows(fact);
    }
    stage.job("c", 1);
    stage.rest(&["c"]).await;
    assert_eq!(stage.shown("c"), "no record, gated []");
    // A person ends it.
    let mut cleared = ClearedNodes::default();
    let at = jiff::Timestamp::from_millisecond(stage.now().0).unwrap();
    cleared.clear("*", at);
    stage.take(marks(cleared));
    stage.rest(&["c"]).await;
    assert_eq!(stage.shown("c"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_was_written_has_an_event_on_the_cluster() {
    let mut stage = stage().await;
    let path = "/api/v1/nodes/n1";
    stage.api.put(path, json!({"metadata": {"name": "n1"}}));
    stage.core.effects.members = Members::reached_by(&[("m1", stage.api.client())]);
    stage.take(marks(ClearedNodes::default()));
    let rule = json!({"name": "memory", "class": "Device", "match": {"node": {"conditions": ["GpuMemWatch"]}}});
    stage.take(policy(json!({ "rules": [rule] })));
    let health = NodeHealth {
        conditions: vec![NodeCondition {
            symptom: Symptom {
                reason: "GpuMemWatch".to_owned(),
                message: "row remap failed".to_owned(),
                exit_code: None,
            },
            since: None,
        }],
        ..NodeHealth::default()
    };
    let (cluster, node) = (ClusterName::new("m1"), NodeName::new("n1"));
    stage.take(Input::Member(MemberEvent::NodeHealth {
        cluster,
        node,
        health,
    }));
    // Another replica leads: nothing is written.
    let (leads, over) = (
        stage.core.effects.taints.leadership.clone(),
        CancellationToken::new(),
    );
    stage.core.effects.taints.leadership = leads.term(over);
    stage.settle().await;
    assert_eq!(stage.api.get(path).unwrap()["spec"]["taints"], Value::Null);
    stage.core.effects.taints.leadership = leads;
    stage.rest_later(&[], 31_000).await;
    let taints = stage.api.get(path).unwrap()["spec"]["taints"].clone();
    assert_eq!(taints[0]["key"], names::AVOID_TAINT, "{taints}");
    posted().await;
    assert_eq!(
        notes(&stage),
        [
            "NodeAvoided node n1 is avoided while it lasts for a fault of class Device, by rule memory of FaultPolicy p: \
          its condition GpuMemWatch (row remap failed) is True"
        ]
    );
}

/// The node of `m1` ends in so many minutes.
fn ends_in(stage: &mut Stage, minutes: i64) {
    let at = stage.now().after(minutes * 60_000);
    let health = NodeHealth {
        ends_at: jiff::Timestamp::from_millisecond(at.0).ok(),
        ..NodeHealth::default()
    };
    let (cluster, node) = (ClusterName::new("m1"), NodeName::new("n1"));
    stage.take(Input::Member(MemberEvent::NodeHealth {
        cluster,
        node,
        health,
    }));
}

/// A job of one pod that declares how long it runs.
fn declares(stage: &mut Stage, job: &str, lasts: &str) {
    let annotations = json!({ "muster.io/expected-duration": lasts });
    stage.template(job, 1, json!({"metadata": {"annotations": annotations}}));
    stage.binding(job, 1, json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_ends_takes_only_jobs_that_end_before() {
    let mut stage = stage().await;
    stage.job("early", 1);
    stage.rest(&["early"]).await;
    ends_in(&mut stage, 60);
    stage.settle().await;
    stage.job("unknown", 1);
    declares(&mut stage, "long", "2h");
    declares(&mut stage, "short", "10m");
    stage.rest(&["unknown", "long", "short"]).await;
    assert_eq!(stage.shown("early"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.shown("unknown"), "no record, gated []");
    assert_eq!(stage.shown("long"), "no record, gated []");
    assert_eq!(stage.shown("short"), r#"Admitted 1 open ["m1"]"#);
    // It does not end after all.
    let (cluster, node) = (ClusterName::new("m1"), NodeName::new("n1"));
    stage.take(Input::Member(MemberEvent::NodeHealth {
        cluster,
        node,
        health: NodeHealth::default(),
    }));
    stage.rest(&["unknown", "long"]).await;
    assert_eq!(stage.shown("unknown"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.shown("long"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn jobs_leave_a_node_before_it_ends() {
    let mut stage = stage().await;
    stage.job("a", 1);
    declares(&mut stage, "b", "8m");
    stage.rest(&["a", "b"]).await;
    for job in ["a", "b"] {
        stage.work(job, true);
        let mut pod = pod(job, PodPhase::Running, None);
        pod.job = Some(JobKey::new("team", job));
        stage.member_shows(Event::PodUpserted(pod));
        stage.change(job, reported(json!({"active": 1, "ready": 1})));
    }
    stage.rest(&["a", "b"]).await;
    ends_in(&mut stage, 10);
    stage.rest_later(&["a", "b"], 4 * 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    stage.rest_later(&["a", "b"], 62_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::NodeEnding));
    assert!(
        record.message.starts_with("node n1 of m1 ends at"),
        "{}",
        record.message
    );
    // It declares to end before.
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
    // It does not.
    stage.rest_later(&["b"], 190_000).await;
    assert_eq!(stage.shown("b"), "Ending 1 gated []");
}

#[tokio::test(start_paused = true)]
async fn a_running_job_without_a_heartbeat_is_queued_again() {
    let mut stage = stage().await;
    let says = |at: Option<Time>, timeout: &str| {
        let long_ago = Time(0);
        let at = crds::record::timestamp(at.unwrap_or(long_ago)).to_string();
        json!({"metadata": {"annotations": {
            "muster.io/heartbeat": at, "muster.io/heartbeat-timeout": timeout,
        }}})
    };
    stage.template("a", 1, says(None, "10m"));
    stage.binding("a", 1, json!({}));
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.member_shows(Event::PodUpserted(pod("a", PodPhase::Running, None)));
    // The time in which its pods start does not count.
    stage.rest_later(&["a"], 5 * 60_000).await;
    stage.change("a", reported(json!({"active": 1, "ready": 1})));
    stage.rest_later(&["a"], 9 * 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    let now = stage.now();
    stage.template("a", 1, says(Some(now), "10m"));
    stage.rest_later(&["a"], 9 * 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    stage.rest_later(&["a"], 2 * 60_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::NoProgress));
    assert!(
        record.message.contains("needs one every 600 s"),
        "{}",
        record.message
    );
}
