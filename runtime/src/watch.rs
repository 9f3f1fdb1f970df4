//! Watches one kind: it lists, then watches, and sends deltas into a bounded channel.
//!
//! ```text
//! list pages ─► Upserted… ─► (known objects that were not listed) Gone… ─► Listed
//!      ▲                                                                   │
//!      └── 410, or the watch cannot be resumed ◄── watch events ◄──────────┘
//! ```
//!
//! The versions of a server whose etcd was restored from a snapshot are lower than those seen before. A
//! watch from a version in the future would show nothing until the server reaches it, without an error. So
//! before a watch is resumed, the server's version is read, and if it is lower, everything is listed again
//! ([`WatchOptions::restart`]). A server that has reached the version again by then cannot be distinguished
//! from one that was never restored.
//!
//! It does not use kube's `watcher`, which hides three things that are needed: bookmarks and quiet restarts
//! (the age of the data), objects that were deleted while the connection was down (mark and sweep), and a
//! 410 as the HTTP status of a watch's start, on which kube's watcher repeats the same version for ever.
//!
//! It ends only when its token is cancelled, never drops a delta (it waits for space in the channel), and
//! no single object can stop it: an object that cannot be decoded is skipped, counted and logged by name.

mod back;
mod delta;
mod list;
mod metrics;
mod pause;
#[cfg(test)]
mod tests;

pub use delta::{Delta, ObjectKey};
pub use metrics::WatchMetrics;

use crate::client::{CallError, with_deadline};
use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject, WatchEvent, WatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Options of a watch.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// Label selector.
    pub labels: Option<String>,
    /// Field selector.
    pub fields: Option<String>,
    /// Objects per page of a list.
    pub page_size: u32,
    /// After how long the server ends a watch and the loop starts the next. It limits how long a dead
    /// connection goes unnoticed, so it is far below kube's default of 290 s.
    pub timeout: Duration,
    /// True if a kind that the server does not serve counts as one without objects. Otherwise the loop waits
    /// for it, and does not report it as listed.
    pub absent_is_empty: bool,
    /// True if a kind that may not be listed is reported as listed, with its last known objects: components
    /// that need all kinds then do not wait for it.
    pub denied_is_listed: bool,
    /// Is true while the kind may not be listed, and set before that is reported as listed. It tells a kind without
    /// objects from one whose objects are not known.
    pub denied: Option<Arc<AtomicBool>>,
    /// Cancelled when the server is seen to have gone back to an earlier state. Components that use the watch,
    /// and others of the same server, end with it and are rebuilt. Without it the watch lists again and
    /// continues.
    pub restart: Option<CancellationToken>,
    /// Where the watch reports its state.
    pub metrics: Option<WatchMetrics>,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            labels: None,
            fields: None,
            page_size: 500,
            timeout: Duration::from_secs(75),
            absent_is_empty: false,
            denied_is_listed: false,
            denied: None,
            restart: None,
            metrics: None,
        }
    }
}

/// Deadline of one page of a list, or of the start of a watch.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// How much longer than the server's own timeout a watch may be silent.
const IDLE_MARGIN: Duration = Duration::from_secs(5);
/// Number of watches in a row that failed to start or broke at once, after which the objects are listed
/// again: this server may never have had the version (restored from a backup).
const RELIST_AFTER_FAILURES: u32 = 3;
/// Watches what `api` covers and sends each delta, wrapped by `wrap`, into `sink` until `cancel`, or until
/// the receiver is dropped. `kind` names it in logs and metrics, where each watch should have a name of its
/// own (`member1/Node`).
pub fn watch<K, M>(
    api: Api<K>,
    options: WatchOptions,
    kind: impl Into<String>,
    wrap: impl Fn(Delta<K>) -> M + Send + 'static,
    sink: mpsc::Sender<M>,
    cancel: CancellationToken,
) -> JoinHandle<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    M: Send + 'static,
{
    let kind = kind.into();
    let metrics = options.metrics.clone().unwrap_or_default();
    let mut watching = Watching {
        report: Reporter::new(kind, metrics),
        api,
        options,
        wrap,
        sink,
        known: HashMap::new(),
        list_number: 0,
        reached: 0,
    };
    crate::task::spawn(async move {
        // A closed channel means that the deltas are no longer needed.
        let _ = cancel.run_until_cancelled(watching.run()).await;
        watching.report.ended();
    })
}

/// Does the same as [`watch`] for a kind that is known only at run time, in `namespace` or everywhere.
pub fn watch_dynamic<M: Send + 'static>(
    client: Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    options: WatchOptions,
    wrap: impl Fn(Delta<DynamicObject>) -> M + Send + 'static,
    sink: mpsc::Sender<M>,
    cancel: CancellationToken,
) -> JoinHandle<()> {
    let kind = match resource.group.is_empty() {
        true => resource.kind.clone(),
        false => format!("{}.{}", resource.kind, resource.group),
    };
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    watch(api, options, kind, wrap, sink, cancel)
}

