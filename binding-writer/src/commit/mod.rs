//! Turns decisions into writes. Apart from the webhook's gate, no other code writes bindings.
//!
//! ```text
//! submit([Intent]) ─► one line per binding ─► opened in the ledger, all that wait in one write
//!                                                 │
//!                    merge patch at the version decided on ◄── 16 in flight
//!                      ├ 409: read; same facts? opened once more, again : Conflict
//!                      ├ no clear answer: read back and compare
//!                      └ written ─► closed in the ledger, Outcome; status follows behind
//! ```
//!
//! The version that guards a patch was read before the ledger opened the patch. So a leader that takes the
//! ledger later finds the patch there; a patch that it does not find has an outdated version
//! ([`crate::term`]).
//!
//! Never allowed here: a write without the resourceVersion that it was decided on; a write that the ledger
//! did not open after that version was read; a write while this process does not lead; two writes to one
//! binding at a time (except for its status); the outcome "failed" while the write may have been done. The
//! outcome of a write without a clear answer is unknown until the binding has been read back.

mod intent;
mod metrics;
mod patch;
mod status;
#[cfg(test)]
mod tests;
mod write;

pub use intent::{CommitOutcome, Intent, Write, WriteFailure, WriteKind, WrittenBinding};

use facts::JobKey;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::Client;
use metrics::CommitMetrics;
use runtime::lease::ledger::Ledger;
use runtime::{Leadership, Registry, Term, task};
use status::Behind;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// How long open writes may take to end at shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(8);
/// Most writes open in the ledger: those in flight and those that wait for that.
const OPEN: usize = 128;

/// Options of the committer.
#[derive(Debug, Clone)]
pub struct CommitOptions {
    /// Most writes in flight.
    pub in_flight: usize,
    /// How long a write is tried before it counts as unavailable. A write that may have been done is read back
    /// for as long as it takes, even after this deadline.
    pub deadline: Duration,
    /// Deadline of one call to the API server.
    pub call_limit: Duration,
    /// Field manager of the patches.
    pub field_manager: String,
}

impl Default for CommitOptions {
    fn default() -> Self {
        Self {
            in_flight: 16,
            deadline: Duration::from_secs(30),
            call_limit: Duration::from_secs(5),
            field_manager: "muster".to_owned(),
        }
    }
}

/// The handle of the committer; clones share it.
#[derive(Debug, Clone)]
pub struct Committer {
    inbox: mpsc::UnboundedSender<Vec<Intent>>,
}

impl Committer {
    /// Starts the committer. It sends one [`CommitOutcome`] for each [`Intent`] to `outcomes`, and waits for space
    /// there. With `term` it writes only during the term. At `cancel` it finishes the writes in flight and
    /// drops the rest: the next leader decides again.
    #[must_use]
    pub fn spawn(
        client: Client,
        options: CommitOptions,
        term: Option<Term>,
        outcomes: mpsc::Sender<CommitOutcome>,
        registry: &Registry,
        cancel: CancellationToken,
    ) -> Self {
        let (inbox, batches) = mpsc::unbounded_channel();
        let (behind, followers) = mpsc::unbounded_channel();
        let Term { leadership, ledger } = term.unwrap_or_else(Term::always);
        let context = Arc::new(CommitContext {
            client,
            leadership,
            ledger,
            metrics: CommitMetrics::new(registry),
            slots: Semaphore::new(options.in_flight.max(1)),
            options,
            writing: AtomicUsize::new(0),
        });
        let lines = Lines {
            context: context.clone(),
            outcomes,
            behind,
            waiting: HashMap::new(),
            ready: VecDeque::new(),
            in_flight: FuturesUnordered::new(),
        };
        task::spawn(lines.run(batches, cancel.clone()));
        task::spawn(status::follow(context, followers, cancel));
        Self { inbox }
    }

    /// Submits `batch`, which is written in order for each binding. This never blocks; callers limit the
    /// number of open writes, since each keeps one open intent for a binding. After shutdown nothing is
    /// written and no outcome comes.
    pub fn submit(&self, batch: Vec<Intent>) {
        // The receiver is gone only at shutdown.
        let _ = self.inbox.send(batch);
    }
}

