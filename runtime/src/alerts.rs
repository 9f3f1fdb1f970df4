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

use crate::metrics::Registry;
use crate::metrics_access::MetricsAccess;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use crds::node_alert::{self, AlertLabels, NodeAlert};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::sync::Arc;

/// The URL that takes alerts.
pub const PATH: &str = "/alerts";
/// Most bytes of a request.
const MOST_BYTES: usize = 4 << 20;

/// Routes of a process besides those of every process.
pub type Routes = Router;

/// Takes alerts; returns why it cannot now, if so.
pub type TakeAlerts = Arc<dyn Fn(Vec<NodeAlert>) -> Result<(), String> + Send + Sync>;

/// What became of a request, or of an alert.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlertResult {
    result: &'static str,
}

/// Metrics of alerts. Clones share them.
#[derive(Debug, Clone)]
pub struct AlertMetrics {
    requests: Family<AlertResult, Counter>,
    alerts: Family<AlertResult, Counter>,
}

/// A request whose alerts were taken.
const TAKEN: &str = "Taken";
/// One that has to be posted again.
const NOT_TAKEN: &str = "NotTaken";
/// One that cannot be read.
const UNREADABLE: &str = "Unreadable";
/// One without the right to post.
const DENIED: &str = "Denied";
/// An alert about a node of a member.
const KNOWN_NODE: &str = "KnownNode";
/// An alert about a node that no member has.
const UNKNOWN_NODE: &str = "UnknownNode";
/// An alert that names no node.
const WITHOUT_NODE: &str = "WithoutNode";

impl AlertMetrics {
    /// Registers the metrics; those of one registry are the same.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let metrics = Self {
            requests: registry.register(
                "alert_requests",
                "Requests to /alerts, by result: Taken, NotTaken (this replica does not lead, or has not listed everything \
                 yet), Unreadable, Denied",
                Family::default(),
            ),
            alerts: registry.register(
                "node_alerts",
                "Alerts that were taken, by result: KnownNode, UnknownNode (no member has it), WithoutNode (the labels \
                 name none)",
                Family::default(),
            ),
        };
        // A series that begins with its first count shows no increase.
        for result in [TAKEN, NOT_TAKEN, UNREADABLE, DENIED] {
            let series = AlertResult { result };
            metrics.requests.get_or_create(&series).inc_by(0);
        }
        for result in [KNOWN_NODE, UNKNOWN_NODE, WITHOUT_NODE] {
            let series = AlertResult { result };
            metrics.alerts.get_or_create(&series).inc_by(0);
        }
        metrics
    }

    fn request(&self, result: &'static str) {
        self.requests.get_or_create(&AlertResult { result }).inc();
    }

    fn without_node(&self, alerts: usize) {
        let result = WITHOUT_NODE;
        let counter = self.alerts.get_or_create(&AlertResult { result });
        counter.inc_by(u64::try_from(alerts).unwrap_or(u64::MAX));
    }

    /// Counts an alert that was taken, and whether a member has its node.
    pub fn taken(&self, is_known: bool) {
        let result = match is_known {
            true => KNOWN_NODE,
            false => UNKNOWN_NODE,
        };
        self.alerts.get_or_create(&AlertResult { result }).inc();
    }
}

#[derive(Clone)]
struct AlertsRoute {
    metrics: AlertMetrics,
    labels: AlertLabels,
    posters: MetricsAccess,
    take: TakeAlerts,
}

