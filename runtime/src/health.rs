//! One HTTP server for `/healthz`, `/readyz` and `/metrics`.
//!
//! Liveness says only that the process answers. Readiness requires all named checks; the body lists the
//! failed ones, so that `kubectl describe` says why a pod is not ready. Probes are open to everybody; the
//! metrics are so on loopback only ([`crate::metrics_access`]).

use crate::metrics::{CONTENT_TYPE, Registry};
use crate::metrics_access::MetricsAccess;
use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// `Err` says why it is not ready.
type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of a process. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<RwLock<BTreeMap<String, Check>>>,
}

/// A readiness check that a component sets; not ready at first.
#[derive(Clone, Debug)]
pub struct ReadyFlag(Arc<AtomicBool>);

impl ReadyFlag {
    /// Sets whether the check is met.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }

    /// Returns true if it is met.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Health {
    /// Creates it without checks: ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check that is set by hand, and replaces one of the same name.
    #[must_use]
    pub fn ready_check(&self, name: &str) -> ReadyFlag {
        let flag = ReadyFlag(Arc::new(AtomicBool::new(false)));
        let shown = flag.clone();
        self.ready_when(name, move || match shown.is_ready() {
            true => Ok(()),
            false => Err("not yet".to_owned()),
        });
        flag
    }

    /// Adds a check that is computed at each probe; it must not block.
    pub fn ready_when(
        &self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks.write().insert(name.to_owned(), Box::new(check));
    }

    /// Returns what is not ready, as `name: why`, ordered by name.
    #[must_use]
    pub fn not_ready(&self) -> Vec<String> {
        let checks = self.checks.read();
        checks
            .iter()
            .filter_map(|(name, check)| check().err().map(|why| format!("{name}: {why}")))
            .collect()
    }
}

/// Serves probes, metrics to `readers`, and `more` routes, on `address` until `cancel`. Returns the bound address,
/// which has the port if 0 was requested.
///
/// # Errors
/// Returns an error if the address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    health: Health,
    registry: Registry,
    readers: MetricsAccess,
    more: Router,
    cancel: CancellationToken,
) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} for probes and metrics"))?;
    let bound = listener.local_addr()?;
    let app = router(health, registry, readers).merge(more);
    let task = tokio::spawn(async move {
        let server = axum::serve(listener, app)
            .with_graceful_shutdown(async move { cancel.cancelled().await });
        if let Err(error) = server.await {
            tracing::error!(%error, "the server of probes and metrics ended");
        }
    });
    Ok((bound, task))
}

/// Returns the routes, for processes with a server of their own.
pub fn router(health: Health, registry: Registry, readers: MetricsAccess) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz).with_state(health))
        .route("/metrics", get(metrics).with_state((registry, readers)))
}

async fn readyz(State(health): State<Health>) -> Response {
    let missing = health.not_ready();
    match missing.is_empty() {
        true => "ok\n".into_response(),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready\n{}\n", missing.join("\n")),
        )
            .into_response(),
    }
}

async fn metrics(
    State((registry, readers)): State<(Registry, MetricsAccess)>,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = readers.check(&headers).await {
        return refusal.into_response();
    }
    match registry.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("metrics cannot be encoded: {error}\n"),
        )
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt;

    async fn get(app: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_names_the_failed_checks() {
        let health = Health::new();
        let listed = health.ready_check("listed");
        health.ready_when("certificate", || Err("expires in 2 m".to_owned()));
        let registry = Registry::new();
        registry.register("starts", "Starts", Counter::<u64>::default());
        let app = router(health.clone(), registry, MetricsAccess::Anyone);

        let waiting = "not ready\ncertificate: expires in 2 m\nlisted: not yet\n";
        assert_eq!(get(&app, "/readyz").await, (503, waiting.to_owned()));
        assert_eq!(get(&app, "/healthz").await.0, 200);
        listed.set(true);
        health.ready_when("certificate", || Ok(()));
        assert_eq!(get(&app, "/readyz").await, (200, "ok\n".to_owned()));
        assert!(
            get(&app, "/metrics")
                .await
                .1
                .contains("muster_starts_total 0")
        );
    }
}
