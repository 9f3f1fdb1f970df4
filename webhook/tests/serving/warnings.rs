//! The lines that kubectl prints for accepted jobs: from memory, and never a reason to refuse one.

use super::{Running, post, submission};
use http::StatusCode;
use runtime::testing::FakeApi;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use webhook::certs::Lifetimes;

/// Namespaces that each have the queue.
const NAMESPACES: usize = 1_000;

/// A control plane with a queue that 1,000 namespaces use.
fn with_published_queue() -> FakeApi {
    let api = FakeApi::new();
    let queue = json!({"metadata": {"name": "gold"}, "spec": {}});
    api.put("/apis/scheduling.volcano.sh/v1beta1/queues/gold", queue);
    let gpus = json!({
        "name": "nvidia.com/gpu", "used": "0", "pending": "0", "queueUsed": "20", "queueLimit": "64",
        "freeInClusters": "44",
    });
    for index in 0..NAMESPACES {
        let namespace = format!("team-{index}");
        let status = json!({"resources": [gpus], "queuePending": 3});
        let metadata = json!({"name": "gold", "namespace": namespace});
        let path = format!("/apis/muster.io/v1alpha2/namespaces/{namespace}/namespacequeues/gold");
        api.put(
            &path,
            json!({"metadata": metadata, "spec": {}, "status": status}),
        );
    }
    api
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_about_each_job_comes_from_memory() {
    let webhook = Running::start(with_published_queue(), Lifetimes::default()).await;
    let client = webhook.api_server();
    let body = serde_json::to_vec(&json!({"request": submission("alice")})).unwrap();
    let path = "/validate/templates/managed";
    let warnings = async || {
        let (status, answer) = post(&client, path, body.clone()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["response"]["allowed"], true);
        answer["response"]["warnings"].clone()
    };
    // The watches list at the start.
    let line = json!(["queue gold: position 4"]);
    let until = Instant::now() + Duration::from_secs(60);
    while warnings().await != line {
        assert!(Instant::now() < until, "{}", warnings().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let reviews = |api: &FakeApi| api.requests_of("POST").len();
    let before = reviews(&webhook.api);
    let mut took = Vec::new();
    for _ in 0..500 {
        let started = Instant::now();
        assert_eq!(warnings().await, line);
        took.push(started.elapsed());
    }
    took.sort();
    println!(
        "MEASURED p50 {:?}, p99 {:?}, most {:?}",
        took[249], took[494], took[499]
    );
    assert_eq!(reviews(&webhook.api), before, "no request is in the way");
    webhook.stop().await;
}

/// These registrations are ignored on failure, so an error lets the object pass; a denial would not.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_not_denied_for_a_warning() {
    let webhook = Running::start(FakeApi::new(), Lifetimes::default()).await;
    let client = webhook.api_server();
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let request = r#""uid":"u","operation":"CREATE","namespace":"team","kind":{"group":"","version":"v1","kind":"Pod"}"#;
    let body = format!(r#"{{"request":{{{request},"object":{{"spec":{deep}}}}}}}"#);
    for (path, denied) in [
        ("/warn/objects", false),
        ("/warn/namespaces", false),
        ("/warn/policies", false),
        ("/validate/templates/managed", true),
    ] {
        let (status, _) = post(&client, path, body.clone().into_bytes()).await;
        assert_eq!(status == StatusCode::OK, denied, "{path}: {status}");
    }
    webhook.stop().await;
}
