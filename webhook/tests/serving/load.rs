//! What the webhook refuses to protect itself, and how long its clients wait.

use super::{Running, creation, post, submission, with_closed_queue};
use http::{Request, StatusCode};
use runtime::testing::FakeApi;
use runtime::{Registry, RightsCache};
use serde_json::json;
use std::time::Duration;
use tower::Service as _;
use webhook::certs::Lifetimes;
use webhook::load::{RequestBudget, RequestLimits};
use webhook::metrics::WebhookMetrics;
use webhook::permits::Permits;
use webhook::queues::QueueIndex;
use webhook::released::ReleasedIndex;
use webhook::server::Handlers;

/// A path of JSON arrays, this many levels deep.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_nesting_costs_an_error_and_no_stack() {
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
        assert_eq!(status, StatusCode::BAD_REQUEST, "{levels}");
        assert!(message.contains("recursion limit exceeded"), "{message}");
    }
    // The gate skips fields that it does not read, however deep they are.
    let mut binding = serde_json::to_string(&json!({"request": creation()})).unwrap();
    let deep = format!(r#""placement":{}"#, nested(1_000_000));
    binding = binding.replace(r#""placement":{}"#, &deep);
    assert!(binding.len() > 2_000_000);
    let (status, message) = post(&client, "/gate/namespace", binding.into_bytes()).await;
    assert_eq!(status, StatusCode::OK, "{message}");
    webhook.stop().await;
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