/// Returns the route, which gives `take` the alerts that `posters` post. Their nodes have these `labels`.
pub fn router(
    labels: AlertLabels,
    posters: MetricsAccess,
    take: TakeAlerts,
    registry: &Registry,
) -> Router {
    let route = AlertsRoute {
        metrics: AlertMetrics::new(registry),
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
    let metrics = &route.metrics;
    if let Err(refusal) = route.posters.check(&headers).await {
        metrics.request(DENIED);
        return refusal.into_response();
    }
    let query = query.unwrap_or_default();
    let mut parts = query.split('&');
    let cluster = parts.find_map(|part| part.strip_prefix("cluster="));
    let read = match node_alert::read(&body, &route.labels, cluster) {
        Ok(read) => read,
        Err(wrong) => {
            metrics.request(UNREADABLE);
            return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response();
        }
    };
    if read.others > 0 {
        let AlertLabels { cluster, node } = &route.labels;
        tracing::warn!(
            alerts = read.others,
            "alerts were posted that have not the labels {cluster} and {node}, a name and a start; they are left out"
        );
    }
    match (route.take)(read.alerts) {
        Ok(()) => {
            metrics.request(TAKEN);
            metrics.without_node(read.others);
            "taken\n".into_response()
        }
        Err(why) => {
            metrics.request(NOT_TAKEN);
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

    /// The route, the alerts that were taken, and the metrics.
    fn app(
        posters: MetricsAccess,
        leads: bool,
    ) -> (Router, Arc<Mutex<Vec<NodeAlert>>>, AlertMetrics) {
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
        let registry = Registry::new();
        let app = router(labels, posters, Arc::new(take), &registry);
        (app, taken, AlertMetrics::new(&registry))
    }

    /// The counts of requests and alerts, without zeros.
    fn counts(metrics: &AlertMetrics) -> String {
        let requests = [TAKEN, NOT_TAKEN, UNREADABLE, DENIED];
        let requests = requests.map(|result| (&metrics.requests, result));
        let alerts = [KNOWN_NODE, UNKNOWN_NODE, WITHOUT_NODE];
        let alerts = alerts.map(|result| (&metrics.alerts, result));
        let counts = requests.into_iter().chain(alerts).map(|(family, result)| {
            let count = family.get_or_create(&AlertResult { result }).get();
            (result, count)
        });
        let counts = counts.filter(|(_, count)| *count > 0);
        let counts = counts.map(|(result, count)| format!("{result} {count}"));
        counts.collect::<Vec<_>>().join(", ")
    }

    fn body() -> String {
        let alert = json!({
            "status": "firing", "labels": {"alertname": "GpuXid79", "node": "n1"},
            "startsAt": "2026-11-25T10:00:00Z", "fingerprint": "f",
        });
        let nothing = json!({"status": "firing", "labels": {"alertname": "Watchdog"}});
        json!({"version": "4", "alerts": [alert, nothing]}).to_string()
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
        let (app_of_leader, taken, metrics) = app(MetricsAccess::Anyone, true);
        let answer = posted(&app_of_leader, body(), None).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(taken.lock()[0].cluster.as_str(), "gpu-a");
        assert_eq!(
            posted(&app_of_leader, "{}".to_owned(), None).await.status(),
            400
        );
        let huge = " ".repeat(MOST_BYTES + 1);
        assert_eq!(posted(&app_of_leader, huge, None).await.status(), 413);
        assert_eq!(counts(&metrics), "Taken 1, Unreadable 1, WithoutNode 1");
        metrics.taken(true);
        metrics.taken(false);
        let all = "Taken 1, Unreadable 1, KnownNode 1, UnknownNode 1, WithoutNode 1";
        assert_eq!(counts(&metrics), all);
        let (app_of_standby, _, metrics) = app(MetricsAccess::Anyone, false);
        let answer = posted(&app_of_standby, body(), None).await;
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()["connection"], "close");
        // They are posted again, so none of them is counted.
        assert_eq!(counts(&metrics), "NotTaken 1");
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
        let (app, taken, metrics) = app(access, true);
        for (authorization, code) in [
            (None, 401),
            (Some("Bearer prometheus"), 403),
            (Some("Bearer alertmanager"), 200),
        ] {
            let answer = posted(&app, body(), authorization).await;
            assert_eq!(answer.status(), code, "{authorization:?}");
        }
        assert_eq!(taken.lock().len(), 1);
        assert_eq!(counts(&metrics), "Taken 1, Denied 2, WithoutNode 1");
    }
}
