//! Carries decisions out: plans go to the scheduler, placements and evictions to the committer.
//!
//! With the scheduler in this process, the scheduler checks a plan on its live view and prepares the
//! members; admission and placement are one patch. Otherwise the controller hands the plan over: it writes
//! the plan as a record in state Planned.

use crate::messages::action::Effect;
use crate::messages::job_event::JobEvent;
use crate::metrics::{ControllerMetrics, EvictedPart};
use crate::mirror::binding::{own_record, written_record};
use crate::reconcile::JobPass;
use crate::reconcile::ending_pods::former_pods_in;
use crate::reconcile::out_of_service::left_in;
use crate::reconcile::placed::rendezvous::reach;
use crate::reconcile::placement_refused::note_refused;
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, Parts, RecordState};
use engine::facts::Admission;
use engine::{Attempt, ClusterName, Decision, Decisions, Event, JobKey, QueueName, Reason};
use scheduler::{PlacementRequest, Refusal};
use std::sync::Arc;

/// Reports what the engine found wrong with its own decisions.
pub(crate) fn report_defects(decided: &Decisions, metrics: &ControllerMetrics) {
    if decided.cut {
        metrics.decisions_cut.inc();
        tracing::error!(
            "a round of decisions was cut short: jobs that cannot start cause each other's evaluation \
             again and again; this is a defect of Muster, please report it"
        );
    }
    for job in &decided.fruitless_reservations {
        metrics.invariant_violations.inc();
        tracing::error!(%job, "it cannot start on nodes that are free and would be reserved for it; this is a defect of Muster, please report it");
    }
}

/// Carries out a decision about the job of this pass.
pub(crate) fn carry_out(pass: &mut JobPass<'_>, decision: Decision) {
    match decision {
        Decision::Release {
            admission, message, ..
        } => release(pass, admission, &message),
        Decision::Resize {
            admission,
            message,
            for_job,
            ..
        } => {
            if let Some(preemptor) = for_job {
                shrink_for(pass, &admission.queue, &preemptor, &message);
            }
            resize(pass, admission, &message);
        }
        Decision::Evict {
            attempt,
            reason,
            message,
            for_job,
            ..
        } => {
            tracing::info!(job = %pass.key, attempt = attempt.0, %reason, %message, "decision: evict");
            pass.out.metrics.evicted(reason);
            if let Some(preemptor) = for_job {
                evict_for(pass, attempt, preemptor, reason, &message);
            }
        }
    }
}

/// Evicts `key` for another job, and reports it on both jobs.
fn evict_for(
    pass: &mut JobPass<'_>,
    attempt: Attempt,
    preemptor: JobKey,
    reason: Reason,
    message: &str,
) {
    let key = pass.key;
    // The queue that it was charged to: its template may name another since.
    let queue = pass.engine.job(key).map(|job| job.queue.clone());
    if let Some(queue) = queue
        && let Some(queues) = pass.series_of(&queue)
    {
        queues.preempted(reason, &queue, EvictedPart::Whole);
    }
    record_for_preemptor(
        pass,
        &preemptor,
        &format!("{key} is evicted to make room for it: {message}"),
    );
    pass.in_flight.end.evict_for(attempt, preemptor);
}

/// Shrinks `key`, of `queue`, by pods above its minimum for another job.
fn shrink_for(pass: &mut JobPass<'_>, queue: &QueueName, preemptor: &JobKey, message: &str) {
    let key = pass.key;
    let own = pass
        .jobs
        .last_facts
        .get(preemptor)
        .is_some_and(|fact| fact.queue == *queue);
    let reason = match own {
        true => Reason::Preempted,
        false => Reason::Reclaimed,
    };
    if let Some(queues) = pass.series_of(queue) {
        queues.preempted(reason, queue, EvictedPart::Surplus);
    }
    record_for_preemptor(
        pass,
        preemptor,
        &format!("{key} is shrunk to make room for it: {message}"),
    );
    let message = format!("for {preemptor}: {message}");
    pass.record_event(JobEvent::normal(reason, "Shrink", message));
}