/// The receiver of the deltas is gone.
struct Closed;

/// Why a watch ended.
enum WatchEnd {
    /// The server ended it, or it was silent: resume at the last version.
    Resume,
    /// The version is too old: list again.
    Relist,
    /// The server is at this version, which is lower than an earlier one.
    WentBack(u64),
    /// It failed: resume after a pause.
    Failed(CallError),
}

struct Watching<K, M, W: Fn(Delta<K>) -> M> {
    report: Reporter,
    api: Api<K>,
    options: WatchOptions,
    wrap: W,
    sink: mpsc::Sender<M>,
    /// The objects that were sent as existing.
    known: HashMap<ObjectKey, KnownObject>,
    /// Number of the present list, or of the last one.
    list_number: u64,
    /// The highest version at which the server was seen.
    reached: u64,
}

/// An object that was sent as existing.
struct KnownObject {
    /// Fingerprint of its UID.
    uid: u64,
    /// The list that it was last seen in or after: the mark of mark and sweep.
    list_number: u64,
}

impl<K, M, W> Watching<K, M, W>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    W: Fn(Delta<K>) -> M,
{
    async fn run(&mut self) -> Result<(), Closed> {
        let mut failures = backoff();
        let mut absences = absent_backoff();
        loop {
            match self.list().await? {
                Ok(version) => {
                    absences = absent_backoff();
                    if self.follow(version).await? {
                        failures = backoff();
                    }
                    // Whatever ended the watch, a server in trouble gets a pause.
                    pause(&mut failures).await;
                }
                Err(error) if error.code() == Some(404) => {
                    self.absent(&error).await?;
                    pause(&mut absences).await;
                }
                Err(error) => {
                    self.report.failed("list", &error);
                    if error.code() == Some(403) && self.options.denied_is_listed {
                        self.note_denied(true);
                        self.send(Delta::Listed).await?;
                    }
                    wait(&mut failures, error.retry_after()).await;
                }
            }
        }
    }

