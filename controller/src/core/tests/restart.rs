//! A new process or a new leader reads what earlier ones left.

use super::*;
use crate::messages::job_answer::JobAnswer;
use RecordState::{Admitted, Ending, Planned, Requeued};
use engine::Reason;
use engine::facts::PodPhase;

/// A stage that begins with job `name` and the record that was left on it.
async fn after_restart(state: RecordState, cpus: u32, change: Value) -> Stage {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.template("a", cpus, json!({}));
    let mut binding = json!({"metadata": {"annotations": left("a", state, 2, cpus)}});
    if state == Admitted {
        let spec = json!({"suspension": {"scheduling": false}, "clusters": [{"name": "m1", "replicas": cpus}]});
        binding["spec"] = spec;
    }
    merge(&mut binding, change);
    stage.binding("a", cpus, binding);
    stage
}

#[tokio::test(start_paused = true)]
async fn an_admitted_job_is_charged_by_its_record_before_anything_is_decided() {
    let running = reported(json!({"active": 3, "ready": 3}));
    let mut stage = after_restart(Admitted, 3, running).await;
    stage.job("b", 2);
    stage.list_all();
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Running));
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
    assert_eq!(stage.patches("a"), Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_before_everything_has_listed() {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.namespace(true);
    stage.queue("4");
    for fact in member_facts() {
        stage.member_shows(fact);
    }
    stage.job("a", 2);
    stage.take(Input::Binding(Delta::Listed));
    stage.settle_unready().await;
    assert_eq!(stage.patches("a"), Vec::<Value>::new());
    stage.list_all();
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn an_ending_job_is_charged_until_its_works_are_gone() {
    let mut stage = after_restart(Ending, 3, json!({})).await;
    stage.work("a", true);
    stage.job("b", 2);
    stage.list_all();
    stage.rest_later(&["a", "b"], 60_000).await;
    assert_eq!(stage.charged(), "3");
    stage.work("a", false);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.shown("a"), "Requeued 2 gated []");
}

#[tokio::test(start_paused = true)]
async fn an_ending_job_is_not_requeued_while_karmada_reports_its_end() {
    let failed = json!({"failed": 3, "conditions": [{"type": "Failed", "status": "True"}]});
    let mut stage = after_restart(Ending, 3, reported(failed)).await;
    stage.list_all();
    stage.rest(&["a"]).await;
    // Long after a check would have found its Works gone.
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), "Ending 2 gated []");
    stage.change("a", forgotten());
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Requeued 2 gated []");
    stage.rest_later(&["a"], 60_000).await;
    // Not mistaken for a failed job.
    assert_eq!(stage.shown("a"), r#"Admitted 3 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
}

