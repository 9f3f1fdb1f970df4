//! Reconciles one job: derives facts for the engine and writes from the phase of its binding.
//!
//! It is level-triggered: it reads the mirror and the engine, never the event that added the job to the work queue. At
//! most one write of a binding is open; a binding is left alone until the watch has caught up with that
//! write.

pub(crate) mod adoption;
pub(crate) mod answers;
pub(crate) mod binding_phase;
pub(crate) mod check_result;
pub(crate) mod decisions;
mod ending_pods;
pub(crate) mod engine_events;
pub(crate) mod evict;
pub(crate) mod fleet;
pub(crate) mod in_flight;
pub(crate) mod job_pass;
pub(crate) mod known_jobs;
pub(crate) mod open_write;
pub(crate) mod opened;
mod orphaned;
pub(crate) mod out_of_service;
pub(crate) mod outcomes;
pub(crate) mod output;
pub(crate) mod placed;
pub(crate) mod placement_refused;
pub(crate) mod pre_pull;
pub(crate) mod preserved;
pub(crate) mod queue_places;
pub(crate) mod reconciler;
pub(crate) mod record_guard;
pub(crate) mod remains;
pub(crate) mod unreadable;
pub(crate) mod work_queue;
pub(crate) mod works_end;

pub(crate) use crate::reconcile::job_pass::JobPass;
pub(crate) use crate::reconcile::reconciler::Reconciler;

use crate::facts::job::{self};
use crate::facts::view::View;
use crate::messages::action::{Effect, Publication, ReconcileAction};
use crate::messages::job_event::JobEvent;
use crate::mirror::binding::{has_karmada_finalizer, unreadable};
use crate::mirror::template_key;
use crate::reconcile::binding_phase::{BindingPhase, binding_phase, is_managed};
use crate::reconcile::check_result::CheckResult;
use crate::reconcile::ending_pods::pods_still_end;
use crate::reconcile::engine_events::{apply_admission, apply_ended, apply_evicted, apply_stopped};
use crate::reconcile::evict::{apply_ending, evict};
use crate::reconcile::in_flight::InFlight;
use crate::reconcile::opened::{opened_by_hand, opened_message};
use crate::reconcile::orphaned::end_if_orphaned;
use crate::reconcile::out_of_service::has_works;
use crate::reconcile::outcomes::{check_works, sweep_works, works_gone};
use crate::reconcile::placed::avoids::avoids_no_more;
use crate::reconcile::placed::excess::charge_excess;
use crate::reconcile::placed::expiry::expire_stopped;
use crate::reconcile::placed::rendezvous::note_rendezvous;
use crate::reconcile::placed::{admitted, displaced, progress_of};
use crate::reconcile::placement_refused::keep_refusal;
use crate::reconcile::record_guard::{keep_finalizer, restore_record, with_running_shares};
use crate::reconcile::remains::{check_remains, forget_unless_charged};
use crate::reconcile::unreadable::{charge_unreadable, not_touched};
use binding_writer::Write;
use crds::karmada::{ResourceBinding, TargetCluster};
use crds::record::{AdmissionRecord, RecordState};
use engine::{Engine, Event, JobKey, Progress, Reason, Time};
use std::collections::BTreeSet;

/// Milliseconds within which the template of a binding should have been seen.
const TEMPLATE_WITHIN_MS: i64 = 5_000;

/// Brings the engine and the binding of `key` in line with what is seen, and leaves what follows in the output.
pub(crate) fn reconcile_job(reconciler: &mut Reconciler, key: &JobKey, now: Time) {
    let CheckResult::Continue = check_remains(reconciler, key, now) else {
        return;
    };
    let Some(binding) = reconciler.mirror.bindings().get(key).cloned() else {
        return forget(reconciler, key);
    };
    let mut known = reconciler.in_flight.get_mut(key);
    let is_busy = |in_flight: &mut &mut InFlight| in_flight.open.is_busy(&binding, now);
    if known.as_mut().is_some_and(is_busy) {
        return;
    }
    let is_replaced = known.is_some_and(|in_flight| in_flight.guard.is_replaced());
    reconciler.out.push(Publication::Job(key.clone()));
    let namespace = reconciler.view().namespace_of(key);
    let is_ours = is_managed(&binding, namespace.rule());
    if is_ours && reconciler.mirror.template_of(&binding).is_none() {
        // It may be the first binding of its kind.
        let kind = template_key(&binding).kind;
        reconciler.out.push(ReconcileAction::WatchTemplates(kind));
    }
    match binding_phase(&binding, namespace.rule()) {
        _ if is_ours && is_replaced => reconciler.job(key, now, restore_record),
        BindingPhase::Foreign => {
            forget_unless_charged(reconciler, key);
            if reconciler.jobs.remains.contains_key(key) {
                reconciler.out.work_queue.add_at(key, now);
            }
        }
        // The namespace loses its mark first; otherwise the job would be evicted when the label comes back.
        BindingPhase::ToUnmanage if !namespace.managed && namespace.adopted => {}
        BindingPhase::ToUnmanage => {
            forget(reconciler, key);
            reconciler.job(key, now, |pass| pass.write(Write::StopManaging));
        }
        BindingPhase::ToSpread => reconciler.job(key, now, spread),
        phase => reconciler.job(key, now, |pass| reconcile_managed(pass, phase)),
    }
}