    /// Sends all existing objects and sweeps the others; returns the version of the list.
    async fn list(&mut self) -> Result<Result<String, CallError>, Closed> {
        self.list_number += 1;
        let mut continue_token = None;
        let version = loop {
            let page = list::page(&self.api, &self.options, continue_token.as_deref());
            let page = match page.await {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            self.report.contact();
            self.report.skipped(&page.skipped);
            for object in page.objects {
                self.upserted(object).await?;
            }
            // An object that cannot be decoded still exists, in its last known state if there is one.
            for key in page.skipped {
                if let Some(known) = self.known.get_mut(&key) {
                    known.list_number = self.list_number;
                }
            }
            match page.continue_token {
                Some(token) => continue_token = Some(token),
                None => break page.version,
            }
        };
        if let Some(now) = back::earlier(&version, self.reached) {
            self.went_back(now);
        }
        self.reached = back::number(&version).unwrap_or(0);
        self.sweep().await?;
        Ok(Ok(version))
    }

    /// Sends known objects that the present list did not have as gone.
    async fn sweep(&mut self) -> Result<(), Closed> {
        let current = self.list_number;
        let gone: Vec<ObjectKey> = self
            .known
            .extract_if(|_, known| known.list_number != current)
            .map(|(key, _)| key)
            .collect();
        for key in gone {
            self.send(Delta::Gone(key)).await?;
        }
        self.report.listed(self.known.len());
        self.note_denied(false);
        self.send(Delta::Listed).await
    }

    fn note_denied(&self, is_denied: bool) {
        if let Some(denied) = &self.options.denied {
            denied.store(is_denied, Ordering::Relaxed);
        }
    }

    /// Handles a kind that is not served (any more).
    async fn absent(&mut self, error: &CallError) -> Result<(), Closed> {
        self.report.failed("list", error);
        match self.options.absent_is_empty {
            true => {
                self.report.absent();
                self.sweep().await
            }
            false => Ok(()),
        }
    }

    /// Watches from `version` on, with any number of watches, until the objects must be listed again. Returns
    /// true if any watch succeeded.
    async fn follow(&mut self, mut version: String) -> Result<bool, Closed> {
        let mut did_well = false;
        let mut in_a_row = 0;
        let mut failures = backoff();
        let mut is_first = true;
        loop {
            let before = version.clone();
            let end = match std::mem::take(&mut is_first) {
                true => self.watch_once(&mut version).await?,
                false => self.resume(&mut version).await?,
            };
            self.reached = self.reached.max(back::number(&version).unwrap_or(0));
            match end {
                WatchEnd::Relist => return Ok(did_well),
                WatchEnd::WentBack(now) => {
                    self.went_back(now);
                    self.reached = 0;
                    return Ok(did_well);
                }
                WatchEnd::Resume => {
                    did_well = true;
                    in_a_row = 0;
                    failures = backoff();
                    if version == before {
                        // It ended without an event, which a server that is shutting down does repeatedly.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
                WatchEnd::Failed(error) => {
                    self.report.failed("watch", &error);
                    in_a_row = if version == before { in_a_row + 1 } else { 1 };
                    if in_a_row >= RELIST_AFTER_FAILURES {
                        return Ok(did_well);
                    }
                    wait(&mut failures, error.retry_after()).await;
                }
            }
        }
    }

    /// Watches from `version` on, if the server has not gone back.
    async fn resume(&mut self, version: &mut String) -> Result<WatchEnd, Closed> {
        match list::version(&self.api, &self.options).await {
            Ok(now) => match back::earlier(&now, self.reached) {
                Some(now) => Ok(WatchEnd::WentBack(now)),
                None => self.watch_once(version).await,
            },
            Err(error) => Ok(ended_by(error)),
        }
    }

    /// Handles a server that has gone back to an earlier state.
    fn went_back(&mut self, now: u64) {
        self.report.went_back(self.reached, now);
        if let Some(restart) = &self.options.restart {
            restart.cancel();
        }
    }

    async fn watch_once(&mut self, version: &mut String) -> Result<WatchEnd, Closed> {
        let params = WatchParams {
            label_selector: self.options.labels.clone(),
            field_selector: self.options.fields.clone(),
            timeout: Some(u32::try_from(self.options.timeout.as_secs()).unwrap_or(75)),
            bookmarks: true,
            send_initial_events: false,
        };
        let started = with_deadline(self.api.watch(&params, version), CALL_LIMIT).await;
        let mut events = match started {
            Ok(events) => events.boxed(),
            Err(error) => return Ok(ended_by(error)),
        };
        self.report.contact();
        let limit = self.options.timeout + IDLE_MARGIN;
        loop {
            let Ok(Some(event)) = tokio::time::timeout(limit, events.next()).await else {
                return Ok(WatchEnd::Resume);
            };
            match event {
                Ok(event) => {
                    self.report.contact();
                    if let Some(end) = self.event(event, version).await? {
                        return Ok(end);
                    }
                    self.report.known(self.known.len());
                }
                Err(error) if is_undecodable(&error) => self.report.undecodable(&error),
                Err(error) => return Ok(ended_by(error.into())),
            }
        }
    }

    async fn event(
        &mut self,
        event: WatchEvent<K>,
        version: &mut String,
    ) -> Result<Option<WatchEnd>, Closed> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                advance(version, &object);
                self.upserted(object).await?;
            }
            WatchEvent::Deleted(object) => {
                advance(version, &object);
                let key = ObjectKey::of(&object);
                if let Entry::Occupied(known) = self.known.entry(key) {
                    let (key, _) = known.remove_entry();
                    self.send(Delta::Gone(key)).await?;
                }
            }
            WatchEvent::Bookmark(bookmark) => {
                let now = &bookmark.metadata.resource_version;
                if let Some(now) = back::earlier(now, back::number(version).unwrap_or(0)) {
                    return Ok(Some(WatchEnd::WentBack(now)));
                }
                version.clone_from(now);
            }
            WatchEvent::Error(status) => {
                return Ok(Some(ended_by(kube::Error::Api(status.boxed()).into())));
            }
        }
        Ok(None)
    }

    /// Sends that `object` exists; first sends another known object of its name as gone.
    async fn upserted(&mut self, object: K) -> Result<(), Closed> {
        let key = ObjectKey::of(&object);
        let known = KnownObject {
            uid: fingerprint(&object),
            list_number: self.list_number,
        };
        let uid = known.uid;
        match self.known.insert(key.clone(), known) {
            Some(before) if before.uid != uid => self.send(Delta::Gone(key)).await?,
            _ => {}
        }
        self.send(Delta::Upserted(object)).await
    }

    async fn send(&mut self, delta: Delta<K>) -> Result<(), Closed> {
        let message = (self.wrap)(delta);
        self.sink.send(message).await.map_err(|_| Closed)
    }
}

use metrics::Reporter;
use pause::{absent_backoff, backoff, pause, wait};

fn ended_by(error: CallError) -> WatchEnd {
    match error.code() {
        Some(410) => WatchEnd::Relist,
        _ if back::is_too_large(&error) => WatchEnd::WentBack(0),
        _ => WatchEnd::Failed(error),
    }
}

/// Returns true if one event could not be decoded. kube tries to read such a line as a Status, whose fields
/// all have defaults, so that it mostly becomes an empty Status.
fn is_undecodable(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0 && status.status.is_none(),
        _ => false,
    }
}

fn advance<K: Resource>(version: &mut String, object: &K) {
    if let Some(newer) = &object.meta().resource_version {
        version.clone_from(newer);
    }
}

fn fingerprint<K: Resource>(object: &K) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.meta().uid.hash(&mut hasher);
    hasher.finish()
}
