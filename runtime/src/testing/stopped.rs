//! A process between a client and the server, which can be stopped in the middle of a write.
//!
//! Its requests arrive when it continues, even if it no longer waits for the answers: like those of a
//! process that got SIGSTOP after all its checks and before the request left, or of a network that holds
//! requests back.

use super::FakeApi;
use axum::body::Body;
use axum::http::{Method, Request, Response};
use kube::Client;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::watch;

/// See the module's documentation. Clones share the process.
#[derive(Clone)]
pub struct StoppableProcess {
    api: FakeApi,
    /// Number of writes after which it is stopped.
    left: Arc<Mutex<Option<usize>>>,
    stopped: watch::Sender<bool>,
}

impl StoppableProcess {
    /// Creates a running process.
    #[must_use]
    pub fn new(api: &FakeApi) -> Self {
        Self {
            api: api.clone(),
            left: Arc::default(),
            stopped: watch::channel(false).0,
        }
    }

    /// Returns its client.
    #[must_use]
    pub fn client(&self) -> Client {
        let process = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let process = process.clone();
            async move { Ok::<_, Infallible>(process.send(request).await) }
        });
        Client::new(service, "default")
    }

    /// Stops it after `writes` more writes.
    pub fn stop_after(&self, writes: usize) {
        *self.left.lock() = Some(writes);
    }

    /// Returns true if it is stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Stops it now.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Continues it; its pending requests arrive.
    pub fn thaw(&self) {
        self.stopped.send_replace(false);
    }

    async fn send(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let writes = !matches!(*request.method(), Method::GET | Method::HEAD);
        if writes {
            let mut left = self.left.lock();
            *left = match *left {
                Some(0) => {
                    self.stopped.send_replace(true);
                    None
                }
                left => left.map(|left| left - 1),
            };
        }
        if !self.is_stopped() {
            return self.api.serve(request).await;
        }
        let (api, mut stopped) = (self.api.clone(), self.stopped.subscribe());
        let arrives = tokio::spawn(async move {
            // The sender is gone only with the process: then nothing arrives any more.
            if stopped.wait_for(|stopped| !stopped).await.is_err() {
                std::future::pending::<()>().await;
            }
            api.serve(request).await
        });
        match arrives.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }
}
