//! Jobs whose admission record this version cannot act on: a later version of Muster wrote it, before a
//! rollback or during an upgrade, or a user overwrote it.
//!
//! Such a job is charged and otherwise left alone: Muster does not admit, evict, gate or open it, and does
//! not write its record. It is charged what its record says, as far as that can be read, and no less than
//! what its Works, its placement and its template request. Its PodGroup and an event say so, and
//! `muster_records_unreadable` counts it.
//!
//! A later version can act on its own record again. An operator repairs a corrupt record by removing the
//! annotation: the job then has no record, and is gated and queued again. If the leader knows a binding as
//! pending, the user who overwrote its record has opened it, and it is gated at once. A gated binding with
//! Works is charged until these are gone; then it waits without a record, until the annotation is removed.

use crate::facts::job::ResolvedJob;
use crate::facts::running::cover;
use crate::messages::job_event::JobEvent;
use crate::mirror::namespace::NamespaceFact;
use crate::reconcile::placed::outcome;
use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::record::{AdmissionRecord, RecordError, RecordState};
use engine::facts::{Admission, Held, Hold};
use engine::{Attempt, Event, JobKey, JobState, Progress, Reason, Uid};

impl Reconciler {
    /// Charges a job whose record cannot be acted on, and reports it.
    pub(crate) fn not_touched(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        namespace: &NamespaceFact,
        error: &RecordError,
    ) {
        let known = self.engine.job(ctx.key);
        let waits =
            known.is_some_and(|job| job.state == JobState::Queued && job.admission.is_none());
        if error.is_garbage() && waits {
            return self.opened_by_hand(ctx, None);
        }
        let message =
            format!("{error}; it is charged for what runs, and Muster changes nothing of it");
        if self.untouched.insert(ctx.key.clone()) {
            self.count_untouched();
            let event = JobEvent::warning(Reason::RecordUnreadable, "Keep", message.clone());
            self.record_event(ctx, event);
        }
        let job = self.job_of(ctx.key, &ctx.binding, namespace);
        self.charge_unreadable(ctx, error, job.as_ref());
        match job {
            Some(job) => {
                let mut fact = job.fact;
                fact.hold = Some(Hold {
                    reason: Reason::RecordUnreadable,
                    message,
                });
                fact.preemptible = false;
                fact.demand.elastic = false;
                fact.demand.held = Held::Not;
                self.apply_fact(&fact);
            }
            None if self.engine.job(ctx.key).is_some() => self.unread(ctx, namespace),
            None => {} // reconciled again when its template comes
        }
    }

    /// Charges in the engine a job whose record cannot be acted on, if any of it may run.
    pub(crate) fn charge_unreadable(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        error: &RecordError,
        job: Option<&ResolvedJob>,
    ) {
        let Some(admission) = self.unreadable_admission(ctx, error, job) else {
            return;
        };
        let progress = match outcome(&ctx.binding).is_finished() {
            true => Progress::Finished,
            false => Progress::Running,
        };
        self.apply(Event::JobAdmitted {
            key: ctx.key.clone(),
            admission,
            progress,
        });
    }

    /// Returns the charge: the maximum, in each cluster, of its record, its present charge, and what its
    /// placement and Works get of its template.
    fn unreadable_admission(
        &self,
        ctx: &ReconcileCtx<'_>,
        error: &RecordError,
        job: Option<&ResolvedJob>,
    ) -> Option<Admission> {
        let readable = &error.readable;
        let known = self.engine.job(ctx.key);
        let charged = known.as_ref().and_then(|job| job.admission);
        let runs = self.view().running_shares(ctx.key, &ctx.binding, job);
        let holds_nothing = readable.state == Some(RecordState::Requeued) && runs.is_empty();
        let mut shares = match holds_nothing {
            true => Vec::new(),
            false => readable.clusters.clone(),
        };
        if let Some(charged) = charged {
            let charged = AdmissionRecord::new(charged, RecordState::Admitted).clusters;
            cover(&mut shares, charged);
        }
        cover(&mut shares, runs);
        if shares.is_empty() {
            return None;
        }
        let attempts = known.as_ref().map_or(0, |job| job.attempts.0);
        let attempt = readable.attempt.map_or(1, |attempt| attempt.0);
        let queue = readable.queue.clone();
        let queue = queue.or_else(|| charged.map(|charged| charged.queue.clone()));
        let queue = queue.or_else(|| job.map(|job| job.fact.queue.clone()));
        let queue = queue.unwrap_or_else(|| {
            let works = self.mirror.works_of(&ctx.binding);
            self.view().queue_of_works(ctx.key, works)
        });
        let record = AdmissionRecord {
            clusters: shares,
            ..AdmissionRecord::new(
                &Admission {
                    uid: Uid::new(&ctx.binding.spec.resource.uid),
                    attempt: Attempt(attempt.max(attempts).max(1)),
                    queue,
                    admitted_at: charged.map_or(ctx.now, |charged| charged.admitted_at),
                    declared_ms: None,
                    shares: Vec::new(),
                },
                RecordState::Admitted,
            )
        };
        Some(record.admission())
    }

    /// Records that the record of `key` can be read again, or that the job is gone.
    pub(crate) fn touched(&mut self, key: &JobKey) {
        if self.untouched.remove(key) {
            self.count_untouched();
        }
    }

    fn count_untouched(&self) {
        let count = i64::try_from(self.untouched.len()).unwrap_or(i64::MAX);
        self.metrics.records_unreadable.set(count);
    }
}
