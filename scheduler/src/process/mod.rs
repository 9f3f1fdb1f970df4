//! The scheduler as a process of its own: plans come as admission records.
//!
//! ```text
//! binding with a record in state Planned ─► template ─► demand ─► Scheduler::prepare
//!        ▲                                                          ├─► Place  (Admitted)
//!        └── the controller decides again ◄─────────────────────────┴─► Refuse (Refused)
//! ```
//!
//! It updates the status that Karmada's components expect from a scheduler on placed bindings, and does not
//! place a binding without a record: with the webhook away, no job runs that was not admitted. It never
//! decides; a restart derives everything under way again.

mod due;
mod events;
mod plan;
#[cfg(test)]
mod tests;

use crate::carry_out::{Refusal, Scheduler, SchedulerOptions};
use binding_writer::refusal::{self, ServerRefusal};
use binding_writer::term::{Lead, hold};
use binding_writer::{
    CommitOptions, CommitOutcome, Committer, Intent, Write, WriteFailure, WriteKind,
};
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, timestamp};
use due::{BindingTask, due};
use engine::{JobKey, Reason, Time};
use events::Events;
use kube::{Api, Client};
use members::{MemberEvent, Members, MembersOptions};
use plan::{PlanAnswer, prepare, refused};
use prometheus_client::metrics::counter::Counter;
use runtime::clock::Clock;
use runtime::health::{Health, ReadyFlag};
use runtime::kinds::KindCache;
use runtime::lease::ledger::{Ledger, LedgerOptions};
use runtime::lease::{Leadership, Term};
use runtime::metrics::Registry;
use runtime::task;
use runtime::watch::{Delta, ObjectKey, WatchMetrics, WatchOptions, watch};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Capacity of the channel of inputs; watches block beyond it.
const INPUTS: usize = 1024;
/// Most plans prepared at a time.
const PREPARING: usize = 16;
/// Time between two checks of what has to be retried.
const RETRY: Duration = Duration::from_secs(1);
/// Time before a write that was refused, or got no answer, is tried again.
const RETRY_WRITE: Duration = Duration::from_secs(15);
/// Number of retry checks between two checks of every binding.
const RETRIES_PER_SWEEP: u32 = 60;
/// Options of the process.
#[derive(Debug, Clone, Default)]
pub struct SchedulerProcessOptions {
    /// Options of the members' views.
    pub members: MembersOptions,
    /// Options of the binding writes.
    pub commit: CommitOptions,
    /// Where binding writes are opened first; none if no other replica competes.
    pub ledger: Option<LedgerOptions>,
}

/// Runs the scheduler until `cancel`. It watches and checks at all times, and writes while `leadership`
/// leads. After each term it starts again from the API server.
pub async fn run(
    client: Client,
    options: SchedulerProcessOptions,
    health: &Health,
    registry: &Registry,
    leadership: Leadership,
    cancel: CancellationToken,
) {
    while !cancel.is_cancelled() {
        let over = cancel.child_token();
        let term = Term {
            leadership: leadership.term(over.clone()),
            ledger: options
                .ledger
                .clone()
                .map(|ledger| Ledger::new(client.clone(), ledger, registry)),
        };
        let (inputs, receiver) = mpsc::channel(INPUTS);
        tokio::select! {
            () = live(&client, &options, &term, (health, registry), (inputs.clone(), receiver)) => {}
            () = hold(&client, &leadership, &term, &inputs, SchedulerInput::Lead) => {}
            () = cancel.cancelled() => {}
        }
        leadership.heart().rest();
        over.cancel();
    }
}