/// What every write needs.
struct CommitContext {
    client: Client,
    leadership: Leadership,
    ledger: Option<Ledger>,
    metrics: CommitMetrics,
    options: CommitOptions,
    /// One permit for each write in flight.
    slots: Semaphore,
    /// Writes in flight, without statuses.
    writing: AtomicUsize,
}

/// One queue of intents for each binding, and the writes in flight.
struct Lines {
    context: Arc<CommitContext>,
    outcomes: mpsc::Sender<CommitOutcome>,
    behind: mpsc::UnboundedSender<Behind>,
    /// For every binding with a write that is ready or in flight, the intents after it.
    waiting: HashMap<JobKey, VecDeque<Intent>>,
    /// The first intent of each binding, not in flight yet.
    ready: VecDeque<Intent>,
    in_flight: FuturesUnordered<BoxFuture<'static, JobKey>>,
}

impl Lines {
    async fn run(
        mut self,
        mut batches: mpsc::UnboundedReceiver<Vec<Intent>>,
        cancel: CancellationToken,
    ) {
        loop {
            self.start();
            tokio::select! {
                () = cancel.cancelled() => break,
                Some(key) = self.in_flight.next() => self.ended(&key),
                batch = batches.recv() => match batch {
                    Some(batch) => batch.into_iter().for_each(|intent| self.enqueue(intent)),
                    None if self.in_flight.is_empty() => break,
                    None => {
                        // No new intents can arrive; the submitted ones are still written.
                        if let Some(key) = self.in_flight.next().await {
                            self.ended(&key);
                        }
                    }
                },
            }
        }
        let drained = async { while self.in_flight.next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_LIMIT, drained).await.is_err() {
            tracing::warn!(
                "writes did not end in time; what they did is read back at the next start"
            );
        }
    }

    fn enqueue(&mut self, intent: Intent) {
        match self.waiting.get_mut(&intent.key()) {
            Some(line) => line.push_back(intent),
            None => {
                self.waiting.insert(intent.key(), VecDeque::new());
                self.ready.push_back(intent);
            }
        }
    }

    fn start(&mut self) {
        while self.in_flight.len() < self.open() {
            let Some(intent) = self.ready.pop_front() else {
                return;
            };
            let write = carry_out(
                self.context.clone(),
                intent,
                self.outcomes.clone(),
                self.behind.clone(),
            );
            self.in_flight.push(Box::pin(write));
        }
    }

    /// Returns how many writes may be open. With a ledger these are more than may be in flight, so that writes
    /// do not wait for the ledger.
    fn open(&self) -> usize {
        let in_flight = self.context.options.in_flight;
        match self.context.ledger {
            Some(_) => OPEN.max(in_flight),
            None => in_flight,
        }
    }

    fn ended(&mut self, key: &JobKey) {
        match self.waiting.get_mut(key).and_then(VecDeque::pop_front) {
            Some(next) => self.ready.push_back(next),
            None => {
                self.waiting.remove(key);
            }
        }
    }
}

async fn carry_out(
    context: Arc<CommitContext>,
    intent: Intent,
    outcomes: mpsc::Sender<CommitOutcome>,
    behind: mpsc::UnboundedSender<Behind>,
) -> JobKey {
    let key = intent.key();
    let opened = write::Opened::ahead(&context, &intent).await;
    // The semaphore is never closed.
    let slot = context.slots.acquire().await;
    context.writing.fetch_add(1, Ordering::Relaxed);
    let span = tracing::info_span!("write_binding", job = %key, write = %intent.write.kind());
    let write = write::carry_out(&context, &intent, opened).instrument(span);
    let outcome = write.await;
    context.writing.fetch_sub(1, Ordering::Relaxed);
    drop(slot);
    if let Ok(written) = &outcome.result
        && let Some(status) = Behind::of(&intent, written)
    {
        // The receiving task ends only at shutdown; the next leader then catches up.
        let _ = behind.send(status);
    }
    // The receiver is gone only at shutdown.
    let _ = outcomes.send(outcome).await;
    key
}
