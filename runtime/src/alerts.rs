//! Takes alerts about nodes from Alertmanager's webhook.
//!
//! ```text
//! POST /alerts, Authorization: Bearer TOKEN ─► right `post` on /alerts? ─► 401, 403, 503 as for the metrics
//!                                           ─► not the leader            ─► 503: Alertmanager tries again
//!                                           ─► not readable              ─► 400: it does not
//!                                           ─► taken                     ─► 200
//! ```
//!
//! An answer of 503 ends the connection, so that the next try may reach another replica behind the Service.

use crate::metrics_access::MetricsAccess;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use crds::node_alert::{self, AlertLabels, NodeAlert};
use std::sync::Arc;

/// The URL that takes alerts.
pub const PATH: &str = "/alerts";
/// Most bytes of a request.
const MOST_BYTES: usize = 4 << 20;

/// Routes of a process besides those of every process.
pub type Routes = Router;

/// Takes alerts; returns why it cannot now, if so.
pub type TakeAlerts = Arc<dyn Fn(Vec<NodeAlert>) -> Result<(), String> + Send + Sync>;

#[derive(Clone)]
struct AlertsRoute {
    labels: AlertLabels,
    posters: MetricsAccess,
    take: TakeAlerts,
}

/// Returns the route, which gives `take` the alerts that `posters` post. Their nodes have these `labels`.
pub fn router(labels: AlertLabels, posters: MetricsAccess, take: TakeAlerts) -> Router {
    let route = AlertsRoute {
        labels,
        posters,
        take,
    };
    Router::new()
        .route(PATH, post(alerts))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .with_state(route)
}

async fn alerts(
    State(route): State<AlertsRoute>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(refusal) = route.posters.check(&headers).await {
        return refusal.into_response();
    }
    let query = query.unwrap_or_default();
    let mut parts = query.split('&');
    let cluster = parts.find_map(|part| part.strip_prefix("cluster="));
    let read = match node_alert::read(&body, &route.labels, cluster) {
        Ok(read) => read,
        Err(wrong) => return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response(),
    };
    if read.others > 0 {
        let AlertLabels { cluster, node } = &route.labels;
        tracing::warn!(
            alerts = read.others,
            "alerts were posted that have not the labels {cluster} and {node}, a name and a start; they are left out"
        );
    }
    match (route.take)(read.alerts) {
        Ok(()) => "taken\n".into_response(),
        Err(why) => {
            let close = [(header::CONNECTION, "close")];
            (StatusCode::SERVICE_UNAVAILABLE, close, format!("{why}\n")).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::FakeApi;
    use axum::body::Body;
    use axum::http::Request;
    use parking_lot::Mutex;
    use serde_json::json;
    use tower::ServiceExt;

    fn app(posters: MetricsAccess, leads: bool) -> (Router, Arc<Mutex<Vec<NodeAlert>>>) {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&taken);
        let take = move |alerts: Vec<NodeAlert>| match leads {
            true => {
                into.lock().extend(alerts);
                Ok(())
            }
            false => Err("another replica leads".to_owned()),
        };
        let labels = AlertLabels {
            cluster: "cluster".to_owned(),
            node: "node".to_owned(),
        };
        (router(labels, posters, Arc::new(take)), taken)
    }

    fn body() -> String {
        let alert = json!({
            "status": "firing", "labels": {"alertname": "GpuXid79", "node": "n1"},
            "startsAt": "2026-11-25T10:00:00Z", "fingerprint": "f",
        });
        json!({"version": "4", "alerts": [alert]}).to_string()
    }

    async fn posted(app: &Router, body: String, authorization: Option<&str>) -> Response {
        let mut request = Request::post("/alerts?x=y&cluster=gpu-a");
        if let Some(value) = authorization {
            request = request.header("Authorization", value);
        }
        let request = request.body(Body::from(body)).unwrap();
        app.clone().oneshot(request).await.unwrap()
    }

    #[tokio::test]
    async fn the_leader_takes_alerts_and_others_send_alertmanager_on() {
        let (app_of_leader, taken) = app(MetricsAccess::Anyone, true);
        let answer = posted(&app_of_leader, body(), None).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(taken.lock()[0].cluster.as_str(), "gpu-a");
        assert_eq!(
            posted(&app_of_leader, "{}".to_owned(), None).await.status(),
            400
        );
        let huge = " ".repeat(MOST_BYTES + 1);
        assert_eq!(posted(&app_of_leader, huge, None).await.status(), 413);
        let (app_of_standby, _) = app(MetricsAccess::Anyone, false);
        let answer = posted(&app_of_standby, body(), None).await;
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()["connection"], "close");
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_account_with_the_right_posts_alerts() {
        let api = FakeApi::new();
        api.answers("/apis/authentication.k8s.io/v1/tokenreviews", |review| {
            let user = json!({"username": review["spec"]["token"], "groups": []});
            json!({"spec": {}, "status": {"authenticated": true, "user": user}})
        });
        api.answers(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            |review| {
                let asked = &review["spec"]["nonResourceAttributes"];
                assert_eq!(*asked, json!({"path": "/alerts", "verb": "post"}));
                let allowed = review["spec"]["user"] == "alertmanager";
                json!({"spec": review["spec"], "status": {"allowed": allowed}})
            },
        );
        let access = MetricsAccess::of_url(api.client(), PATH, "post");
        let (app, taken) = app(access, true);
        for (authorization, code) in [
            (None, 401),
            (Some("Bearer prometheus"), 403),
            (Some("Bearer alertmanager"), 200),
        ] {
            let answer = posted(&app, body(), authorization).await;
            assert_eq!(answer.status(), code, "{authorization:?}");
        }
        assert_eq!(taken.lock().len(), 1);
    }
}