#[tokio::test(start_paused = true)]
async fn the_number_of_attempts_outlives_the_process() {
    let mut stage = after_restart(Requeued, 3, json!({})).await;
    stage.list_all();
    stage.rest(&["a"]).await;
    // Two attempts have failed, so it waits for a while.
    assert_eq!(stage.shown("a"), "Requeued 2 gated []");
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 3 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_plan_without_a_scheduler_is_decided_again() {
    let mut stage = after_restart(Planned, 3, json!({})).await;
    stage.list_all();
    stage.rest_later(&["a"], 0).await;
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 3 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
}

#[tokio::test(start_paused = true)]
async fn a_job_suspended_during_a_restart_is_evicted_and_resumes() {
    let suspended = reported(json!({"conditions": [{"type": "Suspended", "status": "True"}]}));
    let mut stage = after_restart(Admitted, 3, suspended).await;
    stage.template("a", 3, json!({"spec": {"suspend": true}}));
    stage.list_all();
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Ending 2 gated []");
    stage.rest_later(&["a"], 6_000).await;
    stage.change("a", forgotten());
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Requeued 2 gated []");
    stage.template("a", 3, json!({}));
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 3 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_stays_finished_when_its_cluster_goes() {
    let done =
        reported(json!({"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]}));
    let mut stage = after_restart(Admitted, 3, done).await;
    stage.list_all();
    stage.rest(&["a"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Finished));
    let gone = json!({"spec": {"clusters": []}, "status": {"aggregatedStatus": []}});
    stage.change("a", gone);
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.state("a"), Some(JobState::Finished));
    assert_eq!(stage.patches("a"), Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_wiped_keeps_the_charge_until_the_works_are_gone() {
    let mut stage = after_restart(Admitted, 3, reported(json!({"ready": 3}))).await;
    stage.work("a", true);
    stage.list_all();
    stage.rest(&["a"]).await;
    let wiped = json!({
        "metadata": {"annotations": {names::ADMISSION_ANNOTATION: null}},
        "spec": {"suspension": {"scheduling": true}, "clusters": []},
    });
    stage.change("a", wiped);
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "3");
    stage.work("a", false);
    stage.rest_later(&["a"], 2_000).await;
    stage.change("a", forgotten());
    stage.rest(&["a"]).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 3 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
}

/// Pods of job `a` that the member shows.
fn show_pods(stage: &mut Stage, names: &[&str]) {
    for uid in names {
        stage.member_shows(Event::PodUpserted(pod(uid, PodPhase::Running, None)));
    }
}

/// The member reports the new size for as long as it has to hold.
async fn shrunk(stage: &mut Stage) {
    for _ in 0..2 {
        let answer = JobAnswer::SizeChecked {
            attempt: engine::Attempt(1),
            cluster: ClusterName::new("m1"),
            small: Ok(true),
        };
        stage.take(Input::Answer(JobKey::new("team", "a"), answer));
        stage.ahead_ms += 3_000;
    }
    stage.rest(&["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_being_shrunk_is_charged_for_what_its_member_still_runs() {
    let mut before = stage().await;
    before.job("a", 3);
    before.rest(&["a"]).await;
    before.template("a", 1, json!({}));
    before.rest(&["a"]).await;
    assert_eq!(before.charged(), "3");
    let left = before.get("a");
    assert_eq!(
        left["spec"]["clusters"],
        json!([{"name": "m1", "replicas": 1}])
    );

    // The process stops: the member has not received the new size yet and runs three pods.
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.template("a", 1, json!({}));
    let left = json!({
        "metadata": {"annotations": left["metadata"]["annotations"]}, "spec": left["spec"],
    });
    stage.binding("a", 1, left);
    stage.list_all();
    show_pods(&mut stage, &["p1", "p2", "p3"]);
    stage.job("b", 3);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
    shrunk(&mut stage).await;
    assert_eq!(stage.charged(), "3", "three pods are there");

    for uid in ["p2", "p3"] {
        let gone = Event::PodGone(ClusterName::new("m1"), engine::Uid::new(uid));
        stage.member_shows(gone);
    }
    shrunk(&mut stage).await;
    assert_eq!(stage.record("a").unwrap().leaving, Vec::new());
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.charged(), "4");
}

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing_until_it_leads_and_has_caught_up() {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.core.role = Leading::Follows;
    stage.list_all();
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    assert!(
        stage.core.reconciler.mirror.bindings().len() == 1
            && stage.core.reconciler.out.work_queue.is_empty()
    );
    let before = stage.api.requests().len();
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.api.requests().len(), before, "it says nothing");
    // It leads, and its watch is behind what the last leader wrote.
    let seen = stage.core.reconciler.mirror.newest_binding();
    stage.take(Input::Lead(binding_writer::term::Lead::new(seen + 1)));
    stage.settle().await;
    assert_eq!(stage.shown("a"), "no record, gated []");
    stage.change("a", json!({"metadata": {"annotations": {"x": "y"}}}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_template_kind_that_cannot_be_listed_stops_only_its_own_jobs() {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    let other = TemplateKind {
        api_version: "example.com/v1".into(),
        kind: "Sim".into(),
    };
    let fault = runtime::testing::Fault::Status(500, "conversion webhook is away");
    let of_kind = |request: &Recorded| request.path.contains("example.com");
    stage.api.fault(usize::MAX, fault, of_kind);
    stage.core.readiness.expect_template(other);
    stage.list_all();
    stage.job("a", 2);
    let sim = json!({"spec": {"resource": {"apiVersion": "example.com/v1", "kind": "Sim"}}});
    stage.binding("sim", 2, sim);
    stage.settle_unready().await;
    assert_eq!(stage.shown("a"), "no record, gated []");
    stage.rest_later(&["a", "sim"], 31_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    let held = stage
        .core
        .reconciler
        .engine
        .explain(&JobKey::new("team", "sim"))
        .unwrap();
    assert_eq!(held.reason, Reason::SizeUnknown, "{held:?}");
}

/// Job `a` of three CPUs, placed, with a record that charges `charged`, and pending job `b`.
async fn with_a_record_of(state: RecordState, charged: u32, generation: i64) -> Stage {
    let mut stage = after_restart(state, charged, json!({})).await;
    if state == Admitted {
        let placed = json!({"spec": {"clusters": [{"name": "m1", "replicas": 3}]}});
        stage.change("a", placed);
    }
    stage.template("a", 3, json!({"metadata": {"generation": generation}}));
    stage.job("b", 2);
    stage
}

fn cpus(record: &AdmissionRecord) -> String {
    let mut charge = record.admission().charge().unwrap().to_list();
    charge.remove("cpu").unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_record_that_says_less_than_what_runs_is_corrected() {
    for (state, rendered) in [(Admitted, true), (Admitted, false), (Ending, true)] {
        let mut stage = with_a_record_of(state, 1, 1).await;
        if rendered {
            stage.rendered("a", "a-id", 3, 1);
        }
        stage.list_all();
        stage.rest(&["a", "b"]).await;
        assert_eq!(stage.charged(), "3", "{state:?} {rendered}");
        assert_eq!(stage.shown("b"), "no record, gated []");
        let record = stage.record("a").unwrap();
        assert_eq!((record.state, cpus(&record)), (state, "3".to_owned()));
        assert_eq!(stage.core.reconciler.out.metrics.records_changed.get(), 1);
        let in_flight = &stage.core.reconciler.in_flight[&JobKey::new("team", "a")];
        let changed = in_flight.guard.changed();
        let changed = changed.unwrap().to_owned();
        assert!(changed.contains("cpu 2, pods 2 in m1"), "{changed}");
        // Reported once, and not again by the next leader.
        stage.rest_later(&["a", "b"], 10_000).await;
        stage.core.role = Leading::CatchesUp(binding_writer::term::Lead::new(0));
        stage.rest(&["a", "b"]).await;
        assert_eq!(stage.core.reconciler.out.metrics.records_changed.get(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrected_charge_ends_with_its_works() {
    let mut stage = with_a_record_of(Ending, 1, 1).await;
    stage.rendered("a", "a-id", 3, 1);
    stage.list_all();
    stage.rest(&["a", "b"]).await;
    stage.work("a", false);
    stage.rest_later(&["a", "b"], 2_000).await;
    assert_eq!(stage.shown("a"), "Requeued 2 gated []");
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
}

/// A deleted or moved job is also charged for what runs.
#[tokio::test(start_paused = true)]
async fn a_record_that_says_too_little_is_corrected_for_deleted_and_moved_jobs() {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let moved = json!({"spec": {"clusters": [{"name": "m2", "replicas": 3}]}});
    for (change, charged) in [(deleted, "3"), (moved, "6")] {
        let mut stage = with_a_record_of(Admitted, 1, 1).await;
        stage.change("a", change.clone());
        stage.rendered("a", "a-id", 3, 1);
        stage.list_all();
        stage.rest(&["a", "b"]).await;
        assert_eq!(stage.charged(), charged, "{change}");
        assert_eq!(stage.shown("b"), "no record, gated []");
    }
}

/// The Works request more than the record says, and the record has not been changed.
#[tokio::test(start_paused = true)]
async fn an_override_or_an_edit_is_no_change_of_the_record() {
    // The requests of its pods were raised above the record.
    let mut stage = with_a_record_of(Admitted, 3, 2).await;
    let mut record = stage.record("a").unwrap();
    let one = Resources::parse([("cpu", "1"), ("pods", "1")]).unwrap();
    record.requests = [("main".to_owned(), one)].into();
    let text = record.to_annotation().unwrap();
    stage.change(
        "a",
        json!({"metadata": {"annotations": {names::ADMISSION_ANNOTATION: text}}}),
    );
    let raised = json!({"metadata": {"generation": 2}, "spec": {"template": {"spec": {"containers": [
        {"name": "main", "resources": {"requests": {"cpu": "2"}}},
    ]}}}});
    stage.template("a", 3, raised);
    stage.rendered("a", "a-id", 3, 2);
    stage.list_all();
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.core.reconciler.out.metrics.records_changed.get(), 0);
    // An override applies to its Work.
    let mut stage = with_a_record_of(Admitted, 3, 1).await;
    stage.rendered("a", "a-id", 4, 1);
    let applied =
        r#"[{"policyName":"more","overriders":{"plaintext":[{"path":"/spec/parallelism"}]}}]"#;
    let annotations = json!({ names::APPLIED_OVERRIDES: applied });
    stage.api.merge(
        &work_path("a"),
        &json!({"metadata": {"annotations": annotations}}),
    );
    let work = stage.api.get(&work_path("a")).unwrap();
    stage.take(Input::Work(Delta::Upserted(ReadWork::of(read(work)))));
    stage.list_all();
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.core.reconciler.out.metrics.records_changed.get(), 0);
    assert_eq!(cpus(&stage.record("a").unwrap()), "3");
}
