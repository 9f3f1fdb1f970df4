//! Jobs that avoid the nodes where their own pods failed.

use super::*;
use binding_writer::overrides;
use crds::node_health::ClearedNodes;
use engine::facts::PodPhase;
use members::ClusterMarks;

const TEMPLATE: &str = "/apis/batch/v1/namespaces/team/jobs/a";
const OFF: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/team/overridepolicies/muster-a.off";

fn policy(dry_run: bool) -> Input {
    let rule = json!({
        "name": "flaky", "class": "Unknown", "match": {"pod": {"reasons": ["Error"]}},
        "actions": [{"type": "AvoidNodeForJob", "avoidNodeForJob": {"avoidSeconds": 3600}}],
    });
    let mode = if dry_run { "DryRun" } else { "Enforce" };
    let policy = json!({"metadata": {"name": "p"}, "spec": {"rules": [rule], "mode": mode}});
    Input::FaultPolicy(Delta::Upserted(read(policy)))
}

/// The pod of job `a` fails on node `n1` while the job is placed, and the job is evicted.
async fn fails(stage: &mut Stage) {
    stage.work("a", true);
    let said = Some(("Error", "NCCL WARN"));
    let pod = pod("pod", PodPhase::Ended, said);
    stage.member_shows(Event::PodUpserted(pod));
    let failed = json!({"failed": 1, "conditions": [{"type": "Failed", "status": "True", "message": "too often"}]});
    stage.change("a", reported(failed));
    stage.rest(&["a"]).await;
}

/// The Work of the evicted job goes.
async fn ends(stage: &mut Stage) {
    stage.change("a", json!({"status": {"aggregatedStatus": null}}));
    stage.work("a", false);
    stage.member_shows(Event::PodGone(
        ClusterName::new("m1"),
        engine::Uid::new("pod"),
    ));
    stage.rest_later(&["a"], 20_000).await;
}

/// A queue that tries failed jobs again, and a job of it that runs.
async fn running(dry_run: bool) -> Stage {
    let mut stage = stage().await;
    let policy_of_queue = json!({"metadata": {"name": "q"}, "spec": {"retries": {"user": 3}}});
    stage.take(Input::Policy(Delta::Upserted(read(policy_of_queue))));
    stage.take(policy(dry_run));
    stage.job("a", 1);
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    stage.change("a", reported(json!({"active": 1, "ready": 1})));
    stage.rest(&["a"]).await;
    stage
}

fn notes(stage: &Stage, reason: &str) -> Vec<String> {
    let posted = stage.api.requests_of("POST").into_iter();
    let of_reason = posted.filter(|request| request.body["reason"] == reason);
    let notes = of_reason.filter_map(|request| request.body["note"].as_str().map(str::to_owned));
    notes.collect()
}

#[tokio::test(start_paused = true)]
async fn the_next_attempts_are_not_placed_where_the_pods_failed_until_the_time_is_over() {
    let mut stage = running(false).await;
    fails(&mut stage).await;
    let record = stage.record("a").unwrap();
    let nodes: Vec<&str> = record
        .avoided_nodes
        .iter()
        .map(|a| a.node.as_str())
        .collect();
    assert_eq!(nodes, ["n1"]);
    assert!(
        record
            .message
            .ends_with("; its next attempts avoid node n1 of m1"),
        "{}",
        record.message
    );
    ends(&mut stage).await;
    stage.rest_later(&["a"], 30 * 60_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    // Another job may go there.
    stage.job("b", 1);
    stage.rest(&["b"]).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
    stage.rest_later(&["a"], 40 * 60_000).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
    assert!(stage.record("a").unwrap().avoided_nodes.is_empty());
    let said = notes(&stage, "JobAvoidsNode");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("by rule flaky of FaultPolicy p"),
        "{said:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_person_who_clears_the_node_clears_it_for_the_job_too() {
    let mut stage = running(false).await;
    fails(&mut stage).await;
    ends(&mut stage).await;
    stage.rest_later(&["a"], 10 * 60_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    let mut cleared = ClearedNodes::default();
    cleared.clear("n1", crds::record::timestamp(stage.now()));
    let marks = ClusterMarks {
        uid: "m1-uid".to_owned(),
        cleared,
    };
    let cluster = ClusterName::new("m1");
    stage.take(Input::Member(MemberEvent::Marks { cluster, marks }));
    stage.rest_later(&["a"], 1_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_policy_in_a_dry_run_only_says_which_node_would_be_avoided() {
    let mut stage = running(true).await;
    fails(&mut stage).await;
    assert!(stage.record("a").unwrap().avoided_nodes.is_empty());
    ends(&mut stage).await;
    stage.rest_later(&["a"], 10 * 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
    let said = notes(&stage, "FaultPolicyDryRun");
    assert!(
        said[0].starts_with("its next attempts would avoid node n1 of m1 until"),
        "{said:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_avoids_a_node_is_dispatched_once_its_work_keeps_off_it() {
    let mut stage = stage().await;
    stage.template("a", 2, json!({}));
    let template = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "a", "namespace": "team", "uid": "a-uid"},
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [{"name": "main"}]}}},
    });
    stage.api.put(TEMPLATE, template);
    let mut annotations = left("a", RecordState::Requeued, 1, 2);
    let text = annotations[names::ADMISSION_ANNOTATION].as_str().unwrap();
    let mut record: Value = serde_json::from_str(text).unwrap();
    let until = crds::record::timestamp(stage.now().after(60 * 60_000));
    record["avoidedNodes"] =
        json!([{"cluster": "m1", "node": "n9", "since": "2026-01-01T00:00:00Z", "until": until}]);
    annotations[names::ADMISSION_ANNOTATION] = json!(record.to_string());
    stage.earlier_binding("a", 2, json!({"metadata": {"annotations": annotations}}));
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
    let record = stage.record("a").unwrap();
    assert!(record.whole && !record.is_split() && record.avoided_nodes.len() == 1);
    assert_eq!(
        overrides::off_name(&JobKey::new("team", "a")),
        "muster-a.off"
    );
    let policy = stage.api.get(OFF).expect("written before the placement");
    let rule = &policy["spec"]["overrideRules"][0];
    assert_eq!(
        rule["overriders"]["plaintext"][0]["path"],
        "/spec/template/spec/affinity"
    );
    assert!(
        rule["overriders"]["plaintext"][0]["value"]
            .to_string()
            .contains("n9")
    );
    let dispatching = |stage: &Stage| {
        stage.api.get(&path("a")).unwrap()["spec"]["suspension"]["dispatching"].clone()
    };
    assert_eq!(dispatching(&stage), true);
    let work = json!({
        "metadata": work_metadata("a", "a-id"),
        "spec": {"workload": {"manifests": [{"metadata": {"annotations": {names::PART_ANNOTATION: "attempt 2, whole"}}}]}},
    });
    let work = in_m1("a", work);
    stage.api.put(&work_path("a"), work.clone());
    stage.take(Input::Work(Delta::Upserted(ReadWork::of(read(work)))));
    stage.rest(&["a"]).await;
    assert_eq!(dispatching(&stage), Value::Null);
}
