//! Records that this version cannot act on: charged, reported, and left unchanged.

use super::*;
use RecordState::{Admitted, Ending, Requeued};

/// The record of job `a` in `state`, changed by `change`.
fn odd(state: RecordState, cpus: u32, change: impl Fn(String) -> String) -> Value {
    let left = left("a", state, 2, cpus);
    let text = left[names::ADMISSION_ANNOTATION].as_str().unwrap();
    json!({ names::ADMISSION_ANNOTATION: change(text.to_owned()) })
}

fn later(text: String) -> String {
    text.replacen('{', r#"{"version":2,"lane":[1.50],"#, 1)
}

fn unknown_state(text: String) -> String {
    text.replace(r#""Admitted""#, r#""Parked""#)
}

fn garbage(_: String) -> String {
    "hello".to_owned()
}

/// After a restart, with job `a` of `cpus` CPUs placed or gated, and `annotations` on it.
async fn after_restart(cpus: u32, placed: bool, annotations: Value) -> Stage {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.template("a", cpus, json!({}));
    let mut binding = json!({"metadata": {"annotations": annotations}});
    if placed {
        binding["spec"] = json!({
            "suspension": {"scheduling": false},
            "clusters": [{"name": "m1", "replicas": cpus}],
        });
    }
    stage.binding("a", cpus, binding);
    stage.list_all();
    stage
}

#[tokio::test(start_paused = true)]
async fn a_placed_job_is_charged_and_not_written() {
    for change in [later, unknown_state, garbage] {
        let mut stage = after_restart(3, true, odd(Admitted, 3, change)).await;
        stage.job("b", 2);
        stage.rest_later(&["a", "b"], 600_000).await;
        assert_eq!(stage.charged(), "3");
        assert_eq!(stage.patches("a"), Vec::<Value>::new());
        assert_eq!(stage.shown("b"), "no record, gated []");
        assert_eq!(
            stage.core.reconciler.out.metrics.records_unreadable.get(),
            1
        );
        // It ends when its member reports so, and then gives its charge back.
        stage.change(
            "a",
            reported(
                json!({"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]}),
            ),
        );
        stage.rest(&["a", "b"]).await;
        assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
        assert_eq!(stage.patches("a"), Vec::<Value>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn an_untouched_job_is_charged_what_runs_if_its_record_says_less() {
    // The record has one pod, the placement three.
    let mut stage = after_restart(3, true, odd(Admitted, 1, later)).await;
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "3");
    // The record says more than what is placed.
    let mut stage = after_restart(2, true, odd(Admitted, 4, later)).await;
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "4");
}

#[tokio::test(start_paused = true)]
async fn a_gated_job_is_neither_admitted_nor_opened() {
    let mut stage = after_restart(2, false, odd(Requeued, 2, later)).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.charged(), "0");
    assert_eq!(stage.patches("a"), Vec::<Value>::new());
    // A job that is being evicted is charged, because this version cannot know how far the eviction is.
    let mut stage = after_restart(2, false, odd(Ending, 2, later)).await;
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.charged(), "2");
    assert_eq!(stage.patches("a"), Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_record_causes_no_eviction() {
    let mut stage = after_restart(4, true, odd(Admitted, 4, later)).await;
    stage.rest(&["a"]).await;
    let spec =
        json!({"limits": {"runtimeSeconds": 60}, "preemption": {"withinQueue": "LowerPriority"}});
    let policy = json!({"metadata": {"name": "q"}, "spec": spec});
    stage.take(Input::Policy(Delta::Upserted(read(policy))));
    let high = json!({"metadata": {"name": "high"}, "value": 1000});
    stage.take(Input::PriorityClass(Delta::Upserted(read(high))));
    let class = json!({"spec": {"template": {"spec": {"priorityClassName": "high"}}}});
    stage.template("b", 2, class);
    stage.binding("b", 2, json!({}));
    stage.rest_later(&["a", "b"], 3_600_000).await;
    assert_eq!(stage.charged(), "4");
    assert_eq!(stage.patches("a"), Vec::<Value>::new());
    assert_eq!(stage.shown("b"), "no record, gated []");
}

/// Once a version can read the record, it continues as if nothing had happened.
#[tokio::test(start_paused = true)]
async fn a_job_continues_when_its_record_is_readable_again() {
    let mut stage = after_restart(3, true, odd(Admitted, 3, later)).await;
    stage.rest(&["a"]).await;
    stage.change(
        "a",
        json!({"metadata": {"annotations": left("a", Admitted, 2, 3)}}),
    );
    stage.rest(&["a"]).await;
    assert_eq!(
        stage.core.reconciler.out.metrics.records_unreadable.get(),
        0
    );
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
    assert_eq!(stage.charged(), "3");
}

/// An operator removes an unreadable record: the job is gated and queued again.
#[tokio::test(start_paused = true)]
async fn a_corrupt_record_is_repaired_by_removing_it() {
    let mut stage = after_restart(3, true, odd(Admitted, 3, garbage)).await;
    stage.rest(&["a"]).await;
    stage.change(
        "a",
        json!({"metadata": {"annotations": {names::ADMISSION_ANNOTATION: null}}}),
    );
    stage.rest(&["a"]).await;
    assert!(
        stage.shown("a").starts_with("Ending 2 gated"),
        "{}",
        stage.shown("a")
    );
    assert_eq!(stage.charged(), "3");
}

/// Garbage in the record opens nothing: a pending job that was opened with it is gated again.
#[tokio::test(start_paused = true)]
async fn a_waiting_job_is_not_started_by_garbage() {
    let mut stage = stage().await;
    stage.job("b", 4);
    stage.rest(&["b"]).await;
    stage.job("a", 3);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("a"), "no record, gated []");
    stage.change(
        "a",
        json!({
            "metadata": {"annotations": odd(Admitted, 3, garbage)},
            "spec": {"suspension": {"scheduling": false}, "clusters": [{"name": "m1"}]},
        }),
    );
    stage.rest(&["a", "b"]).await;
    assert!(
        stage.shown("a").starts_with("Ending 1 gated"),
        "{}",
        stage.shown("a")
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_job_is_charged_until_its_works_are_gone() {
    let mut stage = after_restart(3, true, odd(Admitted, 3, unknown_state)).await;
    stage.work("a", true);
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    stage.change("a", deleting);
    stage.job("b", 2);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("b"), "no record, gated []");
    stage.work("a", false);
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
}

/// Fields that a later version of Muster recorded survive an eviction by this version.
#[tokio::test(start_paused = true)]
async fn unknown_fields_survive_an_eviction() {
    let noted = |text: String| text.replacen('{', r#"{"lane":{"b":1.50,"a":1},"#, 1);
    let mut stage = after_restart(3, true, odd(Admitted, 3, noted)).await;
    stage.rest(&["a"]).await;
    stage.change("a", json!({"spec": {"clusters": [{"name": "m2"}]}}));
    stage.rest(&["a"]).await;
    assert!(
        stage.shown("a").starts_with("Ending 2 gated"),
        "{}",
        stage.shown("a")
    );
    let binding = stage.get("a");
    let text = binding["metadata"]["annotations"][names::ADMISSION_ANNOTATION]
        .as_str()
        .unwrap();
    assert!(text.contains(r#""lane":{"b":1.50,"a":1}"#), "{text}");
}

/// After a restart only the Work shows that a gated job with an unreadable record is still charged.
#[tokio::test(start_paused = true)]
async fn a_closed_job_with_garbage_is_charged_by_its_works_until_they_are_gone() {
    for (gated, with_template) in [(true, true), (true, false), (false, true)] {
        let mut stage = after_restart(3, false, odd(Ending, 3, garbage)).await;
        if !with_template {
            stage.core.reconciler.mirror.forget_templates();
        }
        stage.change("a", json!({"spec": {"suspension": {"scheduling": gated}}}));
        stage.rendered("a", "a-id", 3, 1);
        stage.job("b", 2);
        stage.rest_later(&["a", "b"], 60_000).await;
        assert_eq!(stage.charged(), "3", "{gated} {with_template}");
        assert_eq!(stage.shown("b"), "no record, gated []");
        assert_eq!(stage.patches("a"), Vec::<Value>::new());
        assert_eq!(
            stage.core.reconciler.out.metrics.records_unreadable.get(),
            1
        );
        stage.work("a", false);
        stage.rest_later(&["a", "b"], 60_000).await;
        assert_eq!(
            stage.shown("b"),
            r#"Admitted 1 open ["m1"]"#,
            "{gated} {with_template}"
        );
        assert_eq!(stage.charged(), "2");
        assert_eq!(
            stage.core.reconciler.out.metrics.records_unreadable.get(),
            0
        );
    }
}