fn record_for_preemptor(pass: &mut JobPass<'_>, preemptor: &JobKey, message: &str) {
    if let Some(binding) = pass.mirror.bindings().get(preemptor) {
        let message = pass.view().discreet(preemptor, message);
        let event = JobEvent::normal(Reason::AwaitingEviction, "Evict", message);
        let object = binding.spec.resource.clone();
        pass.push(Effect::RecordEvent { object, event });
    }
}

fn release(pass: &mut JobPass<'_>, admission: Admission, message: &str) {
    let key = pass.key;
    if pass.in_flight.open.is_busy(pass.binding, pass.now) {
        return withdraw(pass, admission.attempt);
    }
    tracing::info!(
        job = %key,
        queue = %admission.queue,
        attempt = admission.attempt.0,
        clusters = %clusters(&admission),
        message,
        "decision: release"
    );
    if let Some(left) = left_in(pass.mirror, pass.binding, &admission) {
        return refuse(pass, admission.attempt, &still_there(left));
    }
    if let Some((cluster, message)) = former_pods_in(pass, &admission) {
        return refuse(pass, admission.attempt, &still_ending(cluster, message));
    }
    pass.out.metrics.admitted.inc();
    note_admission(pass, &admission);
    let message = pass.view().discreet(key, message);
    pass.push(Effect::RecordEvent {
        object: pass.binding.spec.resource.clone(),
        event: JobEvent::normal(Reason::Admitted, "Release", message),
    });
    hand_over(pass, admission);
}

/// Records how long the job has waited for its first admission.
fn note_admission(pass: &JobPass<'_>, admission: &Admission) {
    let (job, queues) = (pass.engine.job(pass.key), pass.series_of(&admission.queue));
    if let (Attempt(1), Some(job), Some(queues)) = (admission.attempt, job, queues) {
        let waited = pass.now.millis_since(job.queued_at);
        queues.admitted_after(&admission.queue, waited);
    }
}

/// Drops a plan that was not handed over, since a write of the binding is open. The attempt did not happen.
fn withdraw(pass: &mut JobPass<'_>, attempt: Attempt) {
    let key = pass.key;
    tracing::debug!(job = %key, attempt = attempt.0, "its binding is being written; it is decided again");
    pass.apply(Event::JobWithdrawn {
        key: key.clone(),
        attempt,
        at: pass.now,
    });
    pass.out.work_queue.add(key);
}

/// Resizes an admitted job whose replicas Karmada sets.
fn resize(pass: &mut JobPass<'_>, admission: Admission, message: &str) {
    let key = pass.key;
    tracing::info!(job = %key, attempt = admission.attempt.0, clusters = %clusters(&admission), message, "decision: resize");
    if pass.in_flight.open.is_busy(pass.binding, pass.now) {
        // The engine's shares stand; reconciling the binding writes the difference.
        pass.out.work_queue.add_at(key, pass.now.after(1));
        return;
    }
    if let Some(before) = written_record(pass.binding).map(|record| record.admission()) {
        pass.in_flight.shrinks.note(&before.shares, &admission);
    }
    hand_over(pass, admission);
}

/// Gives a plan to the scheduler: in this process, or through the record.
pub(crate) fn hand_over(pass: &mut JobPass<'_>, admission: Admission) {
    let (key, binding) = (pass.key, pass.binding);
    if !pass.options.places_itself {
        return hand_over_by_record(pass, &admission);
    }
    let Some(fact) = pass.jobs.last_facts.get(key) else {
        return refuse(pass, admission.attempt, &gone());
    };
    let template = pass.mirror.template_of(binding);
    let ask = pass.mirror.ask_of(binding);
    let request = PlacementRequest {
        binding: Arc::clone(binding),
        demand: fact.demand.clone(),
        queue: admission.queue.clone(),
        reach: reach(pass.view(), binding, &admission),
        avoided: own_record(binding).map_or_else(Vec::new, |record| record.avoided_nodes),
        leading: ask.and_then(|ask| ask.leading_cluster(&admission.shares)),
        time_to_live: template.and_then(|template| template.time_to_live?.in_members),
        priority_classes: ask.map_or_else(
            || fact.priority_class.iter().cloned().collect(),
            |ask| ask.priority_classes(),
        ),
        admission,
    };
    pass.in_flight
        .open
        .begin_preparing(request.admission.attempt);
    pass.push(Effect::PreparePlacement {
        key: key.clone(),
        request: Box::new(request),
    });
}