/// Follows all watches, and carries plans out from the beginning of `term` to its end.
async fn live(
    client: &Client,
    options: &SchedulerProcessOptions,
    term: &Term,
    (health, registry): (&Health, &Registry),
    (inputs, receiver): (mpsc::Sender<SchedulerInput>, mpsc::Receiver<SchedulerInput>),
) {
    let (client, over) = (term.client(client), term.leadership.over());
    let (outcomes, outcome_receiver) = mpsc::channel(INPUTS);
    let watch_metrics = options.members.watch_metrics.clone();
    let members = options.members.clone();
    let scheduler = spawn_scheduler(&client, members, registry, term, &over);
    let committer = Committer::spawn(
        client.clone(),
        options.commit.clone(),
        Some(term.clone()),
        outcomes,
        registry,
        over.clone(),
    );
    let process = SchedulerProcess::new(
        &client,
        scheduler,
        committer,
        (term.leadership.clone(), inputs.clone()),
        (health, registry),
        &over,
    );
    watch_bindings(&client, watch_metrics, inputs, &over);
    process.run(receiver, outcome_receiver, over).await;
}

fn spawn_scheduler(
    client: &Client,
    members: MembersOptions,
    registry: &Registry,
    term: &Term,
    cancel: &CancellationToken,
) -> Scheduler {
    let (sink, events) = mpsc::channel::<MemberEvent>(INPUTS);
    let members = MembersOptions {
        registry: registry.clone(),
        ..members
    };
    let members = Members::spawn(client.clone(), members, vec![sink], cancel.clone());
    let options = SchedulerOptions {
        term: Some(term.clone()),
        registry: registry.clone(),
    };
    Scheduler::spawn(client.clone(), members, events, options, cancel.clone())
}

fn watch_bindings(
    client: &Client,
    metrics: WatchMetrics,
    inputs: mpsc::Sender<SchedulerInput>,
    cancel: &CancellationToken,
) {
    let options = WatchOptions {
        metrics: Some(metrics),
        ..WatchOptions::default()
    };
    let bindings: Api<ResourceBinding> = Api::all(client.clone());
    watch(
        bindings,
        options,
        "resourcebindings",
        SchedulerInput::Binding,
        inputs,
        cancel.clone(),
    );
}

#[expect(clippy::large_enum_variant, reason = "most are bindings")]
enum SchedulerInput {
    Binding(Delta<ResourceBinding>),
    /// The result of preparing a plan.
    Prepared {
        ordered: Arc<ResourceBinding>,
        answer: Result<Write, PlanAnswer>,
    },
    /// The term has begun.
    Lead(Lead),
}

/// What is open for a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenStage {
    Preparing,
    Writing,
    /// Written; the watch has to show this version.
    Awaiting(u64),
    /// To be reconciled again then.
    Retrying(Instant),
}

struct SchedulerProcess {
    kinds: Arc<KindCache>,
    events: Events,
    committer: Committer,
    scheduler: Scheduler,
    leadership: Leadership,
    /// What the mirror has to show before anything is written, once the term has begun.
    lead: Option<Lead>,
    /// The highest resourceVersion of any binding seen so far.
    seen: u64,
    clock: Clock,
    inputs: mpsc::Sender<SchedulerInput>,
    slots: Arc<Semaphore>,
    ready: ReadyFlag,
    unadmitted: Counter,
    bindings: BTreeMap<JobKey, Arc<ResourceBinding>>,
    listed: bool,
    open: HashMap<JobKey, OpenStage>,
    /// Bindings to reconcile.
    dirty: BTreeSet<JobKey>,
}

