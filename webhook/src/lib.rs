//! Muster's admission webhook.
//!
//! ```text
//! detector creates a ResourceBinding ─► /gate/namespace, /gate/scheduler ─► suspended, with our finalizer
//! user submits a template ───────────► /mutate/templates ──────────────► the user is recorded in it
//! Muster asks whether it is reached ─► /probe ─────────────────────────► answered with an annotation
//! user edits a template ─────────────► /validate/templates[/managed] ────► refused where it would fail later,
//!                                                                       or where the queue is not the user's;
//!                                                                       a warning says when it may start
//! what looks as if it were queued ───► /warn/objects, /warn/namespaces, /warn/policies ─► a warning
//! Secret muster-webhook-tls ─► certs ─► server (hot reload), registrations (caBundle)
//! watch of bindings ─► released ─► templates
//! watches of queues and of what Muster publishes of them ─► published ─► outlook
//! ```
//!
//! A handler decides from its request and from memory. It makes one kind of API call: a SubjectAccessReview
//! of whether a user may use a queue that is closed to the namespace, limited in number and time
//! ([`permits`]). It has no side effects, whether or not the request is a dry run. It changes nothing that
//! is not managed, and nothing in a system namespace.

mod apart;
mod body;
pub mod bounds;
pub mod certs;
pub mod gate;
pub mod load;
pub mod metrics;
pub mod outlook;
pub mod permits;
mod probe;
pub mod published;
pub mod queues;
pub mod register;
pub mod released;
pub mod review;
pub mod server;
pub mod templates;
pub mod unqueued;
pub mod users;

pub use apart::run_apart;
pub use register::unregister;

use crate::certs::{CertKeeper, Keyring, Lifetimes};
use crate::load::{RequestBudget, RequestLimits};
use crate::metrics::WebhookMetrics;
use crate::permits::Permits;
use crate::published::PublishedIndex;
use crate::queues::QueueIndex;
use crate::released::ReleasedIndex;
use crate::server::Handlers;
use anyhow::Context as _;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use crds::capacity_policy::CapacityPolicy;
use crds::kubernetes::Namespace;
use crds::muster_config::MusterConfig;
use crds::namespace_queue::NamespaceQueue;
use crds::queue::Queue;
use kube::{Api, Client};
use runtime::{Health, ReadyFlag, Registry, RightsCache, WatchOptions};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How API servers reach the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookTarget {
    /// By a base URL like `https://127.0.0.1:9443`: for control planes outside the network of any cluster, as
    /// Karmada's often are.
    Url(String),
    /// By a Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
}

impl WebhookTarget {
    /// Returns the names that its certificate has to be valid for.
    ///
    /// # Errors
    /// Returns an error if the URL is not `https`, or has no host.
    pub fn names(&self) -> anyhow::Result<BTreeSet<String>> {
        match self {
            Self::Url(url) => {
                let uri: http::Uri = url.parse().with_context(|| format!("--url {url:?}"))?;
                anyhow::ensure!(
                    uri.scheme_str() == Some("https"),
                    "--url {url:?} must begin with https://: API servers call webhooks only by that"
                );
                let host = uri
                    .host()
                    .with_context(|| format!("--url {url:?} names no host"))?;
                let host = host.trim_start_matches('[').trim_end_matches(']');
                Ok(BTreeSet::from([host.to_owned()]))
            }
            Self::Service {
                namespace, name, ..
            } => Ok(BTreeSet::from([
                format!("{name}.{namespace}.svc"),
                format!("{name}.{namespace}.svc.cluster.local"),
            ])),
        }
    }
}

/// Options of the webhook.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// The address it listens on.
    pub bind: SocketAddr,
    /// How API servers reach it.
    pub target: WebhookTarget,
    /// True if it maintains its registrations; otherwise another component has to.
    pub register: bool,
    /// Limits of what it serves at a time.
    pub limits: RequestLimits,
}

/// How often registrations are applied without a change, to undo changes by other clients.
const HEAL_INTERVAL: Duration = Duration::from_secs(300);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// How long open requests may take when the process ends.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// Capacity of the channel of bindings; the watch blocks when it is full.
const DELTAS: usize = 256;