/// Does the same for a job that Muster manages, by the phase of its binding.
fn reconcile_managed(pass: &mut JobPass<'_>, phase: BindingPhase) {
    end_if_orphaned(pass);
    let phase = with_its_works(pass, phase);
    let Some(phase) = with_running_shares(pass, phase) else {
        return;
    };
    if !matches!(phase, BindingPhase::NotTouched(_)) {
        pass.jobs.touched(pass.key, &pass.out.metrics);
    }
    match phase {
        BindingPhase::NotTouched(error) => not_touched(pass, &error),
        BindingPhase::Deleting(record) => deleting(pass, record),
        BindingPhase::Ungated { by_hand } => ungated(pass, by_hand),
        BindingPhase::ToAdopt => adopt(pass),
        BindingPhase::OpenedByHand(record) => opened_by_hand(pass, record),
        BindingPhase::Waiting(record) => waiting(pass, record),
        BindingPhase::Planned(record) => planned(pass, record),
        BindingPhase::Refused(record) => plan_refused(pass, record),
        BindingPhase::Admitted(record) => admitted(pass, record),
        BindingPhase::Displaced(record) => displaced(pass, record),
        BindingPhase::Ending(record) => ending(pass, record),
        // Their jobs are not managed.
        BindingPhase::Foreign | BindingPhase::ToSpread | BindingPhase::ToUnmanage => {}
    }
    keep_finalizer(pass);
}

/// Refines the phase of a binding that still has Works but does not say what they run.
fn with_its_works(pass: &JobPass<'_>, phase: BindingPhase) -> BindingPhase {
    if !has_works(pass) {
        return phase;
    }
    let unknown = pass.engine.job(pass.key).is_none();
    match phase {
        BindingPhase::Waiting(None) | BindingPhase::Ungated { .. }
            if let Some(error) = unreadable(pass.binding) =>
        {
            BindingPhase::NotTouched(error)
        }
        BindingPhase::Ungated { .. } => BindingPhase::OpenedByHand(None),
        // This plan did not place it.
        BindingPhase::Planned(record) | BindingPhase::Refused(record) if unknown => {
            BindingPhase::OpenedByHand(Some(record))
        }
        phase => phase,
    }
}

/// Drops all charges and state of a job that does not exist or is not managed.
pub(crate) fn forget(reconciler: &mut Reconciler, key: &JobKey) {
    if reconciler.engine.job(key).is_some() {
        reconciler.apply(Event::JobGone(key.clone()));
    }
    let out = &mut reconciler.out;
    out.push(Effect::ForgetPlacement(key.clone()));
    let before = reconciler.in_flight.remove(key);
    if let Some(before) = before.filter(|before| before.guard.is_replaced())
        && reconciler.mirror.bindings().contains_key(key)
    {
        // Its record stays foreign until it is gone, also if its namespace is managed meanwhile.
        let guard = before.guard;
        let in_flight = InFlight {
            guard,
            ..InFlight::default()
        };
        reconciler.in_flight.insert(key.clone(), in_flight);
    }
    reconciler.jobs.forget(key, &out.metrics);
    reconciler.mirror.claims.drop_placed(key);
    out.push(Publication::Gone(key.clone()));
}

/// Returns every cluster that the placement of a binding without pods selects, and those where it is: it keeps
/// a cluster that is unreachable.
fn spread_clusters(engine: &Engine, binding: &ResourceBinding) -> BTreeSet<String> {
    let spec = &binding.spec;
    let api = format!("{}/{}", spec.resource.api_version, spec.resource.kind);
    let placement = workload::cluster_placement(spec.placement.as_ref(), &api);
    let there = spec.clusters.iter().map(|cluster| cluster.name.clone());
    let selected = engine.fleet().clusters_for_objects(&placement);
    there
        .chain(selected.iter().map(ToString::to_string))
        .collect()
}

