//! Handles answers: how a write ended, and whether Works of a job are left.

use crate::messages::action::Effect;
use crate::messages::job_event::{JobEvent, PLACE};
use crate::mirror::namespace::NamespaceFact;
use crate::reconcile::binding_phase::{BindingPhase, binding_phase};
use crate::reconcile::in_flight::InFlight;
use crate::reconcile::{ReconcileCtx, Reconciler};
use binding_writer::refusal::{self, ServerRefusal};
use binding_writer::{CommitOutcome, Write, WriteFailure, WriteKind};
use crds::karmada::{ObjectReference, ResourceBinding};
use crds::record::RecordState;
use engine::{Event, JobKey, Reason, Time};
use kube::Resource;
use scheduler::Refusal;

/// Milliseconds after a placement at which the controller checks whether Karmada's components still wait
/// for a status: the status that follows a placement can get lost.
const ACK_CHECK_MS: i64 = 61_000;

impl Reconciler {
    /// Handles the end of a write.
    pub(crate) fn outcome(&mut self, outcome: CommitOutcome, now: Time) {
        let key = outcome.key;
        let bound = self
            .mirror
            .bindings()
            .get(&key)
            .and_then(|binding| binding.metadata.uid.clone());
        let of_another = bound.is_some_and(|uid| uid != outcome.uid);
        let is_open = |in_flight: &InFlight| in_flight.open.is_open();
        if of_another || !self.in_flight.get(&key).is_some_and(is_open) {
            return; // it was dropped meanwhile, and perhaps created again
        }
        self.work_queue.add(&key);
        match outcome.result {
            Ok(written) => {
                self.in_flight_of(&key)
                    .open
                    .written(&written.resource_version);
                if outcome.write == WriteKind::Place {
                    self.work_queue.add_at(&key, now.after(ACK_CHECK_MS));
                }
                if matches!(outcome.write, WriteKind::Place | WriteKind::Spread) {
                    self.announce_placement(&key, outcome.write);
                }
            }
            Err(failure) => {
                let is_plan = matches!(outcome.write, WriteKind::Place | WriteKind::Plan);
                match (&failure, outcome.attempt) {
                    (_, Some(attempt)) if is_plan && !self.is_placed(&key, attempt) => {
                        self.in_flight_of(&key).open.closed();
                        if let Some(refusal) = ServerRefusal::of_placement(&failure) {
                            self.note_refused(&key, attempt, &refusal, now);
                        }
                        self.refuse(&key, attempt, &plan_refusal(&failure), now);
                    }
                    (WriteFailure::Conflict | WriteFailure::Gone, _) => {
                        let until = self.in_flight_of(&key).open.conflicted(now);
                        self.work_queue.add_at(&key, until);
                    }
                    _ => {
                        let refused = matches!(failure, WriteFailure::Refused { .. });
                        if let Some(attempt) = &mut self.in_flight_of(&key).refused {
                            attempt.unwritable = refused;
                        }
                        let until = self.in_flight_of(&key).open.failed(now);
                        self.work_queue.add_at(&key, until);
                    }
                }
            }
        }
    }

