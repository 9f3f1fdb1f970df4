//! How jobs end, and how long they stay then.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_have_failed_has_started() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    stage.change("a", reported(json!({"active": 0, "ready": 0, "failed": 2})));
    stage.rest(&["a"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Running));
    // Its pods are gone while the next are waited for: that is no start that came to nothing.
    stage.rest_later(&["a"], 20 * 60_000).await;
    assert_eq!(stage.standing("a"), r#"Admitted 1 open ["m1"]"#);
}

/// A job that failed in part a moment ago and may stay for so many seconds.
async fn failed_in_part(seconds: u32) -> Stage {
    let mut stage = stage().await;
    let ttl = json!({"spec": {"ttlSecondsAfterFinished": seconds}});
    stage.template("a", 3, ttl);
    let mut record: Value = serde_json::from_str(
        left("a", RecordState::Requeued, 1, 3)[names::ADMISSION_ANNOTATION]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    record["reason"] = json!("PartFailed");
    record["takenBackAt"] = record["time"].clone();
    let annotations = json!({ names::ADMISSION_ANNOTATION: record.to_string() });
    stage.binding("a", 3, json!({"metadata": {"annotations": annotations}}));
    stage.rest(&["a"]).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn a_job_that_failed_in_part_goes_after_its_time() {
    let deletions = |stage: &Stage| {
        let deleted = stage.api.requests_of("DELETE").into_iter();
        deleted
            .filter(|request| request.path.ends_with("/namespaces/team/jobs/a"))
            .count()
    };
    let mut stage = failed_in_part(60).await;
    assert_eq!(stage.state("a"), Some(JobState::Queued));
    stage.rest_later(&["a"], 50_000).await;
    assert_eq!(deletions(&stage), 0);
    stage.rest_later(&["a"], 20_000).await;
    assert_eq!(deletions(&stage), 1);
}
