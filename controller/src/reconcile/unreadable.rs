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
use crate::reconcile::opened::opened_by_hand;
use crate::reconcile::placed::outcome;
use crate::reconcile::{JobPass, unread};
use crds::record::{AdmissionRecord, RecordError, RecordState};
use engine::facts::{Admission, Held, Hold};
use engine::{Attempt, Event, JobState, Progress, Reason, Uid};

/// Charges a job whose record cannot be acted on, and reports it.
pub(crate) fn not_touched(pass: &mut JobPass<'_>, error: &RecordError) {
    let known = pass.engine.job(pass.key);
    let waits = known.is_some_and(|job| job.state == JobState::Queued && job.admission.is_none());
    if error.is_garbage() && waits {
        return opened_by_hand(pass, None);
    }
    let message = format!("{error}; it is charged for what runs, and Muster changes nothing of it");
    if pass.jobs.not_touched(pass.key, &pass.out.metrics) {
        let event = JobEvent::warning(Reason::RecordUnreadable, "Keep", message.clone());
        pass.record_event(event);
    }
    let job = pass.resolved_job();
    charge_unreadable(pass, error, job.as_ref());
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
            pass.apply_fact(&fact);
        }
        None if pass.engine.job(pass.key).is_some() => unread(pass),
        None => {} // reconciled again when its template comes
    }
}

/// Charges in the engine a job whose record cannot be acted on, if any of it may run.
pub(crate) fn charge_unreadable(
    pass: &mut JobPass<'_>,
    error: &RecordError,
    job: Option<&ResolvedJob>,
) {
    let Some(admission) = unreadable_admission(pass, error, job) else {
        return;
    };
    let progress = match outcome(pass.binding).is_finished() {
        true => Progress::Finished,
        false => Progress::Running,
    };
    pass.apply(Event::JobAdmitted {
        key: pass.key.clone(),
        admission,
        progress,
    });
}

/// Returns the charge: the maximum, in each cluster, of its record, its present charge, and what its
/// placement and Works get of its template.
fn unreadable_admission(
    pass: &JobPass<'_>,
    error: &RecordError,
    job: Option<&ResolvedJob>,
) -> Option<Admission> {
    let readable = &error.readable;
    let known = pass.engine.job(pass.key);
    let charged = known.as_ref().and_then(|job| job.admission);
    let runs = pass.view().running_shares(pass.key, pass.binding, job);
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
        let works = pass.mirror.works.of(pass.binding);
        pass.view().queue_of_works(pass.key, works)
    });
    let record = AdmissionRecord {
        clusters: shares,
        ..AdmissionRecord::new(
            &Admission {
                uid: Uid::new(&pass.binding.spec.resource.uid),
                attempt: Attempt(attempt.max(attempts).max(1)),
                queue,
                admitted_at: charged.map_or(pass.now, |charged| charged.admitted_at),
                declared_ms: None,
                shares: Vec::new(),
            },
            RecordState::Admitted,
        )
    };
    Some(record.admission())
}