    /// Records the event that Karmada's scheduler records of a placement, on the binding and on its template:
    /// tools that know Karmada wait for it.
    fn announce_placement(&mut self, key: &JobKey, write: WriteKind) {
        let Some(binding) = self.mirror.bindings().get(key) else {
            return;
        };
        let clusters: Vec<String> = if write == WriteKind::Spread {
            // As Karmada's scheduler counts the pods of an object without pods.
            let clusters = self.spread_clusters(binding).into_iter();
            clusters.map(|cluster| format!("{cluster}:0")).collect()
        } else {
            let admission = self.engine.job(key).and_then(|job| job.admission);
            let Some(admission) = admission else { return };
            let shares = admission.shares.iter();
            let pods = shares.map(|share| format!("{}:{}", share.cluster, share.replicas()));
            pods.collect()
        };
        let clusters = clusters.join(", ");
        let message = format!("Binding has been scheduled successfully. Result: {{{clusters}}}");
        let metadata = &binding.metadata;
        let of_binding = ObjectReference {
            api_version: ResourceBinding::api_version(&()).into_owned(),
            kind: ResourceBinding::kind(&()).into_owned(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
        };
        for object in [of_binding, binding.spec.resource.clone()] {
            let event = JobEvent::normal(Reason::ScheduleBindingSucceed, PLACE, message.clone());
            self.push(Effect::RecordEvent { object, event });
        }
    }

    /// Starts a fresh read of whether any Work of the job is left, because a watch may lag.
    pub(crate) fn check_works(&mut self, ctx: &ReconcileCtx<'_>) {
        let out_of_service = self.out_of_service(ctx);
        let preserving = self.preserving_members(ctx);
        if self.in_flight_of(ctx.key).works.begin_check() {
            self.push(Effect::CheckWorks {
                job: ctx.job(),
                out_of_service,
                preserving,
            });
        }
    }

    /// Removes Works that Karmada has left behind: its cache did not show them yet when it removed the others.
    /// It does not look again, and their pods would run for ever.
    pub(crate) fn sweep_works(&mut self, ctx: &ReconcileCtx<'_>) {
        match self.in_flight_of(ctx.key).works.are_left_behind(ctx.now) {
            Ok(()) => {
                if self.in_flight_of(ctx.key).works.begin_check() {
                    self.push(Effect::RemoveWorks(ctx.job()));
                }
            }
            Err(until) => self.work_queue.add_at(ctx.key, until),
        }
    }

    /// Handles the result of a fresh read of Works.
    pub(crate) fn works_checked(
        &mut self,
        key: &JobKey,
        uid: Option<&str>,
        gone: Result<bool, String>,
        now: Time,
    ) {
        let binding = self.mirror.bindings().get(key).cloned();
        let Some(binding) = binding.filter(|b| b.metadata.uid.as_deref() == uid) else {
            return; // it was for an earlier binding of this name, whose state in flight is gone
        };
        let in_flight = self.in_flight_of(key);
        in_flight.works.end_check();
        if in_flight.open.is_busy(&binding, now) || in_flight.guard.is_replaced() {
            self.work_queue.add(key);
            return;
        }
        match gone {
            // A cluster that was out of service may answer again.
            Ok(true) if self.waits_for_works(&binding) || self.is_still_reported(&binding) => {
                return self.work_queue.add_at(key, now.after(1_000));
            }
            Ok(true) => {
                self.mirror.drop_left(&binding);
                self.sweep_services(&binding);
            }
            Ok(false) => return self.work_queue.add_at(key, now.after(1_000)),
            Err(error) => {
                tracing::warn!(job = %key, error, "cannot read whether Works are left; trying again");
                return self.work_queue.add_at(key, now.after(2_000));
            }
        }
        let namespace: NamespaceFact = self
            .mirror
            .namespaces()
            .get(&*key.namespace)
            .cloned()
            .unwrap_or_default();
        let ctx = ReconcileCtx { key, binding, now };
        match binding_phase(&ctx.binding, namespace.rule()) {
            BindingPhase::Deleting(_) => match self.pods_still_end(key, now) {
                Some(at) => self.work_queue.add_at(key, at),
                None => self.write(key, &ctx.binding, Write::Finalize),
            },
            BindingPhase::Ending(record) => {
                if let Some(at) = self.pods_still_end(key, now) {
                    return self.work_queue.add_at(key, at);
                }
                self.works_gone(key, now);
                let until = self.engine.job(key).and_then(|job| job.back_off_until);
                let mut record =
                    record.in_state(RecordState::Requeued, record.reason, &record.message);
                record.not_before = until.map(crds::record::timestamp);
                self.write(key, &ctx.binding, Write::Record { record });
            }
            BindingPhase::Waiting(_)
                if self
                    .engine
                    .job(key)
                    .is_some_and(|job| job.admission.is_some()) =>
            {
                self.works_gone(key, now);
                self.work_queue.add(key);
            }
            _ => {}
        }
    }

    fn works_gone(&mut self, key: &JobKey, now: Time) {
        tracing::info!(job = %key, "its Works are gone; its quota is free");
        self.push(Effect::ForgetPlacement(key.clone()));
        self.in_flight_of(key).ended();
        self.lost_pods.attempt_over(key);
        self.drop_override(key);
        self.apply(Event::JobWorksGone {
            key: key.clone(),
            at: now,
        });
    }
}

fn plan_refusal(failure: &WriteFailure) -> Refusal {
    Refusal {
        reason: Reason::PlanRefused,
        message: refusal::message(failure),
        avoid: None,
        lasting: None,
    }
}
