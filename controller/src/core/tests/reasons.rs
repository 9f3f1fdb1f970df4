//! Events on the user's own object for the reasons why a job waits.

use super::*;

/// The events on the template of `job` so far: type, reason, note.
fn events(stage: &Stage, job: &str) -> Vec<String> {
    let posted = stage.api.requests_of("POST").into_iter();
    let events = posted.filter(|request| {
        request.path.ends_with("/namespaces/team/events")
            && request.body["regarding"]["name"] == job
    });
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .map(|request| {
            let body = &request.body;
            let [type_, reason, note] = ["type", "reason", "note"].map(|field| text(&body[field]));
            format!("{type_} {reason}: {note}")
        })
        .collect()
}

/// The recorder posts what it has.
async fn post() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_has_one_event_for_each_reason() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.job("b", 3);
    stage.rest(&["a", "b"]).await;
    post().await;
    assert_eq!(events(&stage, "b"), Vec::<String>::new());
    stage.rest_later(&["a", "b"], 2_000).await;
    post().await;
    insta::assert_snapshot!(events(&stage, "b").join("\n"), @"Normal Reserved: needs cpu 3; queue q may use 4 and has 3 charged: short by 2; it is next: what frees is kept for it; see kubectl muster explain job/b -n team");
    for _ in 0..5 {
        stage.rest_later(&["a", "b"], 60_000).await;
    }
    post().await;
    assert_eq!(events(&stage, "b").len(), 1);
    // Another reason that lasts has another event.
    let moved = json!({"metadata": {"labels": {"muster.io/queue": "nowhere"}}});
    stage.template("b", 3, moved);
    stage.rest(&["a", "b"]).await;
    stage.rest_later(&["a", "b"], 2_000).await;
    post().await;
    insta::assert_snapshot!(events(&stage, "b").join("\n"), @r"
    Normal Reserved: needs cpu 3; queue q may use 4 and has 3 charged: short by 2; it is next: what frees is kept for it; see kubectl muster explain job/b -n team
    Warning QueueNotFound: queue nowhere does not exist; create it or name another; see kubectl muster explain job/b -n team
    ");
    insta::assert_snapshot!(events(&stage, "a").join("\n"), @"Normal Admitted: queue q: 3 pods on m1; charged cpu 3, pods 3");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_admitted_soon_has_no_event_of_waiting() {
    let mut stage = stage().await;
    stage.job("a", 3);
    stage.job("b", 3);
    stage.rest(&["a", "b"]).await;
    stage.queue("8");
    stage.rest(&["a", "b"]).await;
    stage.rest_later(&["a", "b"], 10_000).await;
    post().await;
    insta::assert_snapshot!(events(&stage, "b").join("\n"), @"Normal Admitted: queue q: 3 pods on m1; charged cpu 3, pods 3");
}
