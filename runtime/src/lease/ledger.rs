//! The ledger on the control plane: the writes of bindings that a leader has open.
//!
//! ```text
//! take: compare-and-swap ─► epoch + 1; the open writes of the last leader are found
//! open(binding) ─► with the next write of the ledger ─► done: the binding may be written
//! close(binding) ─► dropped with the next write, or a moment later
//! ```
//!
//! A Lease is no fence: a process that was stopped in the middle of a write may finish it long after
//! another one leads. Every write of a binding is guarded by the resourceVersion that it was decided on,
//! and is in the ledger before it is sent. A new leader takes the ledger, so that the old one can open
//! nothing more, and writes each open binding once, so that the writes that the old leader has in flight
//! fail. All other writes are visible to it.
//!
//! The ledger is an object of kind Lease next to the one for leader election: Muster's account has that
//! right already, it needs no definition of its own to install or upgrade, and Karmada skips Leases when it
//! looks for objects to propagate (pkg/util/apigroup.go), while a ConfigMap that changes a hundred times a
//! second would go through its detector each time. Its callers limit its size: the committer has at most
//! 128 writes open, 360 bytes each at most.
//!
//! Never allowed here: two writes of the ledger at a time; a write that is not a compare-and-swap; an
//! answer to `open` from a write that began before the call.

#[cfg(test)]
mod tests;

use super::object::{patch_params, post_params};
use super::{Leadership, TermOver};
use crate::client::{CallFault, with_deadline};
use crate::metrics::{Registry, latency_buckets};
use crate::task;
use crds::names;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Patch;
use kube::{Api, Client};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Deadline of one call.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// Pause before a failed call is repeated.
const PAUSE: Duration = Duration::from_millis(100);
/// How long closed entries stay if nothing else is written.
const TIDY_AFTER: Duration = Duration::from_secs(2);
/// Most messages in one write.
const BATCH: usize = 1_024;

/// Which ledger, and who writes it.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The identity of this process, as in the Lease.
    pub identity: String,
}

impl LedgerOptions {
    /// The ledger next to the Lease `lease` of [`names::SYSTEM_NAMESPACE`].
    #[must_use]
    pub fn beside(lease: &str, identity: impl Into<String>) -> Self {
        Self {
            namespace: names::SYSTEM_NAMESPACE.to_owned(),
            name: format!("{lease}-ledger"),
            identity: identity.into(),
        }
    }
}

/// Namespace and name of an open binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerSubject {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// What a new leader found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLedger {
    /// The epoch of the ledger from now on: it grows with each taking.
    pub epoch: u64,
    /// The open writes of the last leader, by UID.
    pub open: BTreeMap<String, LedgerSubject>,
    /// The newest version of a closed write; `None` if there was no ledger, or it could not be read.
    pub newest: Option<u64>,
}

enum LedgerMessage {
    Open {
        uid: String,
        subject: LedgerSubject,
        written: oneshot::Sender<()>,
    },
    Close {
        uid: String,
        version: Option<u64>,
    },
}

/// A handle of the ledger, for one term. Clones share it.
#[derive(Clone)]
pub struct Ledger {
    api: Api<Lease>,
    options: LedgerOptions,
    inbox: mpsc::UnboundedSender<LedgerMessage>,
    messages: Arc<Mutex<Option<mpsc::UnboundedReceiver<LedgerMessage>>>>,
    lost: CancellationToken,
    metrics: LedgerMetrics,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("name", &self.options.name)
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct LedgerMetrics {
    seconds: Histogram,
    opened: Counter,
}

impl Ledger {
    /// Creates a handle that has not taken the ledger yet.
    #[must_use]
    pub fn new(client: Client, options: LedgerOptions, registry: &Registry) -> Self {
        let (inbox, messages) = mpsc::unbounded_channel();
        Self {
            api: Api::namespaced(client, &options.namespace),
            options,
            inbox,
            messages: Arc::new(Mutex::new(Some(messages))),
            lost: CancellationToken::new(),
            metrics: LedgerMetrics {
                seconds: registry.register(
                    "ledger_write_seconds",
                    "Time that writes of the ledger took",
                    Histogram::new(latency_buckets()),
                ),
                opened: registry.register(
                    "ledger_opened",
                    "Writes of bindings that were opened in the ledger",
                    Counter::default(),
                ),
            },
        }
    }