/// Places a binding on all of them.
fn spread(pass: &mut JobPass<'_>) {
    let clusters = spread_clusters(pass.engine, pass.binding);
    pass.jobs.spread.insert(pass.key.clone());
    if clusters.len() > pass.binding.spec.clusters.len() {
        let clusters = clusters
            .into_iter()
            .map(|name| TargetCluster {
                name,
                replicas: None,
            })
            .collect();
        pass.write(Write::Spread { clusters });
    }
}

/// Handles a deleted binding, which the finalizer keeps until no member has anything of it: no Work, and, within
/// what `ending_pods` allows, no pod that has not ended.
fn deleting(pass: &mut JobPass<'_>, record: Option<AdmissionRecord>) {
    if let Some(record) = record.filter(|record| record.state != RecordState::Requeued) {
        apply_admission(pass, &record, Progress::Ending);
        charge_excess(pass, &record);
    } else if let Some(error) = unreadable(pass.binding) {
        let job = pass.resolved_job();
        charge_unreadable(pass, &error, job.as_ref());
    } else if pass
        .engine
        .job(pass.key)
        .is_some_and(|job| job.admission.is_none())
    {
        pass.apply(Event::JobGone(pass.key.clone()));
        pass.jobs.last_facts.remove(pass.key);
    }
    if has_karmada_finalizer(pass.binding) {
        return;
    }
    if has_works(pass) {
        return sweep_works(pass);
    }
    check_works_after_pods(pass);
}

/// Gates a binding: the webhook was away when it was created, or a user opened the gate.
fn ungated(pass: &mut JobPass<'_>, by_hand: bool) {
    if by_hand {
        pass.record_event(JobEvent::warning(
            Reason::OpenedByHand,
            "Gate",
            opened_message("its gate was opened"),
        ));
        pass.out.metrics.opened_by_hand.inc();
    }
    pass.write(Write::Hold);
}

/// Adopts a job that ran before Muster managed it: charged as it is, never gated.
fn adopt(pass: &mut JobPass<'_>) {
    if pass
        .engine
        .job(pass.key)
        .is_some_and(|job| job.admission.is_none())
    {
        // It was queued, so it did not run before.
        return opened_by_hand(pass, None);
    }
    let namespace = pass.namespace();
    let job = pass.resolved_job();
    let since = &mut pass.in_flight.timers.adopting_since;
    let overdue = since.get_or_insert(pass.now).after(TEMPLATE_WITHIN_MS);
    if job.is_none() && pass.now < overdue {
        return pass.out.work_queue.add_at(pass.key, overdue);
    }
    let record = match &job {
        Some(job) => crate::facts::adopted::record(pass.binding, job, pass.now),
        // Its template has not been seen: charged once it is.
        None => {
            let fact = job::unread(pass.key, pass.binding, &namespace);
            crate::facts::adopted::unsized_record(&fact, pass.now)
        }
    };
    pass.record_event(JobEvent::normal(
        Reason::Adopted,
        "Adopt",
        crate::facts::adopted::message(&record),
    ));
    // Charged before the record is written: decisions of this pass take it into account.
    let progress = progress_of(pass, &record, job.as_ref());
    apply_admission(pass, &record, progress);
    pass.write(Write::Adopt { record });
}

/// Queues a gated job in the engine.
fn waiting(pass: &mut JobPass<'_>, record: Option<AdmissionRecord>) {
    let view = pass
        .engine
        .job(pass.key)
        .map(|job| (job.admission.is_some(), job.attempts));
    match (view, &record) {
        // Nothing of it is left, and now its record says so: it can be decided on.
        (Some((true, _)), Some(record)) if pass.in_flight.works.are_gone(record.attempt) => {
            works_gone(pass);
        }
        // The engine counts it as admitted, but no record says so: its own decision failed, or the record was
        // wiped. It stays charged until its Works are gone.
        (Some((true, _)), _) => {
            apply_ending(
                pass,
                Reason::PlanRefused,
                "its admission record is gone",
                None,
            );
            return match has_works(pass) {
                true => sweep_works(pass),
                false => check_works(pass),
            };
        }
        // After a restart the attempts, and with them the back-off, come from the record.
        (known, Some(record)) if known.is_none_or(|(_, attempts)| attempts < record.attempt) => {
            apply_ended(pass, record);
            apply_stopped(pass, record);
            pass.apply(Event::JobWorksGone {
                key: pass.key.clone(),
                at: record_time(record, pass.now),
            });
        }
        _ => {}
    }
    if has_unadmitted_works(pass.view(), pass.binding, view.is_none()) {
        return opened_by_hand(pass, None);
    }
    pass.in_flight.ended();
    pass.jobs.lost_pods.attempt_over(pass.key);
    pass.mirror.claims.drop_placed(pass.key);
    let avoids = record.clone();
    if let Some(record) = avoids.and_then(|record| avoids_no_more(pass, record)) {
        return pass.write(Write::Record { record });
    }
    match pass.resolved_job() {
        Some(job) => {
            note_rendezvous(pass, &job);
            pass.apply_fact(&job.fact);
            match keep_refusal(pass, record.as_ref()) {
                Some(record) => pass.write(Write::Record { record }),
                None => expire_stopped(pass),
            }
        }
        None => unread(pass),
    }
}

