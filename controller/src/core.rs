//! The owner task of the controller: it takes inputs in batches and makes one pass for each batch.
//!
//! ```text
//! inputs ──► mirror ──► work queue ──► reconciler ──► actions ──► effects
//!                                          │             ▲
//!                      engine.decide(now) ─┴─► decisions ┘
//!                      engine.take_changed() ──► statuses (coalesced)
//! ```
//!
//! Muster decides nothing before every watched kind has listed once and this replica leads ([`Leading`]).
//! Until then the core keeps the mirror up to date, and the engine's queues and members, and writes
//! nothing. The owner task never waits on the network: such work runs in its own task and its result comes
//! back as an input.

use crate::avoided_nodes::RemediationCounts;
use crate::effects::Effects;
use crate::ingest::readiness::Readiness;
use crate::ingest::template_watches::TemplateWatches;
use crate::invariants::Timer;
use crate::messages::input::Input;
use crate::mirror::binding::is_workload;
use crate::mirror::template::{TemplateKey, TemplateKind};
use crate::mirror::template_key;
use crate::reconcile::{Reconciler, remains};
use crate::status::{Publisher, Publishing};
use binding_writer::term::Lead;
use engine::{JobKey, Time};
use runtime::clock::Clock;
use runtime::health::ReadyFlag;
use runtime::lease::Heart;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

mod absorb;
mod actions;
mod own_objects;
#[cfg(test)]
mod tests;

/// Most inputs in one batch.
const BATCH: usize = 1024;

/// Whether the core decides. It starts to decide once; a replica that stops leading drops its core.
#[derive(Debug)]
pub(crate) enum Leading {
    /// Another replica leads, or none does yet.
    Follows,
    /// This replica leads, but its mirror may be older than what leaders have written.
    CatchesUp(Lead),
    /// The core decides.
    Leads,
}

/// All state that a replica owns during one life.
pub(crate) struct Core {
    pub(crate) role: Leading,
    /// Source of the engine's time.
    pub(crate) clock: Clock,
    /// Beats while this task makes progress.
    pub(crate) heart: Heart,
    pub(crate) reconciler: Reconciler,
    pub(crate) effects: Effects,
    pub(crate) publisher: Publisher,
    /// The `muster` policies that differ from their desired state, with the version last seen.
    pub(crate) policies_seen: BTreeMap<String, u64>,
    pub(crate) readiness: Readiness,
    pub(crate) template_watches: TemplateWatches,
    pub(crate) invariants: Timer,
    pub(crate) ready_flag: ReadyFlag,
    /// When the engine is due to decide again without a new input.
    pub(crate) wake_at: Option<Time>,
}

