//! The controller's one owner task: it holds the engine and the mirror, and nothing else may
//! touch them.
//!
//! ```text
//! inputs ──► mirror ──► dirty jobs ──► reconcile ──► engine events, binding writes
//!                                         │
//!                     engine.decide(now) ─┴─► plans, take-backs ──► scheduler, committer
//!                     engine.take_changed() ──► statuses (coalesced)
//! ```
//!
//! No decision is taken before every watched kind has listed once, and none before this replica
//! leads: until then the mirror, and what the engine knows of queues and members, are kept up to
//! date, and nothing is written ([`Role`]). Nothing here waits on the
//! network: what does runs in a task of its own and comes back as an input.

use crate::Mode;
use crate::admission_policies::Enforcement;
use crate::effects::rights::Rights;
use crate::effects::works_reader::WorksReader;
use crate::facts::queue_places::Places;
use crate::ingest::input::Input;
use crate::ingest::readiness::Readiness;
use crate::ingest::template_watches::TemplateWatches;
use crate::invariants::Timer;
use crate::metrics::Metrics;
use crate::mirror::template::{TemplateKey, TemplateKind};
use crate::mirror::{Mirror, template_key};
use crate::reconcile::adoption::Marking;
use crate::reconcile::binding_phase::is_workload;
use crate::reconcile::in_flight::{InFlight, version};
use crate::reconcile::placed::shrink::LivePods;
use crate::status::Publisher;
use crate::status::events::EventRecorder;
use binding_writer::overrides::Overrides;
use binding_writer::term::Lead;
use binding_writer::{Committer, Intent, Write};
use crds::karmada::ResourceBinding;
use engine::facts::JobFact;
use engine::{Engine, Event, JobKey, Time};
use members::Members;
use runtime::clock::Clock;
use runtime::health::ReadyFlag;
use runtime::lease::Heart;
use runtime::watch::Delta;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

#[cfg(test)]
mod tests;

/// Inputs taken up before the engine is asked again.
const BATCH: usize = 1024;

/// Whether the core decides. It begins to once; a replica that leads no longer drops it.
#[derive(Debug)]
pub(crate) enum Leading {
    /// Another leads, or nobody does yet.
    Follows,
    /// This replica leads, and the mirror may be behind what leaders wrote.
    CatchesUp(Lead),
    /// It decides.
    Leads,
}

/// The owner of engine and mirror.
pub(crate) struct Core {
    pub(crate) role: Leading,
    /// The newest version of any binding that was seen.
    pub(crate) seen: u64,
    /// What the engine's time is read from.
    pub(crate) clock: Clock,
    /// Milliseconds for which a job may ask for more than it was admitted with.
    pub(crate) override_grace_ms: i64,
    /// Beats while this task makes progress.
    pub(crate) heart: Heart,
    /// Whether decisions may be taken.
    pub(crate) enforcement: Enforcement,
    pub(crate) engine: Engine,
    pub(crate) mirror: Mirror,
    pub(crate) in_flight: HashMap<JobKey, InFlight>,
    /// The fact of each job that the engine was last given: the same is not applied twice.
    pub(crate) last_facts: HashMap<JobKey, JobFact>,
    pub(crate) dirty: BTreeSet<JobKey>,
    /// Jobs to look at again, and when, whatever comes in.
    pub(crate) later: BTreeSet<(Time, JobKey)>,
    /// Bindings that are no workloads and go to every cluster: looked at when clusters change.
    pub(crate) spread_bindings: BTreeSet<JobKey>,
    /// Jobs that are split only where their pods can find each other.
    pub(crate) rendezvous_jobs: BTreeSet<JobKey>,
    /// Jobs whose record this version cannot act on.
    pub(crate) untouched: BTreeSet<JobKey>,
    /// Places of queues that their objects do not tell.
    pub(crate) places: Places,
    /// Writes decided in this pass.
    pub(crate) intents: Vec<Intent>,
    /// Namespaces whose mark of what was adopted there is to change.
    pub(crate) marking: Marking,
    /// Jobs whose bindings are gone and that still have Works: the permanent id of those.
    pub(crate) remains: BTreeMap<JobKey, String>,
    /// The policies `muster` that differ from what they should be, as they were last seen.
    pub(crate) policies_seen: BTreeMap<String, u64>,
    /// Pods of jobs that members show.
    pub(crate) pods: LivePods,
    pub(crate) members: Members,
    pub(crate) mode: Mode,
    pub(crate) client: kube::Client,
    pub(crate) committer: Committer,
    pub(crate) inputs: mpsc::Sender<Input>,
    /// Questions to members, and removals of Works left behind, that may run at a time.
    pub(crate) checks: Arc<Semaphore>,
    /// Tells what Works are left, by fresh reads.
    pub(crate) works_reader: WorksReader,
    pub(crate) readiness: Readiness,
    pub(crate) template_watches: TemplateWatches,
    pub(crate) events: EventRecorder,
    /// Which namespaces may use which queues.
    pub(crate) rights: Rights,
    pub(crate) publisher: Publisher,
    pub(crate) overrides: Overrides,
    pub(crate) metrics: Metrics,
    pub(crate) invariants: Timer,
    pub(crate) ready_flag: ReadyFlag,
    /// When the engine wants to be asked again although nothing came in.
    pub(crate) wake_at: Option<Time>,
}

