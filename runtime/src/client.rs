//! Connects to an API server so that no call hangs and no write is repeated unnoticed.
//!
//! By default kube retries every method on 429, 503 and 504, including writes, and a write then has an
//! unknown outcome; and it waits for ever on a dead connection. Both are turned off here: each writer
//! retries by itself, within its own deadline.

use crate::lease::{Leadership, TermOver};
use anyhow::Context as _;
use axum::http::Request;
use kube::client::middleware::BaseUriLayer;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::future::Future;
use std::path::Path;
use std::time::Duration;

/// Deadline of establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may be silent. This is longer than a watch may be idle (see [`mod@crate::watch`]),
/// so that it ends calls on dead connections but no healthy watch.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// Deadline of sending a request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes aws-lc-rs the process's TLS provider. It may be called repeatedly, and must be called before the
/// first connection.
pub fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // The only error is that a provider is installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

/// Returns a client for the cluster of `kubeconfig` (or of `KUBECONFIG`, `~/.kube/config` or the pod's
/// service account), in `context` or the current one.
///
/// # Errors
/// Returns an error if no configuration is found, or it is invalid.
pub async fn connect(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    user_agent: &str,
) -> anyhow::Result<Client> {
    install_crypto();
    client_of(load(kubeconfig, context).await?, user_agent)
}

/// Returns a client for the cluster in which this process runs as a pod, or `None` outside of a pod and in a
/// pod without the token of its account.
///
/// # Errors
/// Returns an error if the pod's configuration is invalid.
pub fn of_own_cluster(user_agent: &str) -> anyhow::Result<Option<Client>> {
    let config = Config::incluster().ok();
    config
        .map(|config| client_of(config, user_agent))
        .transpose()
}

/// Returns a client for `config` with Muster's timeouts and without retries, for configurations that are
/// not from a file, such as a member cluster's.
///
/// # Errors
/// Returns an error if `config` is invalid: a bad certificate, key or user agent.
pub fn client_of(mut config: Config, user_agent: &str) -> anyhow::Result<Client> {
    install_crypto();
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    // Otherwise the idle time of a pooled connection would count against its next response.
    config.reset_reader_on_write = true;
    let agent = user_agent
        .parse()
        .with_context(|| format!("user agent {user_agent:?} is not a header value"))?;
    let name = axum::http::header::USER_AGENT;
    config.headers.retain(|(header, _)| *header != name);
    config.headers.push((name, agent));
    let url = config.cluster_url.clone();
    Client::try_from(config).with_context(|| format!("cannot build a client for {url}"))
}

/// Returns a client for the API that `client`'s server serves under `path`, with the connections,
/// credentials and timeouts of `client`.
///
/// # Errors
/// Returns an error if `path` is not the path of a URL.
pub fn beneath(client: &Client, path: &str) -> anyhow::Result<Client> {
    let base = path
        .parse()
        .with_context(|| format!("{path:?} is not the path of a URL"))?;
    let (outer, namespace) = (client.clone(), client.default_namespace().to_owned());
    let service = tower::ServiceBuilder::new()
        .layer(BaseUriLayer::new(base))
        .service_fn(move |request| {
            let outer = outer.clone();
            async move { outer.send(request).await }
        });
    Ok(Client::new(service, namespace))
}

/// Returns a client that reads like `client` and writes only while `leadership` leads: a later write is
/// refused before it is sent ([`CallFault::TryAgain`]), and a write that takes longer than its permit
/// allows is given up.
#[must_use]
pub fn while_leading(client: &Client, leadership: &Leadership) -> Client {
    let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
    let leadership = leadership.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (inner, leadership) = (inner.clone(), leadership.clone());
        async move {
            if changes_nothing(&request) {
                return inner.send(request).await;
            }
            let Some(permit) = leadership.permit() else {
                return Err(kube::Error::Service(Box::new(TermOver)));
            };
            let limit = permit.limit();
            match tokio::time::timeout(limit, inner.send(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(kube::Error::Service(Box::new(CallError::Timeout(limit)))),
            }
        }
    });
    Client::new(service, namespace)
}

