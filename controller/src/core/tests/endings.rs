//! How jobs end, and how long a finished job stays.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_have_failed_has_started() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    stage.change("a", reported(json!({"active": 0, "ready": 0, "failed": 2})));
    stage.rest(&["a"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Running));
    // Missing pods of a job that has started before are not a failed start.
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
}

/// A finished job whose parts were stopped for `reason`, and which may stay for `seconds`.
async fn stopped(reason: &str, seconds: u32) -> Stage {
    let mut stage = stage().await;
    let ttl = json!({"spec": {"ttlSecondsAfterFinished": seconds}});
    stage.template("a", 3, ttl);
    let mut record: Value = serde_json::from_str(
        left("a", RecordState::Requeued, 1, 3)[names::ADMISSION_ANNOTATION]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    record["reason"] = json!(reason);
    record["takenBackAt"] = record["time"].clone();
    let annotations = json!({ names::ADMISSION_ANNOTATION: record.to_string() });
    stage.earlier_binding("a", 3, json!({"metadata": {"annotations": annotations}}));
    stage.rest(&["a"]).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_parts_were_stopped_is_deleted_after_its_ttl() {
    let deletions = |stage: &Stage| {
        let deleted = stage.api.requests_of("DELETE").into_iter();
        deleted
            .filter(|request| request.path.ends_with("/namespaces/team/jobs/a"))
            .count()
    };
    for reason in ["PartFailed", "Succeeded"] {
        let mut stage = stopped(reason, 60).await;
        assert_eq!(stage.state("a"), Some(JobState::Queued));
        stage.rest_later(&["a"], 50_000).await;
        assert_eq!(deletions(&stage), 0);
        stage.rest_later(&["a"], 20_000).await;
        assert_eq!(deletions(&stage), 1);
    }
}

/// A job of three pods in two clusters, led by the part in `m1`, with what the members report for both.
async fn led(first: Value, second: Value) -> Stage {
    let mut stage = stage().await;
    stage.template("a", 3, json!({}));
    let record = json!({
        "templateUID": "a-uid", "attempt": 1, "state": "Admitted", "queue": "q",
        "clusters": [
            {"name": "m1", "pods": [{"role": "main", "count": 2}], "charge": {"cpu": {"cpu": "2"}}},
            {"name": "m2", "pods": [{"role": "main", "count": 1}], "charge": {"cpu": {"cpu": "1"}}},
        ],
        "parts": "Dispatched", "leading": "m1", "time": jiff::Timestamp::now().to_string(),
    });
    let annotations = json!({ names::ADMISSION_ANNOTATION: record.to_string() });
    stage.work("a", true);
    stage.earlier_binding(
        "a",
        3,
        json!({
            "metadata": {"annotations": annotations},
            "spec": {
                "suspension": {"scheduling": false},
                "clusters": [{"name": "m1"}, {"name": "m2"}],
            },
            "status": {"aggregatedStatus": [
                {"clusterName": "m1", "status": first},
                {"clusterName": "m2", "status": second},
            ]},
        }),
    );
    stage.rest(&["a"]).await;
    stage
}

fn ended(how: &str) -> Value {
    json!({"conditions": [{"type": how, "status": "True"}]})
}

fn runs() -> Value {
    json!({"active": 1, "ready": 1})
}

const PLACED: &str = r#"Admitted 1 open ["m1", "m2"]"#;

#[tokio::test(start_paused = true)]
async fn the_success_of_the_leading_part_stops_the_others() {
    let mut stage = led(ended("Complete"), runs()).await;
    assert_eq!(stage.shown("a"), PLACED);
    stage.rest_later(&["a"], 8_000).await;
    assert_eq!(stage.shown("a"), PLACED, "the others may end by themselves");
    stage.rest_later(&["a"], 3_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    // Karmada drops the reported status first and the Works later.
    stage.change("a", json!({"status": {"aggregatedStatus": null}}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "3");
    stage.work("a", false);
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []", "it runs once");
    let key = JobKey::new("team", "a");
    let explanation = stage.core.reconciler.engine.explain(&key).unwrap();
    assert_eq!(explanation.reason, engine::Reason::Succeeded);
    assert!(explanation.message.contains("the part on m1"));
}

#[tokio::test(start_paused = true)]
async fn parts_that_end_by_themselves_stay_where_they_ran() {
    let mut stage = led(ended("Complete"), runs()).await;
    stage.change(
        "a",
        json!({"status": {"aggregatedStatus": [
            {"clusterName": "m1", "status": ended("Complete")},
            {"clusterName": "m2", "status": ended("Failed")},
        ]}}),
    );
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), PLACED);
    assert_eq!(stage.state("a"), Some(JobState::Finished));
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_succeeded_job_does_not_run_again_whatever_it_is_evicted_for() {
    let mut stage = led(ended("Complete"), runs()).await;
    // Its owner suspends it after it has succeeded.
    stage.template("a", 3, json!({"spec": {"suspend": true}}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), PLACED);
    // Another user removes a cluster.
    stage.change("a", json!({"spec": {"clusters": [{"name": "m1"}]}}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::Succeeded));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_before_the_leading_part_ends_fails_the_job() {
    let mut stage = led(runs(), ended("Failed")).await;
    stage.rest_later(&["a"], 4_000).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    let record = stage.record("a").unwrap();
    assert_eq!(record.reason, Some(engine::Reason::PartFailed));
}

/// Job `a` of three CPUs has ended as `status` says, and `b`, if there is one, uses its quota; then a
/// member runs `a` again.
async fn run_again(status: Value, between: Option<Value>, beside: bool) -> Stage {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.change("a", reported(status));
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "0");
    if beside {
        stage.job("b", 3);
        stage.rest(&["a", "b"]).await;
        assert_eq!(stage.charged(), "3");
    }
    let all = if beside { "6" } else { "3" };
    if let Some(between) = between {
        // Charged from here on, but not evicted for it: the report may be late.
        stage.change("a", reported(between));
        stage.rest(&["a"]).await;
        assert_eq!(stage.charged(), all);
        assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    }
    stage.change("a", reported(json!({"active": 3, "ready": 3})));
    // The charge comes before any other decision.
    let now = stage.now();
    stage.core.pass(now);
    assert_eq!(stage.charged(), all);
    match beside {
        true => stage.rest(&["a", "b"]).await,
        false => stage.rest(&["a"]).await,
    }
    stage
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_that_runs_again_is_charged_and_evicted_above_the_quota() {
    let complete =
        || json!({"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]});
    // Like a Volcano Job that was aborted in its member.
    let aborted = || json!({"conditions": [{"type": "Suspended", "status": "True"}]});
    // A member that came back empty has created the job again and has reported no status.
    let made_again = || Some(json!({}));
    for (status, between, reason) in [
        (complete(), None, engine::Reason::Succeeded),
        (complete(), made_again(), engine::Reason::Succeeded),
        (aborted(), None, engine::Reason::Evicted),
    ] {
        let stage = run_again(status.clone(), between.clone(), false).await;
        assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
        assert_eq!(stage.state("a"), Some(JobState::Running));

        let stage = run_again(status, between, true).await;
        assert_eq!(stage.shown("a"), "Ending 1 gated []");
        let record = stage.record("a").unwrap();
        assert_eq!(record.reason, Some(reason));
        assert!(
            record
                .message
                .contains("queue q may use cpu 4 and has 6 charged"),
            "{}",
            record.message
        );
        assert_eq!(stage.shown("b"), r#"Admitted 1 open ["m1"]"#);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_report_of_an_end_is_no_new_run() {
    let complete =
        || json!({"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]});
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    stage.change("a", reported(complete()));
    stage.rest(&["a"]).await;
    stage.job("b", 3);
    stage.rest(&["a", "b"]).await;
    stage.change("a", reported(json!({})));
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.charged(), "6");
    stage.change("a", reported(complete()));
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.charged(), "3");
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    assert_eq!(stage.state("a"), Some(JobState::Finished));
}
