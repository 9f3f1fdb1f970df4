//! Works of jobs whose bindings are gone.
//!
//! The finalizer keeps a binding until its Works are gone. If a user removes the finalizer while the
//! binding is being deleted, the binding goes first; its pods run until the members have removed them, and
//! stay charged until then. A new job of the same name waits for that.
//!
//! A new leader finds such Works by themselves: they name their binding, and their manifests say what they
//! request. An unreadable Work is charged nothing.

use crate::facts::running::record_of;
use crate::facts::view::View;
use crate::mirror::BindingIdentity;
use crate::mirror::binding::own_record;
use crate::mirror::seen_work::SeenWork;
use crate::reconcile::binding_phase::{BindingPhase, binding_phase};
use crate::reconcile::check_result::CheckResult;
use crate::reconcile::out_of_service::waits_for_works;
use crate::reconcile::placed::total;
use crate::reconcile::{JobPass, Reconciler, forget};
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::RecordState;
use engine::{Attempt, Event, JobKey, Progress, Reason, Time};

/// Milliseconds between two checks.
const RECHECK_MS: i64 = 1_000;

/// Returns the identity of a job's binding, if the job is charged for Works of it.
fn charged_owner(view: View<'_>, key: &JobKey) -> Option<BindingIdentity> {
    let binding = view.mirror.bindings().get(key)?;
    let job = view.engine.job(key);
    let is_charged = job.is_some_and(|job| job.admission.is_some());
    let owner = BindingIdentity::of(binding)?;
    (is_charged && waits_for_works(view, binding)).then_some(owner)
}

/// Registers the Works that a job is charged for, whose binding is gone.
pub(crate) fn binding_gone(reconciler: &mut Reconciler, key: &JobKey) {
    if let Some(owner) = charged_owner(reconciler.view(), key) {
        let remains = &mut reconciler.jobs.remains;
        remains.entry(key.clone()).or_insert(owner);
    }
}

/// Forgets a job whose binding is not managed or is replaced by another one of its name, unless the job is charged for
/// Works of it.
pub(crate) fn forget_unless_charged(reconciler: &mut Reconciler, key: &JobKey) {
    binding_gone(reconciler, key);
    if !reconciler.jobs.remains.contains_key(key) {
        forget(reconciler, key);
    }
}

/// Finds and charges Works of bindings that were deleted while this replica did not lead.
pub(crate) fn find_remains(reconciler: &mut Reconciler, now: Time) {
    let left = reconciler.mirror.works_without_binding();
    let left: Vec<BindingIdentity> = left
        .filter(|(_, works)| {
            works
                .iter()
                .any(|work| !reconciler.view().is_given_up(work))
        })
        .map(|(owner, _)| owner.clone())
        .collect();
    for owner in left {
        charge_remains(reconciler, owner, now);
    }
}

fn charge_remains(reconciler: &mut Reconciler, owner: BindingIdentity, now: Time) {
    let BindingIdentity { job, id } = owner.clone();
    let view = reconciler.view();
    let namespace = view.namespace_of(&job);
    if !namespace.managed || names::is_system_namespace(&job.namespace) {
        return;
    }
    let works: Vec<SeenWork> = view.mirror.works.with(&owner).cloned().collect();
    let shares = view.requested_by_works(&job, &works);
    if shares.is_empty() {
        return;
    }
    let queue = view.queue_of_works(&job, &works);
    let record = record_of((&id, Attempt(1)), queue, shares, RecordState::Ending, now);
    // The next job of that name waits, unless it runs: then each is charged separately.
    let next = view.mirror.bindings().get(&job);
    let key = match next.is_some_and(|next| runs(next)) {
        true => JobKey::new(&job.namespace, &format!("{}.{id}", job.name)),
        false => job,
    };
    tracing::warn!(
        job = %key, queue = %record.queue, charge = %total(&record.clusters),
        "its binding is gone, and its Works are charged until they are gone"
    );
    reconciler.queue_pass().remember_places(&record);
    reconciler.apply(Event::JobAdmitted {
        key: key.clone(),
        admission: record.admission(),
        progress: Progress::Ending,
    });
    reconciler.jobs.remains.insert(key.clone(), owner);
    reconciler.out.work_queue.add(&key);
}

/// Waits until no Works of an earlier binding of this name are left.
pub(crate) fn check_remains(reconciler: &mut Reconciler, key: &JobKey, now: Time) -> CheckResult {
    let Some(owner) = reconciler.jobs.remains.get(key).cloned() else {
        return CheckResult::Continue;
    };
    let view = reconciler.view();
    let binding = view.mirror.bindings().get(key);
    let present = binding.and_then(|binding| BindingIdentity::of(binding));
    // If it was not gone, the watch of Works was ahead of the watch of bindings.
    let is_gone = present.as_ref() != Some(&owner);
    let mut left = view.mirror.works.with(&owner);
    if !is_gone || left.all(|work| view.is_given_up(work)) {
        drop(left);
        reconciler.jobs.remains.remove(key);
        forget(reconciler, key);
        return CheckResult::Continue;
    }
    drop(left);
    let message = "its binding is gone; it is charged until its Works are gone";
    reconciler.apply(Event::JobEnding {
        key: key.clone(),
        reason: Reason::Deleting,
        message: message.to_owned(),
        avoid: None,
        at: now,
    });
    reconciler.out.work_queue.add_at(key, now.after(RECHECK_MS));
    reconciler.job(key, now, gate_successor);
    CheckResult::Done
}

/// Gates a new job of the same name meanwhile.
fn gate_successor(pass: &mut JobPass<'_>) {
    let phase = binding_phase(pass.binding, pass.namespace().rule());
    if matches!(phase, BindingPhase::Ungated { .. }) && !pass.in_flight.open.is_open() {
        pass.write(Write::Hold);
    }
}

/// Returns true if a binding has a charge of its own.
fn runs(binding: &ResourceBinding) -> bool {
    let charged = own_record(binding).filter(|record| record.state != RecordState::Requeued);
    !binding.spec.clusters.is_empty() || charged.is_some()
}
