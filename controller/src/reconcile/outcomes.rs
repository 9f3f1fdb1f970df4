//! Handles answers: how a write ended, and whether Works of a job are left.

use crate::messages::action::Effect;
use crate::messages::job_event::{JobEvent, PLACE};
use crate::reconcile::binding_phase::{BindingPhase, binding_phase};
use crate::reconcile::decisions::{is_placed, refuse};
use crate::reconcile::ending_pods::pods_still_end;
use crate::reconcile::out_of_service::{is_still_reported, out_of_service, waits_for_works};
use crate::reconcile::placed::growth::drop_override;
use crate::reconcile::placed::rendezvous::sweep_services;
use crate::reconcile::placement_refused::note_refused;
use crate::reconcile::preserved::preserving_members;
use crate::reconcile::{JobPass, spread_clusters};
use binding_writer::refusal::{self, ServerRefusal};
use binding_writer::{CommitOutcome, Write, WriteFailure, WriteKind};
use crds::karmada::{ObjectReference, ResourceBinding};
use crds::record::RecordState;
use engine::{Event, Reason};
use kube::Resource;
use scheduler::Refusal;

/// Milliseconds after a placement at which the controller checks whether Karmada's components still wait
/// for a status: the status that follows a placement can get lost.
const ACK_CHECK_MS: i64 = 61_000;

/// Handles the end of a write.
pub(crate) fn written(pass: &mut JobPass<'_>, outcome: CommitOutcome) {
    let (key, now) = (pass.key, pass.now);
    let uid = pass.binding.metadata.uid.as_ref();
    let of_another = uid.is_some_and(|uid| *uid != outcome.uid);
    if of_another || !pass.in_flight.open.is_open() {
        return; // it was dropped meanwhile, and perhaps created again
    }
    pass.out.work_queue.add(key);
    match outcome.result {
        Ok(written) => {
            pass.in_flight.open.written(&written.resource_version);
            if outcome.write == WriteKind::Place {
                pass.out.work_queue.add_at(key, now.after(ACK_CHECK_MS));
            }
            if matches!(outcome.write, WriteKind::Place | WriteKind::Spread) {
                announce_placement(pass, outcome.write);
            }
        }
        Err(failure) => {
            let is_plan = matches!(outcome.write, WriteKind::Place | WriteKind::Plan);
            match (&failure, outcome.attempt) {
                (_, Some(attempt)) if is_plan && !is_placed(pass.binding, attempt) => {
                    pass.in_flight.open.closed();
                    if let Some(refusal) = ServerRefusal::of_placement(&failure) {
                        note_refused(pass, attempt, &refusal);
                    }
                    refuse(pass, attempt, &plan_refusal(&failure));
                }
                (WriteFailure::Conflict | WriteFailure::Gone, _) => {
                    let until = pass.in_flight.open.conflicted(now);
                    pass.out.work_queue.add_at(key, until);
                }
                _ => {
                    let refused = matches!(failure, WriteFailure::Refused { .. });
                    if let Some(attempt) = &mut pass.in_flight.refused {
                        attempt.unwritable = refused;
                    }
                    let until = pass.in_flight.open.failed(now);
                    pass.out.work_queue.add_at(key, until);
                }
            }
        }
    }
}

/// Records the event that Karmada's scheduler records of a placement, on the binding and on its template:
/// tools that know Karmada wait for it.
fn announce_placement(pass: &mut JobPass<'_>, write: WriteKind) {
    let (key, binding) = (pass.key, pass.binding);
    let clusters: Vec<String> = if write == WriteKind::Spread {
        // As Karmada's scheduler counts the pods of an object without pods.
        let clusters = spread_clusters(pass.engine, binding).into_iter();
        clusters.map(|cluster| format!("{cluster}:0")).collect()
    } else {
        let Some(admission) = pass.admission() else {
            return;
        };
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
        pass.push(Effect::RecordEvent { object, event });
    }
}