impl Core {
    /// Runs until `cancel`: takes inputs in batches and makes one pass for each.
    pub(crate) async fn serve(
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

    /// Returns how long the task may sleep if no input comes.
    fn pause(&self, now: Time) -> std::time::Duration {
        const LONGEST_MS: u64 = 5_000;
        if !self.leads() {
            return std::time::Duration::from_millis(LONGEST_MS);
        }
        if !self.reconciler.out.work_queue.is_empty() || self.publisher.due.is_behind() {
            return std::time::Duration::from_millis(1);
        }
        let wakes = [
            self.wake_at,
            self.reconciler.out.work_queue.next_at(),
            self.publisher.reasons.next_due(),
            self.publisher.advice.next_due(),
            self.publisher.positions.next_due(),
            self.publisher.unselected.next_due(),
            self.publisher.due.namespaces.next_due(),
        ];
        let until = wakes.into_iter().flatten().min().map_or(LONGEST_MS, |at| {
            u64::try_from(at.millis_since(now)).unwrap_or(0)
        });
        std::time::Duration::from_millis(until.clamp(1, LONGEST_MS))
    }

    /// Makes one pass: reconcile the jobs that are due, decide, write, publish.
    fn pass(&mut self, now: Time) {
        if !self.may_decide(now) {
            return self.stand_by();
        }
        self.reconciler.out.work_queue.add_due(now);
        self.reconciler.look_at_quotas(now);
        for key in self.reconciler.out.work_queue.take() {
            self.heart.beat();
            let actions = self.reconciler.reconcile(&key, now);
            self.run(actions);
        }
        self.reconciler.keep_fleet(now);
        self.run_actions();
        match self.reconciler.enforcement.allows_decisions() {
            true => self.decide(now),
            // A change of the admission policies is an input and triggers another pass.
            false => self.wake_at = None,
        }
        self.reconciler.pre_pull(now);
        self.run_actions();
        self.effects.bindings.submit();
        let changed = self.reconciler.engine.take_changed();
        self.reconciler.queues.places.charged(&changed.queues);
        self.reconciler.queue_pass().keep_places(now);
        self.run_actions();
        self.publishing().publish(changed, now);
        self.run_actions();
        self.invariants
            .check(&self.reconciler.engine, &self.reconciler.out.metrics, now);
    }

    /// Lets the engine decide and carries its decisions out.
    fn decide(&mut self, now: Time) {
        let started = Instant::now();
        let decided = self.reconciler.engine.decide(now);
        self.reconciler
            .out
            .metrics
            .decided(started.elapsed(), decided.decisions.len());
        self.wake_at = self.reconciler.decided(decided, now);
    }

    /// Returns true if the core may decide: every watched kind has listed, and this replica leads.
    fn may_decide(&mut self, now: Time) -> bool {
        if self.leads() {
            return true;
        }
        if !self.has_listed(now) {
            return false;
        }
        match &self.role {
            Leading::CatchesUp(lead) if self.reconciler.mirror.newest_binding() >= lead.version => {
                lead.caught_up();
                self.begin(now);
                true
            }
            _ => false,
        }
    }

    /// Returns true if decisions are made and written.
    pub(crate) fn leads(&self) -> bool {
        matches!(self.role, Leading::Leads)
    }

    /// Returns true if every watched kind has listed.
    fn has_listed(&mut self, now: Time) -> bool {
        if self.readiness.is_ready() {
            return true;
        }
        if self.readiness.begin_with_templates() {
            for kind in self.reconciler.mirror.template_kinds() {
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
            bindings = self.reconciler.mirror.bindings().len(),
            templates = self.reconciler.mirror.templates().len(),
            queues = self.reconciler.mirror.queues().len(),
            "every watched kind has listed"
        );
        true
    }

    /// Starts to decide: adds every job to the work queue, whatever was observed while another replica led.
    fn begin(&mut self, now: Time) {
        self.role = Leading::Leads;
        remains::find_remains(&mut self.reconciler, now);
        self.reconciler
            .out
            .work_queue
            .extend(self.reconciler.mirror.bindings().keys().cloned());
        for (name, fact) in self.reconciler.mirror.namespaces() {
            self.publisher.namespace(name, Some(fact));
            self.publisher.due.namespaces.namespace(name);
        }
        let podgroups: Vec<JobKey> = self.reconciler.mirror.podgroups().keys().cloned().collect();
        for key in &podgroups {
            self.sweep_podgroup(key);
        }
        let mirror = &self.reconciler.mirror;
        for name in mirror.queues().keys().chain(mirror.policies().keys()) {
            self.publisher.due.queue(name);
        }
        self.reconciler.fleet.begin_fault_policies(mirror);
        for name in self.reconciler.mirror.fault_policies().keys() {
            self.publisher.due.fault_policy(name);
        }
        let templates: Vec<TemplateKey> =
            self.reconciler.mirror.templates().keys().cloned().collect();
        for template in templates {
            self.warn(&template);
            self.publishing().note_unselected(&template, now);
        }
        self.ready_flag.set(true);
        tracing::info!("deciding from now on");
    }

    /// Empties the work queue and pending publications while another replica leads; the core adds every job
    /// when it starts to decide.
    fn stand_by(&mut self) {
        for key in self.reconciler.out.work_queue.take() {
            let Some(binding) = self.reconciler.mirror.bindings().get(&key) else {
                continue;
            };
            if is_workload(binding) && self.reconciler.mirror.template_of(binding).is_none() {
                self.watch_kind(template_key(binding).kind);
            }
        }
        self.publisher.clear();
        self.publisher
            .not_running
            .export(&self.reconciler.out.metrics);
        self.reconciler.jobs.lost_pods.stand_by();
        self.reconciler.fleet.breakers.stand_by();
        self.reconciler.fleet.avoided_nodes.stand_by();
        self.reconciler.out.metrics.nodes_avoided.set(0);
        self.reconciler
            .out
            .metrics
            .remediations
            .set(RemediationCounts::default());
        self.reconciler.out.metrics.clusters_paused.set(0);
        self.reconciler.engine.take_changed();
    }

    /// Starts the watch of a template kind if it does not run yet.
    pub(crate) fn watch_kind(&mut self, kind: TemplateKind) {
        if self.template_watches.ensure(&kind) {
            self.readiness.expect_template(kind);
        }
    }

    /// Starts the watches of kinds whose objects no policy of Muster selects. No decision waits for them, so
    /// they begin after the others.
    pub(crate) fn watch_unselected(&mut self, kinds: &BTreeSet<TemplateKind>) {
        if self.leads() {
            for kind in kinds {
                self.template_watches.ensure(kind);
            }
        }
    }

    /// Returns what publishing reads and changes.
    pub(crate) fn publishing(&mut self) -> Publishing<'_> {
        Publishing {
            reconciler: &mut self.reconciler,
            publisher: &mut self.publisher,
        }
    }

    /// Deletes a PodGroup that nothing owns and that has no job, if this replica leads.
    pub(crate) fn sweep_podgroup(&mut self, key: &JobKey) {
        if self.leads() {
            self.publishing().sweep_podgroup(key);
        }
    }

    /// Returns the time; only shells read the clock.
    pub(crate) fn now(&self) -> Time {
        Time(self.clock.now().as_millisecond())
    }
}
