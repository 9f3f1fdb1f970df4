//! Carries decisions out: plans go to the scheduler, placements and evictions to the committer.
//!
//! With the scheduler in this process, the scheduler checks a plan on its live view and prepares the
//! members; admission and placement are one patch. Otherwise the controller hands the plan over: it writes
//! the plan as a record in state Planned.

use crate::messages::action::Effect;
use crate::messages::job_event::JobEvent;
use crate::metrics::{EvictedPart, QueueSeries};
use crate::mirror::binding::own_record;
use crate::reconcile::in_flight::InFlight;
use crate::reconcile::{ReconcileCtx, Reconciler};
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, Parts, RecordState};
use engine::facts::Admission;
use engine::{Attempt, ClusterName, Decision, Decisions, Event, JobKey, QueueName, Reason, Time};
use scheduler::{PlacementRequest, Refusal};
use std::sync::Arc;

impl Reconciler {
    /// Carries out the engine's decisions. Returns when the engine has to decide again without a new input.
    pub(crate) fn decided(&mut self, decided: Decisions, now: Time) -> Option<Time> {
        if decided.cut {
            self.metrics.decisions_cut.inc();
            tracing::error!(
                "a round of decisions was cut short: jobs that cannot start cause each other's evaluation \
                 again and again; this is a defect of Muster, please report it"
            );
        }
        for job in decided.fruitless_reservations {
            self.metrics.invariant_violations.inc();
            tracing::error!(%job, "it cannot start on nodes that are free and would be reserved for it; this is a defect of Muster, please report it");
        }
        for decision in decided.decisions {
            self.carry_out(decision, now);
        }
        match decided.more {
            true => Some(now),
            false => decided.wake_at,
        }
    }

    fn carry_out(&mut self, decision: Decision, now: Time) {
        match decision {
            Decision::Release { key, .. }
            | Decision::Resize { key, .. }
            | Decision::Evict { key, .. }
                if self.untouched.contains(&key) =>
            {
                tracing::warn!(job = %key, "a decision is not carried out: the job's record cannot be read");
            }
            Decision::Release {
                key,
                admission,
                message,
            } => {
                let clusters = admission.shares.iter().map(|share| &share.cluster);
                self.breakers.admitted(&key, clusters);
                self.release(&key, admission, &message, now);
            }
            Decision::Resize {
                key,
                admission,
                message,
                for_job,
            } => {
                if let Some(preemptor) = for_job {
                    self.shrink_for(&key, &admission.queue, &preemptor, &message);
                }
                self.resize(&key, admission, &message, now);
            }
            Decision::Evict {
                key,
                attempt,
                reason,
                message,
                for_job,
            } => {
                tracing::info!(job = %key, attempt = attempt.0, %reason, %message, "decision: evict");
                self.metrics.evicted(reason);
                if let Some(preemptor) = for_job {
                    self.evict_for(&key, attempt, preemptor, reason, &message);
                }
                // The placed binding still has the old admission: reconciling it writes the new one.
                self.work_queue.add(&key);
                self.reconcile_job(&key, now);
            }
        }
    }

    /// Evicts `key` for another job, and reports it on both jobs.
    fn evict_for(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        preemptor: JobKey,
        reason: Reason,
        message: &str,
    ) {
        // The queue that it was charged to: its template may name another since.
        let queue = self.engine.job(key).map(|job| job.queue.clone());
        if let Some(queue) = queue
            && let Some(queues) = self.metrics_of(&queue)
        {
            queues.preempted(reason, &queue, EvictedPart::Whole);
        }
        self.record_for_preemptor(
            &preemptor,
            &format!("{key} is evicted to make room for it: {message}"),
        );
        self.in_flight_of(key).end.evict_for(attempt, preemptor);
    }

    /// Shrinks `key`, of `queue`, by pods above its minimum for another job.
    fn shrink_for(&mut self, key: &JobKey, queue: &QueueName, preemptor: &JobKey, message: &str) {
        let own = self
            .last_facts
            .get(preemptor)
            .is_some_and(|fact| fact.queue == *queue);
        let reason = match own {
            true => Reason::Preempted,
            false => Reason::Reclaimed,
        };
        if let Some(queues) = self.metrics_of(queue) {
            queues.preempted(reason, queue, EvictedPart::Surplus);
        }
        self.record_for_preemptor(
            preemptor,
            &format!("{key} is shrunk to make room for it: {message}"),
        );
        if let Some(binding) = self.mirror.bindings().get(key) {
            let message = self.discreet(key, &format!("for {preemptor}: {message}"));
            let event = JobEvent::normal(reason, "Shrink", message);
            let object = binding.spec.resource.clone();
            self.push(Effect::RecordEvent { object, event });
        }
    }

    fn record_for_preemptor(&mut self, preemptor: &JobKey, message: &str) {
        if let Some(binding) = self.mirror.bindings().get(preemptor) {
            let message = self.discreet(preemptor, message);
            let event = JobEvent::normal(Reason::AwaitingEviction, "Evict", message);
            let object = binding.spec.resource.clone();
            self.push(Effect::RecordEvent { object, event });
        }
    }

