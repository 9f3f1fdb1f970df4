#![allow(clippy::unwrap_used)]
use super::*;
use crate::health::{Health, router};
use crate::metrics::Registry;
use crate::testing::{FakeApi, Fault};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tower::ServiceExt;

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const RIGHTS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// An API server that knows the tokens `good` and `other`; only the owner of `good` may read metrics.
fn server() -> FakeApi {
    let api = FakeApi::new();
    api.answers(TOKENS, |review| {
        let user = match review["spec"]["token"].as_str().unwrap() {
            "good" => "prometheus",
            "other" => "alice",
            _ => return json!({"spec": {}, "status": {"authenticated": false}}),
        };
        let user = json!({"username": user, "groups": ["system:authenticated"]});
        json!({"spec": {}, "status": {"authenticated": true, "user": user}})
    });
    api.answers(RIGHTS, |review| {
        let allowed = review["spec"]["user"] == "prometheus";
        json!({"spec": review["spec"], "status": {"allowed": allowed}})
    });
    api
}

fn app(access: MetricsAccess) -> Router {
    let registry = Registry::new();
    registry.register("starts", "Starts", Counter::<u64>::default());
    router(Health::new(), registry, access)
}

async fn get(app: &Router, path: &str, authorization: Option<&str>) -> (u16, String) {
    let mut request = Request::get(path);
    if let Some(value) = authorization {
        request = request.header("Authorization", value);
    }
    let request = request.body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

async fn code(app: &Router, authorization: Option<&str>) -> u16 {
    get(app, "/metrics", authorization).await.0
}

#[tokio::test(start_paused = true)]
async fn only_an_account_with_the_right_reads_the_metrics() {
    let api = server();
    let app = app(MetricsAccess::reviewed_by(api.client()));
    let (code_of_good, text) = get(&app, "/metrics", Some("Bearer good")).await;
    assert_eq!(code_of_good, 200);
    assert!(text.contains("muster_starts_total 0"), "{text}");
    let asked = api.requests();
    assert_eq!(asked[1].path, RIGHTS);
    assert_eq!(
        asked[1].body["spec"]["nonResourceAttributes"],
        json!({"path": "/metrics", "verb": "get"})
    );
    assert_eq!(
        asked[1].body["spec"]["groups"],
        json!(["system:authenticated"])
    );

    let (code_of_other, text) = get(&app, "/metrics", Some("bearer other")).await;
    assert_eq!(code_of_other, 403);
    assert!(text.contains("alice has not the right"), "{text}");
    assert_eq!(code(&app, Some("Bearer forged")).await, 401);
    for none in [None, Some("Basic Z29vZA=="), Some("Bearer "), Some("good")] {
        assert_eq!(code(&app, none).await, 401, "{none:?}");
    }
    // Probes need no token.
    assert_eq!(get(&app, "/healthz", None).await.0, 200);
    assert_eq!(get(&app, "/readyz", None).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_cached_for_a_minute_and_a_refusal_for_less() {
    let api = server();
    let app = app(MetricsAccess::reviewed_by(api.client()));
    let asked = || api.requests().len();
    for _ in 0..3 {
        assert_eq!(code(&app, Some("Bearer good")).await, 200);
        assert_eq!(code(&app, Some("Bearer other")).await, 403);
    }
    assert_eq!(asked(), 4, "two questions for each token");
    tokio::time::advance(REFUSED_FOR).await;
    assert_eq!(code(&app, Some("Bearer good")).await, 200);
    assert_eq!(code(&app, Some("Bearer other")).await, 403);
    assert_eq!(asked(), 6);
    tokio::time::advance(ALLOWED_FOR).await;
    assert_eq!(code(&app, Some("Bearer good")).await, 200);
    assert_eq!(asked(), 8);
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_nobody_reads_them_and_nothing_is_cached() {
    let api = server();
    let app = app(MetricsAccess::reviewed_by(api.client()));
    for fault in [
        Fault::Status(500, "etcd is down"),
        Fault::Status(403, "tokenreviews is forbidden"),
        Fault::Hang,
    ] {
        api.fault(1, fault.clone(), |request| request.path == TOKENS);
        let (code, text) = get(&app, "/metrics", Some("Bearer good")).await;
        assert_eq!(code, 503, "{fault:?}: {text}");
    }
    api.fault(1, Fault::Hang, |request| request.path == RIGHTS);
    assert_eq!(code(&app, Some("Bearer good")).await, 503);
    assert_eq!(code(&app, Some("Bearer good")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn many_tokens_do_not_fill_the_memory() {
    let api = server();
    let access = MetricsAccess::reviewed_by(api.client());
    let app = app(access.clone());
    for number in 0..=KEPT {
        let token = format!("Bearer forged-{number}");
        assert_eq!(code(&app, Some(&token)).await, 401);
    }
    let MetricsAccess::Reviewed(reviewer) = access else {
        unreachable!("it was reviewed");
    };
    assert!(reviewer.answers.lock().len() <= KEPT);
}

#[tokio::test(start_paused = true)]
async fn everybody_reads_them_if_that_is_asked_for() {
    assert_eq!(code(&app(MetricsAccess::Anyone), None).await, 200);
}
