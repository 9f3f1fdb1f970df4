//! Coalesces status writes: the newest wins, at most one a second for each object, and none without a
//! change.
//!
//! ```text
//! write(target, patch) ─► per object: newest patch, fingerprint of the last one written
//!                              └─► due? different? a slot free? ─► merge patch
//! ```
//!
//! Statuses are for people; no decision reads them. So callers never wait for a write, and a patch that is
//! replaced before it was sent is dropped. Do not use it for writes that may not be lost or reordered.

mod table;
#[cfg(test)]
mod tests;

use crate::client::{CallError, CallFault, with_deadline};
use crate::lease::Leadership;
use crate::metrics::Registry;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use table::{StatusPatch, StatusTable};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Deadline of one write.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// The object, or the part of it, that is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatusTarget {
    /// Its kind.
    pub api_resource: ApiResource,
    /// Its namespace; `None` for cluster scope.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// `Some("status")` for kinds with a status subresource.
    pub subresource: Option<&'static str>,
    /// True if patches merge lists by their keys (strategic merge patches), as only built-in kinds allow.
    pub strategic: bool,
}

/// Options of the writer.
#[derive(Debug, Clone)]
pub struct StatusWriterOptions {
    /// Most writes in flight.
    pub in_flight: usize,
    /// Least time between two writes of one object.
    pub interval: Duration,
    /// How long the first write after a pause is delayed, so that changes in quick succession (decided,
    /// placed, running) become one write.
    pub settle: Duration,
    /// Field manager of the patches.
    pub field_manager: String,
    /// If set, nothing is sent while this process does not lead; it waits.
    pub leadership: Option<Leadership>,
    /// If set, the registry of the metrics.
    pub registry: Option<Registry>,
}