    fn release(&mut self, key: &JobKey, admission: Admission, message: &str, now: Time) {
        tracing::info!(
            job = %key,
            queue = %admission.queue,
            attempt = admission.attempt.0,
            clusters = %clusters(&admission),
            message,
            "decision: release"
        );
        let Some(binding) = self.mirror.bindings().get(key).cloned() else {
            return self.refuse(key, admission.attempt, &gone(), now);
        };
        if self.in_flight_of(key).open.is_busy(&binding, now) {
            return self.withdraw(key, admission.attempt, now);
        }
        if let Some(left) = self.left_in(&binding, &admission) {
            return self.refuse(key, admission.attempt, &still_there(left), now);
        }
        self.metrics.admitted.inc();
        self.note_admission(key, &admission, now);
        let message = self.discreet(key, message);
        self.push(Effect::RecordEvent {
            object: binding.spec.resource.clone(),
            event: JobEvent::normal(Reason::Admitted, "Release", message),
        });
        self.hand_over(key, &binding, admission, now);
    }

    /// Records how long the job has waited for its first admission.
    fn note_admission(&self, key: &JobKey, admission: &Admission, now: Time) {
        let (job, queues) = (self.engine.job(key), self.metrics_of(&admission.queue));
        if let (Attempt(1), Some(job), Some(queues)) = (admission.attempt, job, queues) {
            let waited = now.millis_since(job.queued_at);
            queues.admitted_after(&admission.queue, waited);
        }
    }

    /// Returns the metrics of queues if `queue` exists: no series outlives its queue.
    pub(crate) fn metrics_of(&self, queue: &QueueName) -> Option<&QueueSeries> {
        let exists = self.mirror.queues().contains_key(queue);
        exists.then_some(&self.metrics.queues)
    }

    /// Drops a plan that was not handed over, since a write of the binding is open: of the record that it was
    /// queued again, as a rule. The attempt did not happen.
    fn withdraw(&mut self, key: &JobKey, attempt: Attempt, now: Time) {
        tracing::debug!(job = %key, attempt = attempt.0, "its binding is being written; it is decided again");
        self.apply(Event::JobWithdrawn {
            key: key.clone(),
            attempt,
            at: now,
        });
        self.work_queue.add(key);
    }

    /// Resizes an admitted job whose replicas Karmada sets.
    fn resize(&mut self, key: &JobKey, admission: Admission, message: &str, now: Time) {
        tracing::info!(job = %key, attempt = admission.attempt.0, clusters = %clusters(&admission), message, "decision: resize");
        let Some(binding) = self.mirror.bindings().get(key).cloned() else {
            return;
        };
        if self.in_flight_of(key).open.is_busy(&binding, now) {
            // The engine's shares stand; reconciling the binding writes the difference.
            self.work_queue.add_at(key, now.after(1));
            return;
        }
        if let Some(before) = admitted(&binding) {
            self.in_flight_of(key)
                .shrinks
                .note(&before.shares, &admission);
        }
        self.hand_over(key, &binding, admission, now);
    }

    /// Gives a plan to the scheduler: in this process, or through the record.
    pub(crate) fn hand_over(
        &mut self,
        key: &JobKey,
        binding: &Arc<ResourceBinding>,
        admission: Admission,
        now: Time,
    ) {
        if !self.options.places_itself {
            return self.hand_over_by_record(key, binding, &admission);
        }
        let Some(fact) = self.last_facts.get(key) else {
            return self.refuse(key, admission.attempt, &gone(), now);
        };
        let template = self.mirror.template_of(binding);
        let ask = self.mirror.ask_of(binding);
        let request = PlacementRequest {
            binding: Arc::clone(binding),
            demand: fact.demand.clone(),
            queue: admission.queue.clone(),
            reach: self.reach(binding, &admission),
            avoided: own_record(binding).map_or_else(Vec::new, |record| record.avoided_nodes),
            leading: ask.and_then(|ask| ask.leading_cluster(&admission.shares)),
            time_to_live: template.and_then(|template| template.time_to_live?.in_members),
            priority_classes: ask.map_or_else(
                || fact.priority_class.iter().cloned().collect(),
                |ask| ask.priority_classes(),
            ),
            admission,
        };
        self.in_flight_of(key)
            .open
            .begin_preparing(request.admission.attempt);
        self.push(Effect::PreparePlacement {
            key: key.clone(),
            request: Box::new(request),
        });
    }