/// Serves until `cancel`, then drains. It is ready (check `webhook` of `health`) once it listens with a
/// certificate and, if it registers itself, is registered.
///
/// # Errors
/// Returns an error if the target is invalid, the address cannot be bound (both before anything is
/// written), or the server fails.
pub async fn run(
    client: Client,
    options: WebhookOptions,
    registry: &Registry,
    health: &Health,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let socket = server::bind(options.bind)?;
    run_on(
        socket,
        client,
        options,
        Lifetimes::default(),
        registry,
        health,
        cancel,
    )
    .await
}

/// Runs like [`run`] on a socket that is bound already, so that no other process can take the address in
/// between, and with the given `lifetimes` of certificates.
///
/// # Errors
/// As [`run`].
pub async fn run_on(
    socket: TcpSocket,
    client: Client,
    options: WebhookOptions,
    lifetimes: Lifetimes,
    registry: &Registry,
    health: &Health,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    // All tasks started here end with this function, however it ends.
    let cancel = cancel.child_token();
    let _guard = cancel.clone().drop_guard();
    let ready = health.ready_check("webhook");
    let keeper = CertKeeper::new(client.clone(), options.target.names()?, lifetimes);
    let (sender, mut keyrings) = watch::channel(None);
    let keeping = tokio::spawn(keeper.run(sender, cancel.clone()));

    let released = ReleasedIndex::default();
    let watching = watch_released(client.clone(), released.clone(), cancel.clone());
    let published = PublishedIndex::default();
    watch_published(&client, &published, &cancel);
    let permits = Permits {
        queues: watch_queues(&client, &published, &cancel),
        rights: RightsCache::new(client.clone()),
    };

    let Some(first) = first_keyring(&mut keyrings, &cancel).await else {
        return Ok(());
    };
    let tls = serving_config(&first).await?;
    let metrics = WebhookMetrics::new(registry);
    let handlers = Handlers {
        released,
        metrics: metrics.clone(),
        load: RequestBudget::new(options.limits),
        permits,
        published,
    };
    let listener = server::listen(socket)?;
    let address = listener.local_addr()?;
    let handle = Handle::new();
    let server = axum_server::from_tcp_rustls(listener, tls.clone())?.handle(handle.clone());
    tracing::info!(%address, target = ?options.target, "webhook listens");

    let current = Current {
        client,
        target: options.target,
        register: options.register,
        tls,
        ready: ready.clone(),
        metrics,
    };
    let following = tokio::spawn(current.follow(keyrings, cancel.clone()));
    let draining = tokio::spawn(drain(handle, ready, cancel.clone()));
    let served = server
        .serve(server::router(handlers).into_make_service())
        .await;
    cancel.cancel();
    for task in [keeping, following, draining] {
        // A task ends with the token; a panic has been logged.
        let _ = task.await;
    }
    let _ = watching.await;
    served.context("the webhook's server failed")
}

/// Waits for the first certificates; returns `None` if `cancel` comes first.
async fn first_keyring(
    keyrings: &mut watch::Receiver<Option<Keyring>>,
    cancel: &CancellationToken,
) -> Option<Keyring> {
    let wait = keyrings.wait_for(Option::is_some);
    let first = cancel.run_until_cancelled(wait).await?.ok()?;
    first.clone()
}

async fn serving_config(keyring: &Keyring) -> anyhow::Result<RustlsConfig> {
    runtime::install_crypto();
    let serving = &keyring.serving;
    let (certificate, key) = (serving.certificate.clone(), serving.key.0.clone());
    RustlsConfig::from_pem(certificate.into_bytes(), key.into_bytes())
        .await
        .context("the webhook's certificate cannot be used")
}

/// Updates the server and the registrations when certificates change.
struct Current {
    client: Client,
    target: WebhookTarget,
    register: bool,
    tls: RustlsConfig,
    ready: ReadyFlag,
    metrics: WebhookMetrics,
}

impl Current {
    async fn follow(
        self,
        mut keyrings: watch::Receiver<Option<Keyring>>,
        cancel: CancellationToken,
    ) {
        let follow = async {
            loop {
                let keyring = keyrings.borrow_and_update().clone();
                let pause = match keyring {
                    Some(keyring) => match self.adopt(&keyring).await {
                        Ok(()) => {
                            self.ready.set(true);
                            HEAL_INTERVAL
                        }
                        Err(error) => {
                            tracing::warn!(
                                error = format!("{error:#}"),
                                "webhook is not up to date"
                            );
                            RETRY
                        }
                    },
                    None => HEAL_INTERVAL,
                };
                if let Ok(Err(_)) = tokio::time::timeout(pause, keyrings.changed()).await {
                    // The keeper has ended, and the process is ending.
                    return;
                }
            }
        };
        let _ = cancel.run_until_cancelled(follow).await;
    }

