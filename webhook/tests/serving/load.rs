//! What the webhook refuses to protect itself, and how long its clients wait.

use super::{Running, creation, post, submission, with_closed_queue};
use http::{Request, StatusCode};
use runtime::testing::FakeApi;
use runtime::{Registry, RightsCache};
use serde_json::{Value, json};
use std::time::Duration;
use tower::Service as _;
use webhook::certs::Lifetimes;
use webhook::load::{RequestBudget, RequestLimits};
use webhook::metrics::WebhookMetrics;
use webhook::permits::Permits;
use webhook::published::PublishedIndex;
use webhook::queues::QueueIndex;
use webhook::released::ReleasedIndex;
use webhook::server::Handlers;

/// A path of JSON arrays, this many levels deep.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_nesting_is_denied_and_costs_no_stack() {
    let webhook = Running::start(FakeApi::new(), Lifetimes::default()).await;
    let client = webhook.api_server();
    let template = |levels: usize| {
        let job = r#""apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"}"#;
        let request = r#""uid":"u","operation":"CREATE","namespace":"team","kind":{"group":"batch","version":"v1","kind":"Job"}"#;
        let object = format!(r#"{{{job},"spec":{}}}"#, nested(levels));
        format!(r#"{{"request":{{{request},"object":{object}}}}}"#).into_bytes()
    };
    let path = "/validate/templates/managed";
    let (status, message) = post(&client, path, template(100)).await;
    assert_eq!(status, StatusCode::OK, "{message}");
    for levels in [130, 1_900_000] {
        let (status, message) = post(&client, path, template(levels)).await;
        assert_eq!(status, StatusCode::OK, "{levels}");
        let response: Value = serde_json::from_str(&message).unwrap();
        assert_eq!(response["response"]["uid"], "u");
        assert_eq!(response["response"]["allowed"], false);
        assert!(message.contains("recursion limit exceeded"), "{message}");
    }
    // It is not kept from being deleted.
    let mut going = String::from_utf8(template(130)).unwrap();
    going = going.replace(
        r#""name":"a""#,
        r#""name":"a","deletionTimestamp":"2026-11-26T00:00:00Z""#,
    );
    let (status, _) = post(&client, path, going.into_bytes()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    // The gate skips fields that it does not read, however deep they are.
    let mut binding = serde_json::to_string(&json!({"request": creation()})).unwrap();
    let deep = format!(r#""placement":{}"#, nested(1_000_000));
    binding = binding.replace(r#""placement":{}"#, &deep);
    assert!(binding.len() > 2_000_000);
    let (status, message) = post(&client, "/gate/namespace", binding.into_bytes()).await;
    assert_eq!(status, StatusCode::OK, "{message}");
    webhook.stop().await;
}

/// A review as an API server writes it, with an annotation of `bytes` bytes.
fn padded(bytes: usize) -> Vec<u8> {
    let request = r#""operation":"UPDATE","namespace":"team","kind":{"group":"batch","version":"v1","kind":"Job"}"#;
    let object = format!(
        r#"{{"metadata":{{"name":"a","annotations":{{"a":"{}"}}}}}}"#,
        "x".repeat(bytes)
    );
    let head =
        r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1""#;
    format!(r#"{head},{request},"object":{object}}}}}"#).into_bytes()
}

/// Under `failurePolicy: Ignore` an error would let it pass.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_denied() {
    let webhook = Running::start(FakeApi::new(), Lifetimes::default()).await;
    let client = webhook.api_server();
    for path in [
        "/mutate/templates",
        "/validate/templates/managed",
        "/validate/templates",
    ] {
        for (bytes, allowed) in [(18_000_000, true), (22_000_000, false), (40_000_000, false)] {
            let (status, message) = post(&client, path, padded(bytes)).await;
            assert_eq!(status, StatusCode::OK, "{path} {bytes}: {message}");
            let response: Value = serde_json::from_str(&message).unwrap();
            assert_eq!(response["response"]["uid"], "u-1");
            assert_eq!(response["response"]["allowed"], allowed, "{path} {bytes}");
            assert_eq!(message.contains("larger than 20971520 bytes"), !allowed);
        }
    }
    webhook.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_large_review_is_denied_while_there_is_no_space_for_it() {
    let registry = Registry::new();
    let mut router = webhook::server::router(Handlers {
        released: ReleasedIndex::default(),
        metrics: WebhookMetrics::new(&registry),
        load: RequestBudget::new(RequestLimits {
            bytes: 8 * 1024 * 1024,
            ..RequestLimits::default()
        }),
        permits: Permits {
            queues: QueueIndex::default(),
            rights: RightsCache::new(FakeApi::new().client()),
        },
        published: PublishedIndex::default(),
    });
    let body = padded(5_000_000);
    let request = Request::post("/validate/templates")
        .header("content-length", body.len())
        .body(axum::body::Body::from(body))
        .unwrap();
    let answer = router.call(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let text = axum::body::to_bytes(answer.into_body(), 4096)
        .await
        .unwrap();
    let response: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(response["response"]["allowed"], false);
    let message = response["response"]["status"]["message"].as_str().unwrap();
    assert!(message.contains("too many requests"), "{message}");
}

/// A review whose body does not end, like that of a stalled client.
fn stalled() -> http::Request<axum::body::Body> {
    let pending = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let body = axum::body::Body::from_stream(pending);
    Request::post("/gate/namespace").body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_above_the_limit_are_refused_at_once() {
    let registry = Registry::new();
    let mut router = webhook::server::router(Handlers {
        released: ReleasedIndex::default(),
        metrics: WebhookMetrics::new(&registry),
        load: RequestBudget::new(RequestLimits {
            requests: 2,
            ..RequestLimits::default()
        }),
        permits: Permits {
            queues: QueueIndex::default(),
            rights: RightsCache::new(FakeApi::new().client()),
        },
        published: PublishedIndex::default(),
    });
    let whole = || {
        let body = serde_json::to_vec(&json!({"request": creation()})).unwrap();
        let body = axum::body::Body::from(body);
        Request::post("/gate/namespace").body(body).unwrap()
    };
    let first = tokio::spawn(router.call(stalled()));
    let second = tokio::spawn(router.call(stalled()));
    tokio::task::yield_now().await;

    let started = tokio::time::Instant::now();
    let refused = router.call(whole()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    let text = axum::body::to_bytes(refused.into_body(), 1024)
        .await
        .unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(text.contains("too many requests"), "{text}");
    assert!(started.elapsed().is_zero(), "{:?}", started.elapsed());

    // A stalled request is given up before the API server's time is over, and its slot is free again.
    for stalled in [first, second] {
        let status = stalled.await.unwrap().unwrap().status();
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    }
    assert_eq!(started.elapsed(), Duration::from_millis(2500));
    let answered = router.call(whole()).await.unwrap();
    assert_eq!(answered.status(), StatusCode::OK);
    let metrics = registry.encode().unwrap();
    let busy = r#"muster_webhook_requests_total{path="/gate/namespace",outcome="Busy"} 1"#;
    assert!(metrics.contains(busy), "{metrics}");
}

/// Measures how long a client waits for an answer over TLS, at 200 reviews a second, a third of each path.
/// Run it with `cargo test --release -p webhook --test serving -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn two_hundred_reviews_a_second() {
    let webhook = Running::start(with_closed_queue(), Lifetimes::default()).await;
    let client = webhook.api_server();
    let paths = [
        "/mutate/templates",
        "/validate/templates/managed",
        "/gate/namespace",
    ];
    let mut every = tokio::time::interval(Duration::from_millis(5));
    let mut waits = tokio::task::JoinSet::new();
    for index in 0..4_000 {
        every.tick().await;
        let path = paths[index % paths.len()];
        let request = match path {
            "/gate/namespace" => creation(),
            _ => submission("alice"),
        };
        let body = serde_json::to_vec(&json!({"request": request})).unwrap();
        let client = client.clone();
        waits.spawn(async move {
            let started = std::time::Instant::now();
            let (status, message) = post(&client, path, body).await;
            (started.elapsed(), status, message)
        });
    }
    let mut took = Vec::new();
    while let Some(answer) = waits.join_next().await {
        let (wait, status, message) = answer.unwrap();
        assert_eq!(status, StatusCode::OK, "{message}");
        took.push(wait);
    }
    took.sort();
    let of = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    println!("p50 {:?}, p99 {:?}, most {:?}", of(50), of(99), of(100));
    webhook.stop().await;
}
