//! Templates of admitted jobs that grew while the webhook, which refuses that, was away.

use super::*;

const PIN: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/team/overridepolicies/muster-a";

/// A pod template with `cpus` CPUs and this image.
fn pods(cpus: u32, image: &str) -> Value {
    json!({"containers": [
        {"name": "main", "image": image, "resources": {"requests": {"cpu": cpus.to_string()}}},
    ]})
}

impl Stage {
    /// Changes the template of job `a`, on the server and in the watch.
    fn edit(&mut self, version: &str, pods: &Value) {
        let path = "/apis/batch/v1/namespaces/team/jobs/a";
        let spec = json!({"parallelism": 2, "completions": 2, "template": {"spec": pods}});
        let metadata = json!({
            "uid": "a-uid", "labels": {"muster.io/queue": "q"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        });
        let object =
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec});
        self.api.put(path, object);
        let change = json!({
            "metadata": {"resourceVersion": version}, "spec": {"template": {"spec": pods}},
        });
        self.template("a", 2, change);
    }

    /// The pods that the job's override sets.
    fn pinned(&self) -> Option<Value> {
        let pin = self.api.get(PIN)?;
        let field = pin.pointer("/spec/overrideRules/0/overriders/plaintext/0")?;
        assert_eq!(field["path"], "/spec/template/spec");
        Some(field["value"].clone())
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_were_raised_are_charged_and_pinned_to_what_was_admitted() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    stage.edit("5", &pods(3, "v1"));
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "6");
    assert_eq!(stage.pinned(), Some(pods(1, "v1")));
    // Other edits are applied.
    stage.edit("6", &pods(3, "v2"));
    stage.rest(&["a"]).await;
    assert_eq!(stage.pinned(), Some(pods(1, "v2")));

    // A new process takes the admitted requests from the record.
    let stage = begun_again(&stage, &pods(3, "v2")).await;
    assert_eq!(stage.charged(), "6");
    assert_eq!(stage.pinned(), Some(pods(1, "v2")));

    // It removes a pin that is no longer needed.
    let stage = begun_again(&stage, &pods(1, "v3")).await;
    assert_eq!(stage.charged(), "6");
    assert_eq!(stage.api.get(PIN), None);
}

/// A new process, with an override that the previous one left, and a template of these pods.
async fn begun_again(before: &Stage, pods: &Value) -> Stage {
    let left = before.get("a");
    let mut stage = Stage::bare(&FakeApi::new(), true).await;
    let ours = json!([{"manager": binding_writer::overrides::MANAGER, "operation": "Apply"}]);
    stage
        .api
        .put(PIN, json!({"metadata": {"managedFields": ours}}));
    stage.edit("6", pods);
    let left = json!({
        "metadata": {"annotations": left["metadata"]["annotations"]}, "spec": left["spec"],
    });
    stage.binding("a", 2, left);
    stage.list_all();
    stage.rest(&["a"]).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn more_replicas_alone_are_not_pinned() {
    let mut stage = stage().await;
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    stage.template("a", 4, json!({}));
    stage.rest(&["a"]).await;
    assert_eq!(stage.charged(), "4");
    assert_eq!(stage.pinned(), None);
}