impl SchedulerProcess {
    fn new(
        client: &Client,
        scheduler: Scheduler,
        committer: Committer,
        (leadership, inputs): (Leadership, mpsc::Sender<SchedulerInput>),
        (health, registry): (&Health, &Registry),
        cancel: &CancellationToken,
    ) -> Self {
        Self {
            kinds: Arc::new(KindCache::new(client.clone())),
            events: Events::spawn(client.clone(), cancel.clone()),
            committer,
            scheduler,
            leadership,
            lead: None,
            seen: 0,
            clock: Clock::new(),
            inputs,
            slots: Arc::new(Semaphore::new(PREPARING)),
            ready: health.ready_check("scheduler"),
            unadmitted: registry.register(
                "bindings_unadmitted",
                "Open bindings without an admission record, which are not placed",
                Counter::default(),
            ),
            bindings: BTreeMap::new(),
            listed: false,
            open: HashMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    async fn run(
        mut self,
        mut inputs: mpsc::Receiver<SchedulerInput>,
        mut outcomes: mpsc::Receiver<CommitOutcome>,
        cancel: CancellationToken,
    ) {
        let heart = self.leadership.heart();
        let mut ticks = interval(RETRY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut until_sweep = RETRIES_PER_SWEEP;
        loop {
            heart.beat();
            tokio::select! {
                () = cancel.cancelled() => return,
                Some(input) = inputs.recv() => self.input(input),
                Some(outcome) = outcomes.recv() => self.outcome(&outcome),
                _ = ticks.tick() => {
                    until_sweep -= 1;
                    if until_sweep == 0 {
                        until_sweep = RETRIES_PER_SWEEP;
                        self.all_dirty();
                    }
                    self.retry();
                }
            }
            self.reconcile_dirty();
        }
    }

    fn input(&mut self, input: SchedulerInput) {
        match input {
            SchedulerInput::Binding(Delta::Upserted(binding)) => {
                let key = binding.job_key();
                self.seen = self.seen.max(seen(&binding));
                self.bindings.insert(key.clone(), Arc::new(binding));
                self.dirty.insert(key);
            }
            SchedulerInput::Binding(Delta::Gone(key)) => self.gone(&key),
            SchedulerInput::Binding(Delta::Listed) => {
                self.listed = true;
                // The watch may never show a write, if the server was restored from an earlier state.
                self.open
                    .retain(|_, open| !matches!(open, OpenStage::Awaiting(_)));
            }
            SchedulerInput::Prepared { ordered, answer } => self.prepared(&ordered, answer),
            SchedulerInput::Lead(lead) => {
                self.lead = Some(lead);
                self.all_dirty();
            }
        }
    }

    fn gone(&mut self, key: &ObjectKey) {
        let key = JobKey::new(key.namespace.as_deref().unwrap_or_default(), &key.name);
        self.bindings.remove(&key);
        self.dirty.remove(&key);
        if self.open.get(&key) != Some(&OpenStage::Preparing) {
            self.open.remove(&key);
        }
        self.scheduler.forget(&key);
    }

    fn all_dirty(&mut self) {
        self.dirty.extend(self.bindings.keys().cloned());
    }

    fn retry(&mut self) {
        let now = Instant::now();
        let is_due = |open: &OpenStage| matches!(open, OpenStage::Retrying(at) if *at <= now);
        let again = self.open.extract_if(|_, open| is_due(open));
        self.dirty.extend(again.map(|(key, _)| key));
    }

    /// Reconciles dirty bindings, once everything that this depends on is known.
    fn reconcile_dirty(&mut self) {
        let ready = self.listed && self.scheduler.is_ready();
        self.ready.set(ready);
        if !ready || !self.leads() {
            return;
        }
        let now = self.now();
        for key in std::mem::take(&mut self.dirty) {
            if let Some(binding) = self.bindings.get(&key).cloned() {
                self.reconcile(&key, binding, now);
            }
        }
    }

    fn now(&self) -> Time {
        Time(self.clock.now().as_millisecond())
    }

    /// Returns true if the term has begun and the mirror shows what earlier leaders wrote.
    fn leads(&self) -> bool {
        let lead = self.lead.as_ref();
        let Some(lead) = lead.filter(|lead| self.seen >= lead.version) else {
            return false;
        };
        lead.caught_up();
        self.leadership.is_leading()
    }

    fn reconcile(&mut self, key: &JobKey, binding: Arc<ResourceBinding>, now: Time) {
        match self.open.get(key) {
            Some(OpenStage::Awaiting(version)) if seen(&binding) >= *version => {
                self.open.remove(key);
            }
            // Reconciled again when that ends.
            Some(_) => return,
            None => {}
        }
        match due(&binding, now) {
            BindingTask::Nothing { released: true } => {}
            BindingTask::Nothing { released: false } => self.scheduler.forget(key),
            BindingTask::CarryOut(record) => self.carry_out(key, binding, record),
            BindingTask::Write(write) => self.write(binding, write),
            BindingTask::Unadmitted => {
                let message = "it carries no admission record, so it is not placed; \
                               Muster's controller admits or gates it";
                if self.events.warn(&binding, "Unadmitted", message) {
                    tracing::warn!(job = %key, message);
                    self.unadmitted.inc();
                }
            }
        }
    }

    fn write(&mut self, binding: Arc<ResourceBinding>, write: Write) {
        self.open.insert(binding.job_key(), OpenStage::Writing);
        self.committer.submit(vec![Intent { binding, write }]);
    }

    fn carry_out(&mut self, key: &JobKey, binding: Arc<ResourceBinding>, record: AdmissionRecord) {
        self.open.insert(key.clone(), OpenStage::Preparing);
        let (kinds, scheduler) = (Arc::clone(&self.kinds), self.scheduler.clone());
        let (slots, inputs) = (Arc::clone(&self.slots), self.inputs.clone());
        let now = timestamp(self.now());
        task::spawn(async move {
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            let answer = prepare(&kinds, &scheduler, &binding, &record, now).await;
            // The loop ends only with the process.
            let _ = inputs
                .send(SchedulerInput::Prepared {
                    ordered: binding,
                    answer,
                })
                .await;
        });
    }

    fn prepared(&mut self, ordered: &Arc<ResourceBinding>, answer: Result<Write, PlanAnswer>) {
        let key = ordered.job_key();
        self.open.remove(&key);
        let write = match answer {
            Ok(write) => write,
            Err(PlanAnswer::Refuse(record)) => {
                tracing::info!(job = %key, attempt = record.attempt.0, message = record.message, "plan refused");
                Write::Refuse { record: *record }
            }
            Err(PlanAnswer::Later(why)) => {
                tracing::warn!(job = %key, why, "plan cannot be checked; trying again");
                self.open
                    .insert(key, OpenStage::Retrying(Instant::now() + RETRY));
                return;
            }
        };
        match self.bindings.contains_key(&key) {
            true => self.write(Arc::clone(ordered), write),
            false => self.scheduler.forget(&key),
        }
    }

    fn outcome(&mut self, outcome: &CommitOutcome) {
        let key = &outcome.key;
        self.open.remove(key);
        self.dirty.insert(key.clone());
        match &outcome.result {
            Ok(written) => {
                if let Ok(version) = written.resource_version.parse() {
                    self.open.insert(key.clone(), OpenStage::Awaiting(version));
                }
            }
            Err(failure) => {
                tracing::warn!(job = %key, write = %outcome.write, error = %failure, "not written");
                if outcome.write == WriteKind::Place {
                    self.scheduler.forget(key);
                }
                self.failed(key, outcome.write, failure);
            }
        }
    }

    fn failed(&mut self, key: &JobKey, write: WriteKind, failure: &WriteFailure) {
        let binding = self.bindings.get(key).cloned();
        match (failure, binding) {
            // The server refuses the placement: that is an answer to the plan.
            (WriteFailure::Refused { .. }, Some(binding)) if write == WriteKind::Place => {
                let now = self.now();
                if let BindingTask::CarryOut(record) = due(&binding, now) {
                    let refusal = Refusal {
                        reason: Reason::PlanRefused,
                        message: refusal::message(failure),
                        avoid: None,
                        lasting: ServerRefusal::of_placement(failure),
                    };
                    let record = refused(&record, &binding, &refusal, timestamp(now));
                    self.write(binding, Write::Refuse { record });
                }
            }
            // The present binding, or the present leader, is checked again.
            (WriteFailure::Conflict | WriteFailure::Gone | WriteFailure::NotLeading, _) => {}
            (WriteFailure::Refused { .. } | WriteFailure::Unavailable { .. }, _) => {
                let again = Instant::now() + RETRY_WRITE;
                self.open.insert(key.clone(), OpenStage::Retrying(again));
            }
        }
    }
}

/// Returns the version of `binding`. Versions of one API server are comparable integers (KEP-5504).
fn seen(binding: &ResourceBinding) -> u64 {
    binding
        .metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}
