//! Works of jobs whose bindings are gone.
//!
//! The finalizer keeps a binding until its Works are gone. If a user removes the finalizer while the
//! binding is being deleted, the binding goes first; its pods run until the members have removed them, and
//! stay charged until then. A new job of the same name waits for that.
//!
//! A new leader finds such Works by themselves: they name their binding, and their manifests say what they
//! request. An unreadable Work is charged nothing.

use crate::facts::running::record_of;
use crate::mirror::BindingIdentity;
use crate::mirror::binding::own_record;
use crate::mirror::seen_work::SeenWork;
use crate::reconcile::Reconciler;
use crate::reconcile::binding_phase::BindingPhase;
use crate::reconcile::check_result::CheckResult;
use crate::reconcile::placed::total;
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::RecordState;
use engine::{Attempt, Event, JobKey, Progress, Reason, Time};

/// Milliseconds between two checks.
const RECHECK_MS: i64 = 1_000;

impl Reconciler {
    /// Returns true if the job, whose binding is gone, has Works that it is charged for, and registers them.
    pub(crate) fn has_remains(&mut self, key: &JobKey) -> bool {
        if self.remains.contains_key(key) {
            return true;
        }
        let Some(binding) = self.mirror.bindings().get(key) else {
            return false;
        };
        let charged = self
            .engine
            .job(key)
            .is_some_and(|job| job.admission.is_some());
        if !charged || !self.waits_for_works(binding) {
            return false;
        }
        let Some(owner) = BindingIdentity::of(binding) else {
            return false;
        };
        self.remains.insert(key.clone(), owner);
        true
    }

    /// Finds and charges Works of bindings that were deleted while this replica did not lead.
    pub(crate) fn find_remains(&mut self, now: Time) {
        let left = self.mirror.works_without_binding();
        let left: Vec<BindingIdentity> = left
            .filter(|(_, works)| works.iter().any(|work| !self.view().is_given_up(work)))
            .map(|(owner, _)| owner.clone())
            .collect();
        for owner in left {
            self.charge_remains(owner, now);
        }
    }

    fn charge_remains(&mut self, owner: BindingIdentity, now: Time) {
        let BindingIdentity { job, id } = owner.clone();
        let namespace = self.view().namespace_of(&job);
        if !namespace.managed || names::is_system_namespace(&job.namespace) {
            return;
        }
        let works: Vec<SeenWork> = self.mirror.works_with(&owner).cloned().collect();
        let shares = self.view().requested_by_works(&job, &works);
        if shares.is_empty() {
            return;
        }
        let queue = self.view().queue_of_works(&job, &works);
        let record = record_of((&id, Attempt(1)), queue, shares, RecordState::Ending, now);
        // The next job of that name waits, unless it runs: then each is charged separately.
        let next = self.mirror.bindings().get(&job);
        let key = match next.is_some_and(|next| runs(next)) {
            true => JobKey::new(&job.namespace, &format!("{}.{id}", job.name)),
            false => job,
        };
        tracing::warn!(
            job = %key, queue = %record.queue, charge = %total(&record.clusters),
            "its binding is gone, and its Works are charged until they are gone"
        );
        self.remember_places(&record);
        self.apply(Event::JobAdmitted {
            key: key.clone(),
            admission: record.admission(),
            progress: Progress::Ending,
        });
        self.remains.insert(key.clone(), owner);
        self.work_queue.add(&key);
    }

    /// Waits until no Works of an earlier binding of this name are left.
    pub(crate) fn check_remains(&mut self, key: &JobKey, now: Time) -> CheckResult {
        let Some(owner) = self.remains.get(key).cloned() else {
            return CheckResult::Continue;
        };
        let binding = self.mirror.bindings().get(key);
        if binding
            .and_then(|binding| BindingIdentity::of(binding))
            .as_ref()
            == Some(&owner)
        {
            // It was not gone: the watch of Works was ahead of the watch of bindings.
            self.remains.remove(key);
            self.forget(key);
            return CheckResult::Continue;
        }
        let mut left = self.mirror.works_with(&owner);
        let waits = left.any(|work| !self.view().is_given_up(work));
        drop(left);
        if !waits {
            self.remains.remove(key);
            self.forget(key);
            return CheckResult::Continue;
        }
        let message = "its binding is gone; it is charged until its Works are gone";
        self.apply(Event::JobEnding {
            key: key.clone(),
            reason: Reason::Deleting,
            message: message.to_owned(),
            avoid: None,
            at: now,
        });
        self.work_queue.add_at(key, now.after(RECHECK_MS));
        self.gate_successor(key);
        CheckResult::Done
    }

    /// Gates a new job of the same name meanwhile.
    fn gate_successor(&mut self, key: &JobKey) {
        let Some(binding) = self.mirror.bindings().get(key).cloned() else {
            return;
        };
        let rule = self.view().namespace_of(key).rule();
        let ungated = crate::reconcile::binding_phase::binding_phase(&binding, rule);
        let open = self
            .in_flight
            .get(key)
            .is_some_and(|in_flight| in_flight.open.is_open());
        if matches!(ungated, BindingPhase::Ungated { .. }) && !open {
            self.write(key, &binding, Write::Hold);
        }
    }
}

/// Returns true if a binding has a charge of its own.
fn runs(binding: &ResourceBinding) -> bool {
    let charged = own_record(binding).filter(|record| record.state != RecordState::Requeued);
    !binding.spec.clusters.is_empty() || charged.is_some()
}