/// Hands a new plan over through its record, when the scheduler runs in another process. A change of an
/// existing placement is written directly, because this process has checked its capacity.
fn hand_over_by_record(pass: &mut JobPass<'_>, admission: &Admission) {
    let binding = pass.binding;
    let demand = pass.jobs.last_facts.get(pass.key).map(|fact| &fact.demand);
    let ask = pass.mirror.ask_of(binding);
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
                ..AdmissionRecord::new(admission, RecordState::Planned).with_reach(reach(
                    pass.view(),
                    binding,
                    admission,
                ))
            },
        },
    };
    pass.write(write);
}

/// Handles the scheduler's answer: the placement is prepared, or the plan is refused.
pub(crate) fn prepared(pass: &mut JobPass<'_>, attempt: Attempt, result: Result<Write, Refusal>) {
    let (key, now) = (pass.key, pass.now);
    if !pass.in_flight.open.is_preparing(attempt) {
        return; // forgotten and created again meanwhile
    }
    pass.in_flight.open.closed();
    pass.out.work_queue.add(key);
    let is_current = pass.admission_of(attempt).is_some();
    let is_deleted = pass.binding.metadata.deletion_timestamp.is_some();
    match result {
        Ok(write) if is_current && !is_deleted => pass.write(write),
        Err(refusal) if is_placed(pass.binding, attempt) => {
            tracing::info!(job = %key, attempt = attempt.0, reason = %refusal.reason, message = %refusal.message, "cannot be resized now");
            pass.out.metrics.refused(refusal.reason);
            let until = pass.in_flight.open.failed(now);
            pass.out.work_queue.add_at(key, until);
        }
        Ok(_) => refuse(pass, attempt, &gone()),
        Err(refusal) => {
            if let Some(lasting) = &refusal.lasting {
                note_refused(pass, attempt, lasting);
            }
            refuse(pass, attempt, &refusal);
        }
    }
}

/// Returns true if `attempt` of the job is already placed, so that a plan for it is a resize. If such a
/// plan fails, the placement stays and stays charged.
pub(crate) fn is_placed(binding: &ResourceBinding, attempt: Attempt) -> bool {
    written_record(binding)
        .is_some_and(|record| record.state == RecordState::Admitted && record.attempt == attempt)
}

/// Releases what a plan holds; nothing of it was written.
pub(crate) fn refuse(pass: &mut JobPass<'_>, attempt: Attempt, refusal: &Refusal) {
    let (key, now) = (pass.key, pass.now);
    tracing::info!(job = %key, attempt = attempt.0, reason = %refusal.reason, message = %refusal.message, "plan refused");
    pass.out.metrics.refused(refusal.reason);
    pass.push(Effect::ForgetPlacement(key.clone()));
    pass.apply(Event::JobRefused {
        key: key.clone(),
        attempt,
        reason: refusal.reason,
        message: refusal.message.clone(),
        avoid: refusal.avoid.clone(),
        at: now,
    });
    pass.record_event(JobEvent::warning(
        refusal.reason,
        "Place",
        refusal.message.clone(),
    ));
    pass.out.work_queue.add(key);
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

/// Pods of an earlier attempt still end in a cluster.
fn still_ending(cluster: ClusterName, message: String) -> Refusal {
    Refusal {
        reason: Reason::PlanRefused,
        message,
        avoid: Some(cluster),
        lasting: None,
    }
}