/// Starts a fresh read of whether any Work of the job is left, because a watch may lag.
pub(crate) fn check_works(pass: &mut JobPass<'_>) {
    let out_of_service = out_of_service(pass.view(), pass.binding);
    let preserving = preserving_members(pass);
    if pass.in_flight.works.begin_check() {
        pass.push(Effect::CheckWorks {
            job: pass.bound_job(),
            out_of_service,
            preserving,
        });
    }
}

/// Removes Works that Karmada has left behind: its cache did not show them yet when it removed the others.
/// It does not look again, and their pods would run for ever.
pub(crate) fn sweep_works(pass: &mut JobPass<'_>) {
    match pass.in_flight.works.are_left_behind(pass.now) {
        Ok(()) => {
            if pass.in_flight.works.begin_check() {
                pass.push(Effect::RemoveWorks(pass.bound_job()));
            }
        }
        Err(until) => pass.out.work_queue.add_at(pass.key, until),
    }
}

/// Handles the result of a fresh read of Works.
pub(crate) fn works_checked(pass: &mut JobPass<'_>, uid: Option<&str>, gone: Result<bool, String>) {
    let (key, now) = (pass.key, pass.now);
    if pass.binding.metadata.uid.as_deref() != uid {
        return; // it was for an earlier binding of this name, whose state in flight is gone
    }
    let in_flight = &mut *pass.in_flight;
    in_flight.works.end_check();
    if in_flight.open.is_busy(pass.binding, now) || in_flight.guard.is_replaced() {
        pass.out.work_queue.add(key);
        return;
    }
    match gone {
        // A cluster that was out of service may answer again.
        Ok(true)
            if waits_for_works(pass.view(), pass.binding)
                || is_still_reported(pass.mirror, pass.binding) =>
        {
            return pass.out.work_queue.add_at(key, now.after(1_000));
        }
        Ok(true) => {
            pass.mirror.works.drop_left(pass.binding);
            sweep_services(pass);
        }
        Ok(false) => return pass.out.work_queue.add_at(key, now.after(1_000)),
        Err(error) => {
            tracing::warn!(job = %key, error, "cannot read whether Works are left; trying again");
            return pass.out.work_queue.add_at(key, now.after(2_000));
        }
    }
    match binding_phase(pass.binding, pass.namespace().rule()) {
        BindingPhase::Deleting(_) => match pods_still_end(pass) {
            Some(at) => pass.out.work_queue.add_at(key, at),
            None => pass.write(Write::Finalize),
        },
        BindingPhase::Ending(record) => {
            if let Some(at) = pods_still_end(pass) {
                return pass.out.work_queue.add_at(key, at);
            }
            // The engine learns of it when the record is written. If it decided on the job before, the open write would
            // keep the decision from being carried out, and another job would take its place.
            pass.in_flight.works.note_gone(record.attempt);
            let until = pass.engine.requeued_until(key, now);
            let mut record = record.in_state(RecordState::Requeued, record.reason, &record.message);
            record.not_before = until.map(crds::record::timestamp);
            pass.write(Write::Record { record });
        }
        BindingPhase::Waiting(_)
            if pass
                .engine
                .job(key)
                .is_some_and(|job| job.admission.is_some()) =>
        {
            works_gone(pass);
            pass.out.work_queue.add(key);
        }
        _ => {}
    }
}

/// Ends the charge of a job of which nothing is left, and queues it again.
pub(crate) fn works_gone(pass: &mut JobPass<'_>) {
    let key = pass.key;
    tracing::info!(job = %key, "its Works are gone; its quota is free");
    pass.push(Effect::ForgetPlacement(key.clone()));
    pass.in_flight.ended();
    pass.jobs.lost_pods.attempt_over(key);
    drop_override(pass);
    pass.apply(Event::JobWorksGone {
        key: key.clone(),
        at: pass.now,
    });
}

fn plan_refusal(failure: &WriteFailure) -> Refusal {
    Refusal {
        reason: Reason::PlanRefused,
        message: refusal::message(failure),
        avoid: None,
        lasting: None,
    }
}
