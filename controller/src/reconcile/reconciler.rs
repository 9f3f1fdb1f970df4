//! The owner of all state of reconciling. Each subject owns its part; a [`JobPass`] lends one job what its pass may
//! read and change.
//!
//! ```text
//! inputs ─► mirror ─► JobPass of one job ─► engine events
//!                            │
//!                            └─► Output: actions, jobs to reconcile, counts
//! ```
//!
//! It has no client, no clock and no channel: the time is an argument, and effects are returned as
//! [`ReconcileAction`]s. Except for the engine's facts, a restart derives all of it again.

use crate::facts::view::View;
use crate::messages::action::{Effect, ReconcileAction};
use crate::messages::enforcement::Enforcement;
use crate::metrics::ControllerMetrics;
use crate::mirror::Mirror;
use crate::reconcile::adoption::{Marking, mark_adopted};
use crate::reconcile::decisions;
use crate::reconcile::fleet::FleetState;
use crate::reconcile::in_flight::InFlight;
use crate::reconcile::job_pass::JobPass;
use crate::reconcile::known_jobs::KnownJobs;
use crate::reconcile::output::Output;
use crate::reconcile::pre_pull::pre_pull;
use crate::reconcile::queue_places::{QueuePass, Queues};
use crate::{OVERRIDE_GRACE_SECONDS, PODS_END_WITHIN_SECONDS};
use engine::{Decision, Decisions, Engine, Event, JobKey, Time};
use std::collections::HashMap;

/// Options that do not change during a life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReconcileOptions {
    /// Milliseconds for which a job may request more than was admitted.
    pub(crate) override_grace_ms: i64,
    /// Milliseconds for which an evicted job is charged at most until its pods have ended.
    pub(crate) pods_end_ms: i64,
    /// True if the scheduler runs in this process and one patch places a plan; otherwise a record in state
    /// Planned hands it over.
    pub(crate) places_itself: bool,
}

impl Default for ReconcileOptions {
    fn default() -> Self {
        Self {
            override_grace_ms: 1_000 * i64::from(OVERRIDE_GRACE_SECONDS),
            pods_end_ms: 1_000 * i64::from(PODS_END_WITHIN_SECONDS),
            places_itself: true,
        }
    }
}

/// See the module's documentation.
pub(crate) struct Reconciler {
    pub(crate) options: ReconcileOptions,
    /// Whether the admission policies allow decisions.
    pub(crate) enforcement: Enforcement,
    pub(crate) engine: Engine,
    pub(crate) mirror: Mirror,
    pub(crate) queues: Queues,
    /// Namespaces whose adoption mark has to change.
    pub(crate) marking: Marking,
    pub(crate) fleet: FleetState,
    pub(crate) jobs: KnownJobs,
    /// State of each job between passes.
    pub(crate) in_flight: HashMap<JobKey, InFlight>,
    pub(crate) out: Output,
}

impl Reconciler {
    /// Creates an empty state.
    pub(crate) fn new(
        options: ReconcileOptions,
        engine: Engine,
        enforcement: Enforcement,
        metrics: ControllerMetrics,
    ) -> Self {
        Self {
            options,
            enforcement,
            engine,
            mirror: Mirror::default(),
            queues: Queues::default(),
            marking: Marking::new(),
            fleet: FleetState::default(),
            jobs: KnownJobs::default(),
            in_flight: HashMap::new(),
            out: Output::new(metrics),
        }
    }

    /// Returns the actions since the last call, in order.
    pub(crate) fn take_actions(&mut self) -> Vec<ReconcileAction> {
        for (namespace, queue) in self.queues.rights.take_asked() {
            self.out.push(Effect::AskRight { namespace, queue });
        }
        self.out.take_actions()
    }

    /// Brings the engine and the binding of `key` in line with what is seen. Returns the actions to carry out,
    /// in order.
    pub(crate) fn reconcile(&mut self, key: &JobKey, now: Time) -> Vec<ReconcileAction> {
        self.reconcile_job(key, now);
        self.take_actions()
    }