impl Core {
    /// Runs until `cancel`: takes inputs in batches and makes one pass for each.
    pub(crate) async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        cancel: CancellationToken,
    ) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            self.heart.beat();
            let pause = self.pause(self.now());
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                taken = inputs.recv_many(&mut batch, BATCH) => if taken == 0 { return },
                () = tokio::time::sleep(pause) => {}
            }
            let now = self.now();
            for input in batch.drain(..) {
                self.absorb(input, now);
            }
            self.pass(now);
        }
    }

    /// How long nothing can happen unless an input comes.
    fn pause(&self, now: Time) -> std::time::Duration {
        const LONGEST_MS: u64 = 5_000;
        if !self.leads() {
            return std::time::Duration::from_millis(LONGEST_MS);
        }
        if !self.dirty.is_empty() || self.publisher.is_behind() {
            return std::time::Duration::from_millis(1);
        }
        let later = self.later.first().map(|(at, _)| *at);
        let until = [self.wake_at, later]
            .into_iter()
            .flatten()
            .min()
            .map_or(LONGEST_MS, |at| {
                u64::try_from(at.millis_since(now)).unwrap_or(0)
            });
        std::time::Duration::from_millis(until.clamp(1, LONGEST_MS))
    }

    /// Files one input; what it may have changed becomes dirty.
    fn absorb(&mut self, input: Input, now: Time) {
        self.readiness.note(&input);
        match input {
            Input::Lead(lead) if !self.leads() => self.role = Leading::CatchesUp(lead),
            Input::Lead(lead) => lead.caught_up(),
            Input::Binding(delta) => {
                if let Delta::Upserted(binding) = &delta {
                    self.seen = self.seen.max(version(binding));
                }
                self.watch_record(&delta);
                // The watch may show the second of a name before a pass saw that the first went.
                if let Some(key) = self.mirror.is_another(&delta)
                    && !self.has_remains(&key)
                {
                    self.forget(&key);
                }
                if let Delta::Gone(object) = &delta {
                    let namespace = object.namespace.as_deref().unwrap_or_default();
                    self.has_remains(&JobKey::new(namespace, &object.name));
                }
                let key = self.mirror.binding(delta);
                self.dirty.extend(key);
            }
            Input::Work(delta) => {
                let key = self.mirror.work(delta);
                self.dirty.extend(key);
            }
            Input::Override(delta) => {
                let delta = delta.map(|policy| policy.metadata);
                self.override_policy(delta);
            }
            Input::ClusterOverride(delta) => {
                let delta = delta.map(|policy| policy.metadata);
                self.override_policy(delta);
            }
            Input::Template(kind, delta) => self.template(&kind, delta),
            Input::Namespace(delta) => {
                if let Some(namespace) = self.mirror.namespace(delta) {
                    self.dirty.extend(self.mirror.jobs_in(&namespace));
                    if self.leads() {
                        let fact = self.mirror.namespaces.get(&namespace);
                        self.publisher.namespace(&namespace, fact);
                    }
                    self.note_adoption(&namespace, now);
                }
            }
            Input::Propagation(delta) => self.propagation(delta),
            Input::Queue(delta) => self.queue(delta),
            Input::Policy(delta) => self.policy(delta),
            Input::PriorityClass(delta) => self.priority_class(delta),
            Input::ClaimTemplate(delta) => self.claim_template(delta),
            Input::PodGroup(delta) => self.podgroup(delta),
            Input::Member(event) => self.member(event),
            Input::Enforcement(enforcement) => {
                self.enforcement = enforcement;
                // What waiting jobs say has another reason now.
                let jobs: Vec<JobKey> = self.last_facts.keys().cloned().collect();
                jobs.iter().for_each(|key| self.publisher.job(key));
            }
            Input::Outcome(outcome) => self.outcome(outcome, now),
            Input::Prepared {
                key,
                attempt,
                result,
            } => self.prepared(&key, attempt, *result, now),
            Input::WorksChecked { key, uid, gone } => {
                self.works_checked(&key, uid.as_deref(), gone, now)
            }
            Input::PartsWritten {
                key,
                attempt,
                result,
            } => self.parts_written(&key, attempt, result),
            Input::ServicesSeen {
                key,
                attempt,
                result,
            } => self.services_seen(&key, attempt, result, now),
            Input::RightAsked {
                namespace,
                queue,
                allowed,
            } => self.right_asked(namespace, queue, allowed),
            Input::SizeChecked {
                key,
                attempt,
                cluster,
                small,
            } => self.size_checked(&key, attempt, cluster, small, now),
        }
    }

    /// One pass: reconcile what is dirty, decide, write, publish.
    fn pass(&mut self, now: Time) {
        if !self.may_decide(now) {
            return self.stand_by();
        }
        self.wake(now);
        for key in std::mem::take(&mut self.dirty) {
            self.heart.beat();
            self.reconcile(&key, now);
        }
        self.mark_adopted(now);
        match self.enforcement.lets_decide() {
            true => self.decide(now),
            // Asked again when that changes, which is an input.
            false => self.wake_at = None,
        }
        self.flush();
        self.publish(now);
        self.check_invariants(now);
    }

    /// Whether it decides: every watched kind has listed, and this replica leads.
    fn may_decide(&mut self, now: Time) -> bool {
        if self.leads() {
            return true;
        }
        if !self.has_listed(now) {
            return false;
        }
        match &self.role {
            Leading::CatchesUp(lead) if self.seen >= lead.version => {
                lead.caught_up();
                self.begin(now);
                true
            }
            _ => false,
        }
    }

    /// Whether decisions are taken and written.
    pub(crate) fn leads(&self) -> bool {
        matches!(self.role, Leading::Leads)
    }

    /// Whether every watched kind has listed.
    fn has_listed(&mut self, now: Time) -> bool {
        if self.readiness.is_ready() {
            return true;
        }
        if self.readiness.begin_with_templates() {
            for kind in self.mirror.template_kinds() {
                self.watch_kind(kind);
            }
        }
        if !self.readiness.became_ready(now) {
            tracing::debug!(
                missing = self.readiness.missing(),
                "not everything has listed yet"
            );
            return false;
        }
        tracing::info!(
            bindings = self.mirror.bindings.len(),
            templates = self.mirror.templates.len(),
            queues = self.mirror.queues.len(),
            "every watched kind has listed"
        );
        true
    }

    /// Begins to decide: every job is looked at, whatever was noted while another led.
    fn begin(&mut self, now: Time) {
        self.role = Leading::Leads;
        self.find_remains(now);
        self.dirty.extend(self.mirror.bindings.keys().cloned());
        for (name, fact) in &self.mirror.namespaces {
            self.publisher.namespace(name, Some(fact));
        }
        for name in self.mirror.queues.keys() {
            self.publisher.queue(name);
        }
        let templates: Vec<TemplateKey> = self.mirror.templates.keys().cloned().collect();
        for template in templates {
            self.warn(&template);
        }
        self.ready_flag.set(true);
        tracing::info!("deciding from now on");
    }

    /// Another decides: what would be looked at, or published, is all looked at when this
    /// replica begins to.
    fn stand_by(&mut self) {
        for key in std::mem::take(&mut self.dirty) {
            let Some(binding) = self.mirror.bindings.get(&key) else {
                continue;
            };
            if is_workload(binding) && self.mirror.template_of(binding).is_none() {
                self.watch_kind(template_key(binding).kind);
            }
        }
        self.publisher.rest();
        self.engine.take_changed();
    }

    /// Starts the watch of a template kind unless it runs.
    pub(crate) fn watch_kind(&mut self, kind: TemplateKind) {
        if self.template_watches.ensure(&kind) {
            self.readiness.expect_template(kind);
        }
    }

    /// The time, which only shells read.
    fn now(&self) -> Time {
        Time(self.clock.now().as_millisecond())
    }

    /// Applies an event to the engine.
    pub(crate) fn apply(&mut self, event: Event) {
        tracing::trace!(?event, "applied");
        self.engine.apply(event);
    }

    /// Notes a write of `binding` to be made in this pass. One is open at a time.
    pub(crate) fn write(&mut self, key: &JobKey, binding: &Arc<ResourceBinding>, mut write: Write) {
        if let Some(record) = write.record_mut() {
            record.queues_above = self.queues_above(&record.queue);
            let asked = self.last_facts.get(key).map(|fact| &fact.demand);
            crate::reconcile::placed::growth::keep_requests(record, binding, asked);
            self.keep_leaving(key, record);
        }
        self.write_as_it_is(key, binding, write);
    }

    /// The same of a record that says all already.
    pub(crate) fn write_as_it_is(
        &mut self,
        key: &JobKey,
        binding: &Arc<ResourceBinding>,
        write: Write,
    ) {
        self.in_flight_of(key).begin_write(binding, &write);
        self.intents.push(Intent {
            binding: Arc::clone(binding),
            write,
        });
    }

    /// What is in flight for `key`, made where there is none.
    pub(crate) fn in_flight_of(&mut self, key: &JobKey) -> &mut InFlight {
        self.in_flight.entry(key.clone()).or_default()
    }

    fn flush(&mut self) {
        if !self.intents.is_empty() {
            self.committer.submit(std::mem::take(&mut self.intents));
        }
    }

    /// Reconciles `key` again at `at`, whatever comes in until then.
    pub(crate) fn requeue_at(&mut self, key: &JobKey, at: Time) {
        self.later.insert((at, key.clone()));
    }

    /// Jobs whose time has come become dirty.
    fn wake(&mut self, now: Time) {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.later.pop_first() {
                self.dirty.insert(key);
            }
        }
    }
}
