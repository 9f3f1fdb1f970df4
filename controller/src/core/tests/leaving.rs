//! Clusters that are being removed from the federation.

use super::*;
use engine::matching::LEAVING;

/// A job of three pods that ended in `m1` with `status`; its quota is free again.
async fn ended(status: Value) -> Stage {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    let parts = json!([{"clusterName": "m1", "status": status}]);
    stage.change("a", json!({"status": {"aggregatedStatus": parts}}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.state("a"), Some(JobState::Finished));
    assert_eq!(stage.charged(), "0");
    stage
}

fn condition(type_: &str) -> Value {
    json!({"conditions": [{"type": type_, "status": "True"}]})
}

/// Karmada empties the cluster and drops what was reported of it.
async fn removed(stage: &mut Stage) {
    stage.member(Some(LEAVING), "it is being removed from the federation");
    stage.change("a", json!({"status": {"aggregatedStatus": null}}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), "Ending 1 gated []");
    stage.work("a", false);
    stage.rest_later(&["a"], 10_000).await;
    assert_eq!(stage.shown("a"), "Requeued 1 gated []");
    assert_eq!(stage.charged(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_leaves_a_removed_cluster_and_does_not_run_again() {
    for (status, want) in [
        (condition("Complete"), engine::Reason::Succeeded),
        (condition("Failed"), engine::Reason::Failed),
    ] {
        let mut stage = ended(status).await;
        removed(&mut stage).await;
        stage.member(None, "");
        stage.rest_later(&["a"], 20 * 60_000).await;
        assert_eq!(stage.shown("a"), "Requeued 1 gated []", "it runs once");
        let explanation = stage
            .core
            .reconciler
            .engine
            .explain(&JobKey::new("team", "a"));
        assert_eq!(explanation.unwrap().reason, want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_job_in_a_removed_cluster_is_requeued() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.rest(&["a"]).await;
    stage.work("a", true);
    removed(&mut stage).await;
    stage.member(None, "");
    stage.rest_later(&["a"], 1_000).await;
    assert_eq!(stage.shown("a"), r#"Admitted 2 open ["m1"]"#);
}