    /// Takes the ledger by compare-and-swap, for the term of `leadership`, and serves [`Self::open`] from then
    /// on. It retries while that leads.
    ///
    /// # Errors
    /// Returns an error if the term ends before that.
    pub async fn take(&self, leadership: &Leadership) -> Result<FoundLedger, TermOver> {
        let Some(messages) = self.messages.lock().take() else {
            return Err(TermOver); // taken before: a term has a ledger of its own
        };
        let mut told = false;
        loop {
            if leadership.permit().is_none() {
                return Err(TermOver);
            }
            match self.try_take(leadership).await {
                Ok(Some((found, version))) => {
                    tracing::info!(
                        epoch = found.epoch,
                        open = found.open.len(),
                        "took the ledger"
                    );
                    let writer = LedgerWriter {
                        ledger: self.clone(),
                        leadership: leadership.clone(),
                        epoch: found.epoch,
                        sequence: 0,
                        open: found.open.clone(),
                        newest: found.newest.unwrap_or_default(),
                        version,
                    };
                    task::spawn(writer.run(messages));
                    return Ok(found);
                }
                Ok(None) => {} // another process wrote it in between
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        let error = error.message();
                        tracing::warn!(error, "the ledger cannot be taken; trying again");
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_take(
        &self,
        leadership: &Leadership,
    ) -> Result<Option<(FoundLedger, String)>, crate::client::CallError> {
        let limit = leadership.write_limit.min(CALL_LIMIT);
        let there = with_deadline(self.api.get_opt(&self.options.name), limit).await?;
        let (found, written) = match there {
            None => {
                let found = FoundLedger {
                    epoch: 0,
                    open: BTreeMap::new(),
                    newest: None,
                };
                let lease = self.lease(&found);
                let params = post_params();
                let call = self.api.create(&params, &lease);
                (found, with_deadline(call, limit).await)
            }
            Some(lease) => {
                let found = read(&lease);
                let patch = Patch::Merge(json!({
                    "metadata": {"resourceVersion": lease.metadata.resource_version},
                    "spec": {
                        "holderIdentity": self.options.identity,
                        "leaseTransitions": found.epoch,
                    },
                }));
                let params = patch_params();
                let call = self.api.patch(&self.options.name, &params, &patch);
                (found, with_deadline(call, limit).await)
            }
        };
        match written {
            Ok(lease) => Ok(Some((found, version(&lease)))),
            Err(error) if error.fault() == CallFault::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn lease(&self, found: &FoundLedger) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = Some(self.options.name.clone());
        lease.metadata.namespace = Some(self.options.namespace.clone());
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.options.identity.clone());
        spec.lease_transitions = i32::try_from(found.epoch).ok();
        lease
    }

    /// Records in the ledger that the binding with `uid` is about to be written. Returns after a write of the
    /// ledger that began after this call.
    ///
    /// # Errors
    /// Returns an error if the term is over: no more writes are allowed.
    pub async fn open(&self, uid: &str, subject: LedgerSubject) -> Result<(), TermOver> {
        let (written, answer) = oneshot::channel();
        let message = LedgerMessage::Open {
            uid: uid.to_owned(),
            subject,
            written,
        };
        self.inbox.send(message).map_err(|_| TermOver)?;
        answer.await.map_err(|_| TermOver)
    }

    /// Closes the write of `uid`, whose outcome is certain; `version` is its result if it was done.
    pub fn close(&self, uid: &str, version: Option<u64>) {
        let uid = uid.to_owned();
        // The writer ends only with the term; the next leader then closes it.
        let _ = self.inbox.send(LedgerMessage::Close { uid, version });
    }

    /// Returns when another process has taken or deleted the ledger: the term is over.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

/// Writes the ledger during one term.
struct LedgerWriter {
    ledger: Ledger,
    leadership: Leadership,
    epoch: u64,
    sequence: u64,
    open: BTreeMap<String, LedgerSubject>,
    newest: u64,
    version: String,
}

impl LedgerWriter {
    async fn run(mut self, mut messages: mpsc::UnboundedReceiver<LedgerMessage>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut tidy_at = None;
        let over = self.leadership.over();
        loop {
            let mut asked = Vec::new();
            tokio::select! {
                () = over.cancelled() => return,
                taken = messages.recv_many(&mut batch, BATCH) => if taken == 0 { return },
                () = until(tidy_at) => {}
            }
            for message in batch.drain(..) {
                match message {
                    LedgerMessage::Open {
                        uid,
                        subject,
                        written,
                    } => {
                        self.open.insert(uid, subject);
                        asked.push(written);
                    }
                    LedgerMessage::Close { uid, version } => {
                        self.newest = self.newest.max(version.unwrap_or_default());
                        if self.open.remove(&uid).is_some() {
                            tidy_at.get_or_insert_with(|| Instant::now() + TIDY_AFTER);
                        }
                    }
                }
            }
            let tidies = tidy_at.is_some_and(|at| Instant::now() >= at);
            if asked.is_empty() && !tidies {
                continue;
            }
            tidy_at = None;
            if self.write().await.is_err() {
                self.ledger.lost.cancel();
                return;
            }
            self.ledger.metrics.opened.inc_by(asked.len() as u64);
            for written in asked {
                // The caller may have been given up at the end of the term.
                let _ = written.send(());
            }
        }
    }

    /// Writes all open entries, until the write is certain.
    async fn write(&mut self) -> Result<(), TermOver> {
        self.sequence += 1;
        let started = Instant::now();
        let mut told = false;
        loop {
            let permit = self.leadership.permit().ok_or(TermOver)?;
            let patch = Patch::Merge(json!({
                "metadata": {
                    "resourceVersion": self.version,
                    "annotations": {
                        names::LEDGER_SEQUENCE: self.sequence.to_string(),
                        names::LEDGER_OPEN: open_text(&self.open),
                        names::LEDGER_NEWEST: self.newest.to_string(),
                    },
                },
            }));
            let params = patch_params();
            let ledger = &self.ledger;
            let call = ledger.api.patch(&ledger.options.name, &params, &patch);
            let error = match with_deadline(call, permit.limit().min(CALL_LIMIT)).await {
                Ok(lease) => {
                    self.version = version(&lease);
                    let seconds = started.elapsed().as_secs_f64();
                    self.ledger.metrics.seconds.observe(seconds);
                    return Ok(());
                }
                Err(error) => error,
            };
            match error.fault() {
                CallFault::Conflict => match self.is_ours(permit.limit()).await {
                    Some(true) => return Ok(()),
                    Some(false) => {
                        tracing::warn!("another has written the ledger; this term is over");
                        return Err(TermOver);
                    }
                    None => {}
                },
                CallFault::NotFound => {
                    tracing::error!("the ledger was deleted; this term is over");
                    return Err(TermOver);
                }
                _ if !std::mem::replace(&mut told, true) => {
                    let error = error.message();
                    tracing::warn!(error, "the ledger cannot be written; trying again");
                }
                _ => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns true if the stored ledger is the one last written, whose answer may have got lost. `None` if it
    /// cannot be read.
    async fn is_ours(&mut self, limit: Duration) -> Option<bool> {
        let ledger = &self.ledger;
        let call = ledger.api.get_opt(&ledger.options.name);
        let lease = with_deadline(call, limit.min(CALL_LIMIT)).await.ok()?;
        let ours = lease.as_ref().is_some_and(|lease| {
            let spec = lease.spec.as_ref();
            let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
            let epoch = spec.and_then(|spec| spec.lease_transitions);
            let sequence = annotation(lease, names::LEDGER_SEQUENCE);
            holder == Some(&self.ledger.options.identity)
                && epoch.and_then(|epoch| u64::try_from(epoch).ok()) == Some(self.epoch)
                && sequence.and_then(|text| text.parse().ok()) == Some(self.sequence)
        });
        if let Some(lease) = lease.filter(|_| ours) {
            self.version = version(&lease);
        }
        Some(ours)
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Formats `{"<uid>": "<namespace>/<name>"}`.
fn open_text(open: &BTreeMap<String, LedgerSubject>) -> String {
    let open: BTreeMap<&str, String> = open
        .iter()
        .map(|(uid, of)| (uid.as_str(), format!("{}/{}", of.namespace, of.name)))
        .collect();
    json!(open).to_string()
}

fn read(lease: &Lease) -> FoundLedger {
    let epoch = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    let epoch = epoch.and_then(|epoch| u64::try_from(epoch).ok());
    let open = match annotation(lease, names::LEDGER_OPEN) {
        None => Some(BTreeMap::new()),
        Some(text) => read_open(text),
    };
    if open.is_none() {
        tracing::error!(
            annotation = names::LEDGER_OPEN,
            "the ledger cannot be read: another client has written it; the open writes of the last leader are unknown"
        );
    }
    let newest = annotation(lease, names::LEDGER_NEWEST);
    FoundLedger {
        epoch: epoch.map_or(0, |epoch| epoch + 1),
        newest: newest
            .filter(|_| open.is_some())
            .and_then(|text| text.parse().ok()),
        open: open.unwrap_or_default(),
    }
}

fn read_open(text: &str) -> Option<BTreeMap<String, LedgerSubject>> {
    let open: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
    let subjects = open.into_iter().map(|(uid, of)| {
        let (namespace, name) = of.split_once('/')?;
        let subject = LedgerSubject {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Some((uid, subject))
    });
    subjects.collect()
}

fn annotation<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    let all = lease.metadata.annotations.as_ref()?;
    all.get(name).map(String::as_str)
}

fn version(lease: &Lease) -> String {
    lease.metadata.resource_version.clone().unwrap_or_default()
}