/// Returns true for reads, and for questions that use POST.
fn changes_nothing(request: &Request<kube::client::Body>) -> bool {
    const QUESTIONS: [&str; 2] = [
        "/apis/authorization.k8s.io/",
        "/apis/authentication.k8s.io/",
    ];
    let path = request.uri().path();
    request.method().is_safe() || QUESTIONS.iter().any(|prefix| path.starts_with(prefix))
}

async fn load(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    if let Some(path) = kubeconfig {
        let file = Kubeconfig::read_from(path)
            .with_context(|| format!("cannot read kubeconfig {}", path.display()))?;
        return Config::from_custom_kubeconfig(file, &options)
            .await
            .with_context(|| format!("kubeconfig {} cannot be used", path.display()));
    }
    if context.is_some() {
        return Config::from_kubeconfig(&options)
            .await
            .context("no usable kubeconfig for the given context");
    }
    Config::infer()
        .await
        .context("found neither a kubeconfig nor a pod's service account")
}

/// A failed call to an API server.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer came in time: it is unknown whether a write was done.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The client's or the server's error.
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

/// What a failed call means for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// The object does not exist.
    NotFound,
    /// The server does not serve the kind (yet): certainly not done, and nothing is known of the object.
    NoSuchKind,
    /// 409: it has changed, or exists already.
    Conflict,
    /// 429 or 401, or this process does not lead: certainly not done, and worth a retry.
    TryAgain,
    /// Any other 4xx: the server refused the request.
    Refused,
    /// Timeout, lost connection, 5xx or an unreadable answer: it may have been done.
    Unknown,
}

impl CallError {
    /// Returns what the failure means.
    #[must_use]
    pub fn fault(&self) -> CallFault {
        match self.code() {
            None if self.is_unsent() => CallFault::TryAgain,
            Some(404) if self.names_an_object() => CallFault::NotFound,
            Some(404) => CallFault::NoSuchKind,
            Some(409) => CallFault::Conflict,
            Some(401 | 408 | 425 | 429) => CallFault::TryAgain,
            Some(code) if (400..500).contains(&code) => CallFault::Refused,
            _ => CallFault::Unknown,
        }
    }

    /// Returns true if the object, or its kind, does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self.fault(), CallFault::NotFound | CallFault::NoSuchKind)
    }

    /// Returns true if it was refused before it was sent, because this process does not lead.
    fn is_unsent(&self) -> bool {
        matches!(self, Self::Kube(kube::Error::Service(error)) if error.is::<TermOver>())
    }

    /// Returns true if a 404 is about one object. A 404 about a path has another message, or no details.
    fn names_an_object(&self) -> bool {
        match self {
            Self::Kube(kube::Error::Api(status)) => {
                let details = status.details.as_ref();
                status.is_not_found() && details.is_some_and(|details| !details.name.is_empty())
            }
            _ => false,
        }
    }

    /// Returns the HTTP status, if the server answered.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Kube(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// Returns how long the server asked to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Kube(kube::Error::Api(status)) => status
                .details
                .as_ref()
                .map(|details| Duration::from_secs(details.retry_after_seconds.into()))
                .filter(|wait| !wait.is_zero()),
            _ => None,
        }
    }

    /// Returns the server's message, or the error's.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Kube(kube::Error::Api(status)) if !status.message.is_empty() => {
                status.message.clone()
            }
            other => with_sources(other),
        }
    }
}

/// Returns the error with its sources, innermost last: the outer error of a lost connection says only that
/// there was none.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