/// Returns true if a queued job has Works that may start pods: Karmada was late with them, or its record
/// was forged while no replica led (`unknown`). Works that a cluster out of service has yet to remove are
/// not counted here.
fn has_unadmitted_works(view: View<'_>, binding: &ResourceBinding, unknown: bool) -> bool {
    let mut works = view.mirror.works.of(binding);
    works.any(|work| !view.is_given_up(work) && (unknown || !work.deleting))
}

/// Holds a job whose template has not been seen. Templates arrive within milliseconds of their bindings;
/// after `TEMPLATE_WITHIN_MS` the job says that its template is missing.
pub(crate) fn unread(pass: &mut JobPass<'_>) {
    let fact = job::unread(pass.key, pass.binding, &pass.namespace());
    let overdue = fact.queued_at.after(TEMPLATE_WITHIN_MS);
    if pass.now >= overdue {
        pass.apply_fact(&fact);
    } else {
        pass.out.work_queue.add_at(pass.key, overdue);
    }
}

/// Handles a planned job, which a scheduler process is to place. With the scheduler in this process, an
/// earlier process left the plan, and it is decided again.
fn planned(pass: &mut JobPass<'_>, record: AdmissionRecord) {
    if pass.options.places_itself {
        return plan_refused(pass, record);
    }
    if let Some(job) = pass.resolved_job() {
        pass.apply_fact(&job.fact);
    }
    if let Some((reason, message)) = ending_of(pass.engine, pass.key, &record) {
        // No scheduler process has answered in time. If it answers now, the version that guards this write
        // decides which was first.
        return evict(pass, &record, reason, &message);
    }
    apply_admission(pass, &record, Progress::Assumed);
}

/// Returns why the engine is evicting the attempt of `record`, if so.
pub(crate) fn ending_of(
    engine: &Engine,
    key: &JobKey,
    record: &AdmissionRecord,
) -> Option<(Reason, String)> {
    let (attempt, reason, message) = engine.evicted_because(key)?;
    (attempt == record.attempt).then(|| (reason, message.to_owned()))
}

/// Releases the quota and capacity of a plan of which nothing was written, and queues the job again.
fn plan_refused(pass: &mut JobPass<'_>, record: AdmissionRecord) {
    let reason = record.reason.unwrap_or(Reason::PlanRefused);
    if pass.admission_of(record.attempt).is_some() {
        pass.apply(Event::JobRefused {
            key: pass.key.clone(),
            attempt: record.attempt,
            reason,
            message: record.message.clone(),
            avoid: None,
            at: pass.now,
        });
    }
    // The engine does not consider it again if it is held.
    if let Some(job) = pass.resolved_job() {
        pass.apply_fact(&job.fact);
    }
    let record = record.in_state(RecordState::Requeued, Some(reason), &record.message);
    pass.write(Write::Record { record });
}

/// Handles an evicted job: charged until no Work is left, then queued again.
fn ending(pass: &mut JobPass<'_>, record: AdmissionRecord) {
    if let Some(job) = pass.resolved_job() {
        pass.apply_fact(&job.fact);
    }
    apply_evicted(pass, &record);
    charge_excess(pass, &record);
    if has_works(pass) {
        pass.in_flight.works.seen();
        return sweep_works(pass);
    }
    match pass.in_flight.works.has_settled(pass.now) {
        Ok(()) => check_works_after_pods(pass),
        Err(settled) => pass.out.work_queue.add_at(pass.key, settled),
    }
}

/// Checks whether the Works of an evicted or deleted job are gone, unless they were and its pods still end.
fn check_works_after_pods(pass: &mut JobPass<'_>) {
    if pass.in_flight.former_pods.are_waited_for()
        && let Some(at) = pods_still_end(pass)
    {
        return pass.out.work_queue.add_at(pass.key, at);
    }
    check_works(pass);
}

/// Returns when a requeued job was evicted, from which its back-off counts.
fn record_time(record: &AdmissionRecord, now: Time) -> Time {
    record
        .not_before
        .map_or(now, |at| Time(at.as_millisecond().min(now.0)))
}
