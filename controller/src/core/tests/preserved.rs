//! Jobs whose policy says `preserveResourcesOnDeletion`.

use super::*;

fn preserved(preserved: bool) -> Value {
    json!({"spec": {"preserveResourcesOnDeletion": preserved}})
}

impl Stage {
    /// Puts the Work of job `a`; if `preserved`, its member keeps the applied objects.
    fn kept_work(&mut self, preserved: bool, deleting: bool) {
        let deleted = deleting.then(|| jiff::Timestamp::now().to_string());
        let mut metadata = work_metadata("a", "a-id");
        metadata["deletionTimestamp"] = json!(deleted);
        metadata["finalizers"] = json!(["karmada.io/execution-controller"]);
        let work = json!({
            "metadata": metadata,
            "spec": {"preserveResourcesOnDeletion": preserved, "workload": {"manifests": []}},
        });
        self.api.put(&work_path("a"), work.clone());
        let mut work = work;
        work["metadata"]["namespace"] = json!("karmada-es-m1");
        work["metadata"]["name"] = json!("a");
        self.take(Input::Work(Delta::Upserted(ReadWork::of(read(work)))));
    }

    fn explained(&self) -> String {
        let key = JobKey::new("team", "a");
        self.core
            .reconciler
            .engine
            .explain(&key)
            .unwrap()
            .reason
            .to_string()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pending_job_is_not_admitted_before_its_policy_changes() {
    let mut stage = stage().await;
    stage.template("a", 2, json!({}));
    stage.binding("a", 2, preserved(true));
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(stage.shown("a"), "no record, gated []");
    assert_eq!(stage.explained(), "ResourcesPreserved");
    stage.change("a", preserved(false));
    stage.rest(&["a"]).await;
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn a_placed_job_is_removed_with_its_works_whatever_its_policy_says_later() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    for _ in 0..2 {
        stage.change("a", preserved(true));
        stage.rest(&["a"]).await;
        assert_eq!(stage.get("a")["spec"]["preserveResourcesOnDeletion"], false);
        assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
    }
}

/// Karmada's binding controller compared the Work with its cache, and missed that the field was reset.
#[tokio::test(start_paused = true)]
async fn a_work_that_still_preserves_is_written_again() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    stage.change("a", preserved(true));
    stage.rest(&["a"]).await;
    stage.kept_work(true, false);
    stage.rest(&["a"]).await;
    let field = |stage: &Stage| stage.get("a")["spec"]["preserveResourcesOnDeletion"].clone();
    assert_eq!(field(&stage), false, "Karmada has time to write it");
    // Both values mean the same to Karmada; each change is a new generation of the binding.
    for value in [Value::Null, json!(false)] {
        stage.rest_later(&["a"], 11_000).await;
        assert_eq!(field(&stage), value);
    }
    stage.kept_work(false, false);
    stage.rest_later(&["a"], 60_000).await;
    assert_eq!(field(&stage), false);
    assert_eq!(stage.shown("a"), r#"Admitted 1 open ["m1"]"#);
}

#[tokio::test(start_paused = true)]
async fn objects_left_in_a_member_stay_charged() {
    for (preserved, charged) in [(false, "0"), (true, "2")] {
        let mut stage = stage().await;
        stage.job("a", 2);
        stage.rest(&["a"]).await;
        stage.kept_work(preserved, false);
        stage.rest(&["a"]).await;
        stage.kept_work(preserved, true);
        let deleted = jiff::Timestamp::now().to_string();
        stage.change("a", json!({"metadata": {"deletionTimestamp": deleted}}));
        stage.rest(&["a"]).await;
        assert_eq!(stage.charged(), "2");
        stage.work("a", false);
        for _ in 0..3 {
            stage.settle().await;
            stage.echo("a");
            stage.ahead_ms += 2_000;
        }
        // The member is not connected, so it is unknown whether the object exists.
        assert_eq!(stage.charged(), charged, "preserved: {preserved}");
    }
}
