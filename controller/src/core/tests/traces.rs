//! The traces of jobs: each phase once, whichever process leads.

use super::*;
use runtime::traces::{CollectedSpans, TraceSink};

impl Stage {
    /// The watch shows the PodGroup of a job as it was last written.
    fn echo_podgroup(&mut self, name: &str) {
        let path = format!("/podgroups/{name}/status");
        let mut written = self.api.requests_of("PATCH");
        written.retain(|request| request.path.ends_with(&path));
        let status = written.last().map(|request| request.body["status"].clone());
        let metadata = json!({"name": name, "namespace": "team"});
        let podgroup = json!({"metadata": metadata, "spec": {}, "status": status});
        self.take(Input::PodGroup(Delta::Upserted(read(podgroup))));
    }

    /// Settles, and waits until the statuses are written.
    async fn written(&mut self, name: &str) {
        self.rest_later(&[name], 3_000).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

fn names(collected: &CollectedSpans, sink: &TraceSink) -> Vec<String> {
    let spans = collected.sent_to(sink).into_iter();
    spans.map(|(name, _)| name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_job_is_one_trace_under_two_leaders() {
    let mut stage = stage().await;
    let collected = CollectedSpans::default();
    let sink = collected.sink();
    stage.core.publisher.send_traces_to(sink.clone());
    stage.job("a", 3);
    stage.echo_podgroup("a");
    stage.written("a").await;
    stage.change("a", reported(json!({"active": 3, "ready": 3})));
    stage.written("a").await;
    let started = ["queued", "dispatch", "start"];
    // Its creation in the fixtures is long ago, and nobody saw since when it was eligible.
    assert_eq!(names(&collected, &sink), started);

    // Another process begins with what is published.
    stage.echo_podgroup("a");
    stage.core.publisher.clear();
    stage.core.publisher.send_traces_to(sink.clone());
    stage.echo_podgroup("a");
    stage.written("a").await;
    assert_eq!(names(&collected, &sink), started);
    let complete = json!([{"type": "Complete", "status": "True"}]);
    let over = json!({"succeeded": 3, "conditions": complete});
    stage.change("a", reported(over));
    stage.written("a").await;
    let all = [&started[..], &["run", "job"]].concat();
    assert_eq!(names(&collected, &sink), all);
    // Its deletion adds nothing.
    stage.change(
        "a",
        json!({"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}}),
    );
    stage.rest(&["a"]).await;
    assert_eq!(names(&collected, &sink), all);
    let ids: std::collections::BTreeSet<String> = collected
        .sent_to(&sink)
        .into_iter()
        .map(|(_, id)| id)
        .collect();
    assert_eq!(ids.len(), all.len());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_while_it_waits_has_a_trace_that_ends() {
    let mut stage = stage().await;
    let collected = CollectedSpans::default();
    let sink = collected.sink();
    stage.core.publisher.send_traces_to(sink.clone());
    stage.job("big", 5);
    stage.echo_podgroup("big");
    stage.written("big").await;
    assert!(names(&collected, &sink).is_empty());
    stage.change(
        "big",
        json!({"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}}),
    );
    stage.rest(&["big"]).await;
    assert_eq!(names(&collected, &sink), ["job"]);
}