    /// Hands a new plan over through its record, when the scheduler runs in another process. A change of an
    /// existing placement is written directly, because this process has checked its capacity.
    fn hand_over_by_record(
        &mut self,
        key: &JobKey,
        binding: &Arc<ResourceBinding>,
        admission: &Admission,
    ) {
        let demand = self.last_facts.get(key).map(|fact| &fact.demand);
        let ask = self.mirror.ask_of(binding);
        let write = match demand.filter(|_| !binding.spec.clusters.is_empty()) {
            Some(demand) => Write::Place {
                record: match AdmissionRecord::placed_in_parts(binding, admission.attempt) {
                    Some(placed) => placed.resized(admission),
                    None => AdmissionRecord::new(admission, RecordState::Admitted),
                },
                clusters: binding_writer::placement::targets(binding, admission, demand),
                affinity_name: None,
            },
            None => Write::Plan {
                record: AdmissionRecord {
                    parts: demand
                        .filter(|demand| demand.in_parts())
                        .map(|_| Parts::Held),
                    leading: ask.and_then(|ask| ask.leading_cluster(&admission.shares)),
                    ..AdmissionRecord::new(admission, RecordState::Planned)
                        .with_reach(self.reach(binding, admission))
                },
            },
        };
        self.write(key, binding, write);
    }

    /// Handles the scheduler's answer: the placement is prepared, or the plan is refused.
    pub(crate) fn prepared(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        result: Result<Write, Refusal>,
        now: Time,
    ) {
        let preparing = |in_flight: &InFlight| in_flight.open.is_preparing(attempt);
        if !self.in_flight.get(key).is_some_and(preparing) {
            return; // forgotten and created again meanwhile
        }
        self.in_flight_of(key).open.closed();
        self.work_queue.add(key);
        let binding = self.mirror.bindings().get(key).cloned();
        let wanted = binding
            .as_ref()
            .is_some_and(|b| b.metadata.deletion_timestamp.is_none())
            && self
                .engine
                .job(key)
                .is_some_and(|job| job.admission.is_some_and(|a| a.attempt == attempt));
        match (result, binding) {
            (Ok(write), Some(binding)) if wanted => self.write(key, &binding, write),
            (Err(refusal), _) if self.is_placed(key, attempt) => {
                tracing::info!(job = %key, attempt = attempt.0, reason = %refusal.reason, message = %refusal.message, "cannot be resized now");
                self.metrics.refused(refusal.reason);
                let until = self.in_flight_of(key).open.failed(now);
                self.work_queue.add_at(key, until);
            }
            (Ok(_), _) => self.refuse(key, attempt, &gone(), now),
            (Err(refusal), _) => {
                if let Some(lasting) = &refusal.lasting {
                    self.note_refused(key, attempt, lasting, now);
                }
                self.refuse(key, attempt, &refusal, now);
            }
        }
    }

    /// Returns true if `attempt` of the job is already placed, so that a plan for it is a resize. If such a
    /// plan fails, the placement stays and stays charged.
    pub(crate) fn is_placed(&self, key: &JobKey, attempt: Attempt) -> bool {
        let Some(binding) = self.mirror.bindings().get(key) else {
            return false;
        };
        AdmissionRecord::read(binding.metadata.annotations.as_ref())
            .ok()
            .flatten()
            .is_some_and(|record| {
                record.state == RecordState::Admitted && record.attempt == attempt
            })
    }

    /// Releases what a plan holds; nothing of it was written.
    pub(crate) fn refuse(&mut self, key: &JobKey, attempt: Attempt, refusal: &Refusal, now: Time) {
        tracing::info!(job = %key, attempt = attempt.0, reason = %refusal.reason, message = %refusal.message, "plan refused");
        self.metrics.refused(refusal.reason);
        self.push(Effect::ForgetPlacement(key.clone()));
        self.apply(Event::JobRefused {
            key: key.clone(),
            attempt,
            reason: refusal.reason,
            message: refusal.message.clone(),
            avoid: refusal.avoid.clone(),
            at: now,
        });
        if let Some(binding) = self.mirror.bindings().get(key).cloned() {
            let ctx = ReconcileCtx { key, binding, now };
            self.record_event(
                &ctx,
                JobEvent::warning(refusal.reason, "Place", refusal.message.clone()),
            );
        }
        self.work_queue.add(key);
    }
}

/// Returns what the binding's record admits.
fn admitted(binding: &ResourceBinding) -> Option<Admission> {
    let record = AdmissionRecord::read(binding.metadata.annotations.as_ref());
    record.ok().flatten().map(|record| record.admission())
}

/// Formats the clusters of an admission: `gpu-a:8,gpu-b:8`.
pub(crate) fn clusters(admission: &Admission) -> String {
    let parts: Vec<String> = admission
        .shares
        .iter()
        .map(|share| format!("{}:{}", share.cluster, share.replicas()))
        .collect();
    parts.join(",")
}

fn gone() -> Refusal {
    Refusal {
        reason: Reason::PlanRefused,
        message: "the binding is gone or is being deleted".into(),
        avoid: None,
        lasting: None,
    }
}

/// A cluster that was out of service is back and has not yet removed the job's objects.
fn still_there(cluster: ClusterName) -> Refusal {
    Refusal {
        reason: Reason::PlanRefused,
        message: format!("{cluster} has not removed an earlier attempt yet"),
        avoid: Some(cluster),
        lasting: None,
    }
}
