#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{FakeApi, Fault};
use serde_json::json;

fn path(name: &str) -> String {
    format!("/apis/example.io/v1/namespaces/ns/things/{name}")
}

fn target(name: &str) -> StatusTarget {
    StatusTarget {
        api_resource: ApiResource {
            group: "example.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "example.io/v1".to_owned(),
            kind: "Thing".to_owned(),
            plural: "things".to_owned(),
        },
        namespace: Some("ns".to_owned()),
        name: name.to_owned(),
        subresource: Some("status"),
        strategic: false,
    }
}

fn position(n: u32) -> Value {
    json!({"status": {"position": n}})
}

fn start(api: &FakeApi, names: &[&str]) -> StatusWriter {
    for name in names {
        api.put(
            &path(name),
            json!({"apiVersion": "example.io/v1", "kind": "Thing", "spec": {}}),
        );
    }
    StatusWriter::spawn(api.client(), 4, CancellationToken::new())
}

fn sent(api: &FakeApi) -> Vec<u64> {
    let patches = api.requests_of("PATCH").into_iter();
    patches
        .filter_map(|request| request.body["status"]["position"].as_u64())
        .collect()
}

async fn millis(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn the_newest_wins_and_one_a_second_is_sent() {
    let api = FakeApi::new();
    let writer = start(&api, &["a"]);
    for n in 1..=50 {
        writer.write(target("a"), position(n));
        millis(100).await;
    }
    millis(2000).await;
    let sent = sent(&api);
    assert!((5..=7).contains(&sent.len()), "{sent:?}");
    assert_eq!(sent.last(), Some(&50));
    assert_eq!(api.get(&path("a")).unwrap()["status"]["position"], 50);
    assert_eq!(writer.pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_status_is_not_sent_again_unless_forgotten() {
    let api = FakeApi::new();
    let writer = start(&api, &["a"]);
    writer.write(target("a"), position(1));
    millis(1500).await;
    writer.write(target("a"), position(1));
    millis(1500).await;
    assert_eq!(sent(&api), [1]);
    // Changed and changed back within the second: nothing to send either.
    writer.write(target("a"), position(2));
    millis(100).await;
    writer.write(target("a"), position(3));
    writer.write(target("a"), position(2));
    millis(1500).await;
    assert_eq!(sent(&api), [1, 2]);
    writer.forget(&target("a"));
    writer.write(target("a"), position(2));
    millis(1500).await;
    assert_eq!(sent(&api), [1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_retried_with_the_newest_patch() {
    let api = FakeApi::new();
    let writer = start(&api, &["a"]);
    api.fault(2, Fault::Status(503, "not now"), |r| r.verb == "PATCH");
    writer.write(target("a"), position(1));
    millis(100).await;
    writer.write(target("a"), position(2));
    millis(5000).await;
    assert_eq!(sent(&api), [1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_status_of_a_gone_object_or_a_refused_one_is_dropped() {
    let api = FakeApi::new();
    let writer = start(&api, &["a"]);
    api.fault(1, Fault::Status(422, "not a position"), |r| {
        r.verb == "PATCH"
    });
    writer.write(target("a"), position(1));
    writer.write(target("gone"), position(1));
    millis(60_000).await;
    assert_eq!(sent(&api).len(), 2);
    assert_eq!(writer.pending(), 0);
    writer.write(target("a"), position(2));
    millis(1500).await;
    assert_eq!(api.get(&path("a")).unwrap()["status"]["position"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_patch_for_a_version_is_dropped_once_the_object_has_another() {
    let api = FakeApi::new();
    let writer = start(&api, &["a"]);
    let in_version = |version: &Value, n: u32| json!({"metadata": {"resourceVersion": version}, "status": {"position": n}});
    let seen = api.get(&path("a")).unwrap()["metadata"]["resourceVersion"].clone();
    writer.write(target("a"), position(1));
    millis(1500).await;
    writer.write(target("a"), in_version(&seen, 2));
    millis(60_000).await;
    assert_eq!(sent(&api), [1, 2]);
    assert_eq!(api.get(&path("a")).unwrap()["status"]["position"], 1);
    assert_eq!(writer.pending(), 0);
    let now = api.get(&path("a")).unwrap()["metadata"]["resourceVersion"].clone();
    writer.write(target("a"), in_version(&now, 2));
    millis(1500).await;
    assert_eq!(api.get(&path("a")).unwrap()["status"]["position"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_limited_number_of_writes_is_in_flight() {
    let api = FakeApi::new();
    let names: Vec<String> = (0..20).map(|n| format!("t{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let writer = start(&api, &names);
    api.fault(usize::MAX, Fault::Delay(Duration::from_millis(50)), |_| {
        true
    });
    for name in &names {
        writer.write(target(name), position(1));
    }
    millis(1000).await;
    assert_eq!(sent(&api).len(), 20);
    assert_eq!(api.most_at_once(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_status_forgotten_in_flight_does_not_count_as_written() {
    let api = FakeApi::new();
    let writer = start(&api, &["a"]);
    api.fault(1, Fault::Delay(Duration::from_secs(1)), |_| true);
    writer.write(target("a"), position(1));
    millis(100).await;
    writer.forget(&target("a"));
    writer.write(target("a"), position(1));
    millis(5000).await;
    assert_eq!(sent(&api), [1, 1]);
    assert_eq!((api.most_at_once(), writer.pending()), (1, 0));
}
