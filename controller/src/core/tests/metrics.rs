//! The metrics of queues while jobs run and queues go.

use super::*;

impl Stage {
    fn exports(&self, line: &str) -> bool {
        self.registry.encode().unwrap().contains(line)
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_exports_its_jobs_and_their_waits_until_it_is_deleted() {
    let mut stage = stage().await;
    stage.job("runs", 3);
    stage.job("waits", 3);
    stage.rest(&["runs", "waits"]).await;
    let active = json!({"active": 3, "ready": 3});
    stage.change("runs", reported(active.clone()));
    stage.rest(&["runs", "waits"]).await;
    // It loses a pod and gets it back: it does not start again.
    stage.change("runs", reported(json!({"active": 3, "ready": 2})));
    stage.rest(&["runs", "waits"]).await;
    stage.change("runs", reported(active));
    stage.rest(&["runs", "waits"]).await;
    for line in [
        r#"muster_queue_pending_jobs{queue="q"} 1"#,
        r#"muster_queue_active_jobs{queue="q"} 1"#,
        r#"muster_queue_resources{queue="q",resource="cpu",kind="Allocated"} 3"#,
        r#"muster_queue_head_reason{queue="q",reason="NextInLine"} 1"#,
        r#"muster_job_admission_wait_seconds_count{queue="q"} 1"#,
        r#"muster_job_start_wait_seconds_count{queue="q"} 1"#,
    ] {
        let text = stage.registry.encode().unwrap();
        assert!(stage.exports(line), "{line} in:\n{text}");
    }
    stage.take(Input::Queue(Delta::Gone(ObjectKey {
        namespace: None,
        name: "q".to_owned(),
    })));
    stage.rest_later(&["runs", "waits"], 5_000).await;
    assert!(!stage.exports(r#"queue="q""#));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_stands_by_exports_no_queue() {
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    stage.core.role = Leading::Follows;
    stage.list_all();
    stage.job("waits", 3);
    stage.settle().await;
    assert!(!stage.exports("queue="));
}