    /// Does the same, but leaves the actions in the queue of this pass.
    pub(crate) fn reconcile_job(&mut self, key: &JobKey, now: Time) {
        crate::reconcile::reconcile_job(self, key, now);
    }

    /// Carries out the engine's decisions. Returns when the engine has to decide again without a new input.
    pub(crate) fn decided(&mut self, decided: Decisions, now: Time) -> Option<Time> {
        decisions::report_defects(&decided, &self.out.metrics);
        for decision in decided.decisions {
            let key = decision.key().clone();
            if self.jobs.untouched.contains(&key) {
                tracing::warn!(job = %key, "a decision is not carried out: the job's record cannot be read");
                continue;
            }
            let is_eviction = matches!(decision, Decision::Evict { .. });
            self.fleet.note_decision(&decision);
            self.job(&key, now, |pass| decisions::carry_out(pass, decision));
            // The placed binding still has the old admission: reconciling it writes the new one.
            if is_eviction {
                self.out.work_queue.add(&key);
                self.reconcile_job(&key, now);
            }
        }
        match decided.more {
            true => Some(now),
            false => decided.wake_at,
        }
    }

    /// Follows clusters, nodes and namespaces: what is due of them at `now`.
    pub(crate) fn keep_fleet(&mut self, now: Time) {
        let Self {
            engine,
            mirror,
            marking,
            fleet,
            jobs,
            out,
            ..
        } = self;
        mark_adopted(marking, mirror, out, now);
        fleet.taint_nodes(engine, out, now);
        fleet.pause_clusters(engine, jobs, out, now);
        fleet.leave_ending_nodes(engine, out, now);
    }

    /// Requests the Works that pull images, and the deletion of those that are not needed any more.
    pub(crate) fn pre_pull(&mut self, now: Time) {
        let pulls = &mut self.fleet.pre_pulls;
        pre_pull(pulls, &self.mirror, &self.engine, &mut self.out, now);
    }

    /// Lends a pass of the job `key` what it may read and change. A job without a binding has no pass: it is forgotten
    /// when it is reconciled.
    pub(crate) fn job(&mut self, key: &JobKey, now: Time, run: impl FnOnce(&mut JobPass<'_>)) {
        let Some(binding) = self.mirror.bindings().get(key).cloned() else {
            return;
        };
        run(&mut JobPass {
            key,
            binding: &binding,
            now,
            options: self.options,
            enforcement: &self.enforcement,
            engine: &mut self.engine,
            mirror: &mut self.mirror,
            queues: &mut self.queues,
            fleet: &self.fleet,
            jobs: &mut self.jobs,
            in_flight: self.in_flight.entry(key.clone()).or_default(),
            out: &mut self.out,
        });
    }

    /// Does the same for an answer, unless the job has been forgotten since the question.
    pub(crate) fn answer(&mut self, key: &JobKey, now: Time, run: impl FnOnce(&mut JobPass<'_>)) {
        if self.in_flight.contains_key(key) {
            self.job(key, now, run);
        }
    }

    /// Lends what the places of queues are kept by.
    pub(crate) fn queue_pass(&mut self) -> QueuePass<'_> {
        QueuePass {
            places: &mut self.queues.places,
            mirror: &mut self.mirror,
            engine: &mut self.engine,
            jobs: &self.jobs,
            out: &mut self.out,
        }
    }

    /// Returns what the facts of jobs are computed from.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            mirror: &self.mirror,
            engine: &self.engine,
            rights: &self.queues.rights,
            ending_nodes: &self.fleet.ending_nodes,
            member_rules: &self.fleet.member_rules,
            last_facts: &self.jobs.last_facts,
        }
    }

    /// Applies an event to the engine.
    pub(crate) fn apply(&mut self, event: Event) {
        apply(&mut self.engine, event);
    }
}

/// Applies an event to the engine.
pub(crate) fn apply(engine: &mut Engine, event: Event) {
    tracing::trace!(?event, "applied");
    engine.apply(event);
}