impl Default for StatusWriterOptions {
    fn default() -> Self {
        Self {
            in_flight: 16,
            interval: Duration::from_secs(1),
            settle: Duration::ZERO,
            field_manager: "muster".to_owned(),
            leadership: None,
            registry: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabel {
    kind: String,
    result: WriteResult,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum WriteResult {
    Written,
    /// The object is gone.
    Gone,
    /// The server refuses the patch.
    Refused,
    /// The object has changed since the version that the patch is for.
    Outdated,
    /// It will be sent again.
    Retried,
}

/// Takes status patches and sends them. Clones share it.
#[derive(Clone, Debug)]
pub struct StatusWriter {
    table: Arc<Mutex<StatusTable>>,
    wake: Arc<Notify>,
}

impl StatusWriter {
    /// Starts a writer with `in_flight` writes at a time and defaults for the rest.
    #[must_use]
    pub fn spawn(client: Client, in_flight: usize, cancel: CancellationToken) -> Self {
        let options = StatusWriterOptions {
            in_flight,
            ..StatusWriterOptions::default()
        };
        Self::spawn_with(client, options, cancel)
    }

    /// Starts a writer. Patches that are not sent when `cancel` comes are dropped: the next leader computes
    /// them again.
    #[must_use]
    pub fn spawn_with(
        client: Client,
        options: StatusWriterOptions,
        cancel: CancellationToken,
    ) -> Self {
        let writer = Self {
            table: Arc::new(Mutex::new(StatusTable::new(
                options.interval,
                options.settle,
            ))),
            wake: Arc::new(Notify::new()),
        };
        let mut counts = Family::<WriteLabel, Counter>::default();
        if let Some(registry) = &options.registry {
            counts = registry.register("status_writes", "Status writes", counts);
        }
        let sending = Sending {
            client,
            options,
            writer: writer.clone(),
            counts,
            in_flight: FuturesUnordered::new(),
        };
        crate::task::spawn(async move { cancel.run_until_cancelled(sending.run()).await });
        writer
    }

    /// Submits `patch` (a JSON merge patch of the whole object) for `target`. It replaces an earlier patch
    /// that was not sent yet. A patch with a `metadata.resourceVersion` is dropped if the object has another
    /// version when it arrives: the caller sees that version later and submits again.
    pub fn write(&self, target: StatusTarget, patch: Value) {
        if self.table.lock().submit(target, patch, Instant::now()) {
            self.wake.notify_one();
        }
    }

    /// Drops what was submitted and sent: the object is gone, or another client wrote it and the next patch
    /// must be sent even if it is the same.
    pub fn forget(&self, target: &StatusTarget) {
        self.table.lock().forget(target);
    }

    /// Returns how many objects wait for a write or for its answer.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.table.lock().pending()
    }
}

struct Sending {
    client: Client,
    options: StatusWriterOptions,
    writer: StatusWriter,
    counts: Family<WriteLabel, Counter>,
    in_flight: FuturesUnordered<BoxFuture<'static, (StatusPatch, Result<(), CallError>)>>,
}

impl Sending {
    async fn run(mut self) {
        loop {
            self.await_leadership().await;
            let next_due = self.start_due();
            tokio::select! {
                Some((job, outcome)) = self.in_flight.next() => self.ended(job, outcome),
                () = self.writer.wake.notified() => {}
                () = until(next_due) => {}
            }
        }
    }

    async fn await_leadership(&mut self) {
        if let Some(leadership) = &mut self.options.leadership {
            leadership.leading().await;
        }
    }

    /// Sends what is due, as far as slots are free, and returns when the next is due if a slot is free.
    fn start_due(&mut self) -> Option<Instant> {
        while self.in_flight.len() < self.options.in_flight {
            let Some(job) = self.writer.table.lock().take_due(Instant::now()) else {
                return self.writer.table.lock().next_due();
            };
            let call = send(self.client.clone(), self.options.field_manager.clone(), job);
            self.in_flight.push(Box::pin(call));
        }
        None
    }

    fn ended(&self, job: StatusPatch, outcome: Result<(), CallError>) {
        let now = Instant::now();
        let kind = job.target.api_resource.kind.clone();
        let mut table = self.writer.table.lock();
        let result = match outcome {
            Ok(()) => {
                table.written(&job, now);
                WriteResult::Written
            }
            Err(error) => match error.fault() {
                CallFault::NotFound => {
                    table.dropped(&job);
                    WriteResult::Gone
                }
                CallFault::Refused => {
                    let name = &job.target.name;
                    let namespace = job.target.namespace.as_deref();
                    let error = error.message();
                    tracing::warn!(
                        kind,
                        namespace,
                        name,
                        error,
                        "the API server refused a status"
                    );
                    table.refused(&job, now);
                    WriteResult::Refused
                }
                CallFault::Conflict if !job.patch["metadata"]["resourceVersion"].is_null() => {
                    table.refused(&job, now);
                    WriteResult::Outdated
                }
                CallFault::NoSuchKind
                | CallFault::Conflict
                | CallFault::TryAgain
                | CallFault::Unknown => {
                    table.retry(job, error.retry_after(), now);
                    WriteResult::Retried
                }
            },
        };
        drop(table);
        self.counts
            .get_or_create(&WriteLabel { kind, result })
            .inc();
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn send(
    client: Client,
    field_manager: String,
    job: StatusPatch,
) -> (StatusPatch, Result<(), CallError>) {
    let target = &job.target;
    let api: Api<DynamicObject> = match &target.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &target.api_resource),
        None => Api::all_with(client, &target.api_resource),
    };
    let params = PatchParams {
        field_manager: Some(field_manager),
        ..PatchParams::default()
    };
    let patch = match target.strategic {
        true => Patch::Strategic(&job.patch),
        false => Patch::Merge(&job.patch),
    };
    let outcome = match target.subresource {
        Some(subresource) => {
            let call = api.patch_subresource(subresource, &target.name, &params, &patch);
            with_deadline(call, WRITE_LIMIT).await.map(drop)
        }
        None => {
            let call = api.patch_metadata(&target.name, &params, &patch);
            with_deadline(call, WRITE_LIMIT).await.map(drop)
        }
    };
    (job, outcome)
}