/// Runs one call for at most `limit`.
///
/// # Errors
/// Returns the call's error, or [`CallError::Timeout`].
pub async fn with_deadline<T>(
    call: impl Future<Output = kube::Result<T>>,
    limit: Duration,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(CallError::from),
        Err(_) => Err(CallError::Timeout(limit)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use crate::testing::{FakeApi, Fault};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{DeleteParams, ListParams, PostParams};
    use tokio_util::sync::CancellationToken;

    #[tokio::test(start_paused = true)]
    async fn a_failure_says_whether_the_call_may_have_been_done() {
        let faults = [
            (Fault::Status(404, "page not found"), CallFault::NoSuchKind),
            (Fault::Status(409, "x"), CallFault::Conflict),
            (Fault::Status(429, "x"), CallFault::TryAgain),
            (Fault::Status(403, "x"), CallFault::Refused),
            (Fault::Status(422, "x"), CallFault::Refused),
            (Fault::Status(500, "x"), CallFault::Unknown),
            (Fault::Status(504, "x"), CallFault::Unknown),
            (Fault::Hang, CallFault::Unknown),
        ];
        let absent = (Fault::Delay(Duration::ZERO), CallFault::NotFound);
        for (fault, wanted) in faults.into_iter().chain([absent]) {
            let api = FakeApi::new();
            api.fault(1, fault.clone(), |_| true);
            let maps: Api<ConfigMap> = Api::namespaced(api.client(), "ns");
            let error = with_deadline(maps.get("a"), Duration::from_secs(1)).await;
            assert_eq!(error.unwrap_err().fault(), wanted, "{fault:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_allowed_only_during_the_term() {
        let api = FakeApi::new();
        let over = CancellationToken::new();
        let term = Leadership::always().term(over.clone());
        let maps: Api<ConfigMap> = Api::namespaced(while_leading(&api.client(), &term), "ns");
        let map: ConfigMap =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
        let limit = Duration::from_secs(60);
        let params = PostParams::default();
        let refused = || async {
            let error = with_deadline(maps.create(&params, &map), limit)
                .await
                .unwrap_err();
            assert_eq!(error.fault(), CallFault::TryAgain, "{error}");
            assert!(
                maps.list(&ListParams::default()).await.is_ok(),
                "reads go through"
            );
        };
        refused().await;
        term.begin(0);
        assert!(
            with_deadline(maps.create(&params, &map), limit)
                .await
                .is_ok()
        );
        // A write that takes longer than its permit allows may have been done.
        api.fault(1, Fault::Hang, |request| request.verb == "DELETE");
        let started = tokio::time::Instant::now();
        let delete = DeleteParams::default();
        let deleted = maps.delete("a", &delete);
        let error = with_deadline(deleted, limit).await.unwrap_err();
        assert_eq!(error.fault(), CallFault::Unknown);
        assert_eq!(started.elapsed(), Duration::from_secs(30));
        over.cancel();
        refused().await;
        assert_eq!(api.requests_of("POST").len(), 1, "refused unsent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_beneath_a_path_works_like_a_direct_client() {
        let (api, inner) = (FakeApi::new(), FakeApi::new());
        api.pass_on("/apis/g/v1/things/a/proxy", &inner);
        let client = beneath(&api.client(), "/apis/g/v1/things/a/proxy").unwrap();
        inner.put(
            "/api/v1/namespaces/ns/configmaps/a",
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        );
        let maps: Api<ConfigMap> = Api::namespaced(client, "ns");
        let selected = ListParams::default().labels("a=b");
        assert_eq!(maps.list(&selected).await.unwrap().items.len(), 1);
        let passed_on = api.requests().pop().unwrap();
        assert_eq!(
            passed_on.path,
            "/apis/g/v1/things/a/proxy/api/v1/namespaces/ns/configmaps"
        );
        assert_eq!(passed_on.query["labelSelector"], "a%3Db");
        inner.fault(1, Fault::Status(429, "x"), |_| true);
        let error = with_deadline(maps.get("a"), Duration::from_secs(1)).await;
        assert_eq!(error.unwrap_err().fault(), CallFault::TryAgain);
        assert!(beneath(&api.client(), "no path").is_err());
    }
}