    /// Trust comes first: the server uses a certificate only after API servers have its CA.
    async fn adopt(&self, keyring: &Keyring) -> anyhow::Result<()> {
        if self.register {
            register::register(&self.client, &self.target, &keyring.bundle())
                .await
                .context("webhook configurations cannot be applied")?;
        }
        let serving = &keyring.serving;
        let (certificate, key) = (serving.certificate.clone(), serving.key.0.clone());
        self.tls
            .reload_from_pem(certificate.into_bytes(), key.into_bytes())
            .await
            .context("the webhook's certificate cannot be used")?;
        self.metrics.certificate_until(serving.until);
        Ok(())
    }
}

/// At the end: not ready, no new connections, and time for open requests.
async fn drain(handle: Handle<SocketAddr>, ready: ReadyFlag, cancel: CancellationToken) {
    cancel.cancelled().await;
    ready.set(false);
    handle.graceful_shutdown(Some(DRAIN_LIMIT));
}

/// Watches capacity policies, namespaces and the MusterConfig until `cancel`. If Muster may not watch them, no queue is
/// closed here; the controller still checks.
fn watch_queues(
    client: &Client,
    published: &PublishedIndex,
    cancel: &CancellationToken,
) -> QueueIndex {
    let queues = QueueIndex::default();
    let options = WatchOptions {
        denied_is_listed: true,
        ..WatchOptions::default()
    };
    let (policies, mut policy) = mpsc::channel(DELTAS);
    let (namespaces, mut namespace) = mpsc::channel(DELTAS);
    let (configs, mut config) = mpsc::channel(DELTAS);
    runtime::watch(
        Api::<CapacityPolicy>::all(client.clone()),
        options.clone(),
        "capacitypolicies (webhook)",
        |delta| delta,
        policies,
        cancel.clone(),
    );
    runtime::watch(
        Api::<MusterConfig>::all(client.clone()),
        options.clone(),
        "musterconfigs (webhook)",
        |delta| delta,
        configs,
        cancel.clone(),
    );
    runtime::watch(
        Api::<Namespace>::all(client.clone()),
        options,
        "namespaces (webhook)",
        |delta| delta,
        namespaces,
        cancel.clone(),
    );
    let (index, published) = (queues.clone(), published.clone());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                Some(delta) = policy.recv() => {
                    published.policy(&delta);
                    index.policy(delta);
                }
                Some(delta) = namespace.recv() => index.namespace(delta),
                Some(delta) = config.recv() => index.config(delta),
                else => return,
            }
        }
    });
    queues
}

/// Feeds `published` from watches of Queues and NamespaceQueues until `cancel`. If Muster may not watch them, nothing
/// is known of them.
fn watch_published(client: &Client, published: &PublishedIndex, cancel: &CancellationToken) {
    let options = WatchOptions::default();
    let (queues, mut queue) = mpsc::channel(DELTAS);
    let (of_namespaces, mut of_namespace) = mpsc::channel(DELTAS);
    runtime::watch(
        Api::<Queue>::all(client.clone()),
        options.clone(),
        "queues (webhook)",
        |delta| delta,
        queues,
        cancel.clone(),
    );
    runtime::watch(
        Api::<NamespaceQueue>::all(client.clone()),
        options,
        "namespacequeues (webhook)",
        |delta| delta,
        of_namespaces,
        cancel.clone(),
    );
    let index = published.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                Some(delta) = queue.recv() => index.queue(delta),
                Some(delta) = of_namespace.recv() => index.of_namespace(delta),
                else => return,
            }
        }
    });
}

/// Feeds `released` from a watch of bindings.
fn watch_released(
    client: Client,
    released: ReleasedIndex,
    cancel: CancellationToken,
) -> JoinHandle<()> {
    let (sender, mut deltas) = mpsc::channel(DELTAS);
    let kind = "resourcebindings (webhook)";
    runtime::watch(
        Api::all(client),
        WatchOptions::default(),
        kind,
        |delta| delta,
        sender,
        cancel,
    );
    tokio::spawn(async move {
        while let Some(delta) = deltas.recv().await {
            released.apply(delta);
        }
    })
}
