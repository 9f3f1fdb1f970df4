//! Gives the engine the facts and events of one job: its demand, its admission, its end.
//!
//! Repeating a fact changes nothing, so each reconcile may apply all of them.

use crate::reconcile::JobPass;
use crate::reconcile::evict::apply_ending;
use crate::reconcile::placed::is_over;
use crate::reconcile::placed::shrink::apply_leaving;
use crds::record::AdmissionRecord;
use engine::{Event, JobState, Progress, Reason};

/// Makes the engine charge `record`, and applies the job's progress.
pub(crate) fn apply_admission(
    pass: &mut JobPass<'_>,
    record: &AdmissionRecord,
    progress: Progress,
) {
    let known = pass.engine.job(pass.key).and_then(|job| {
        job.admission
            .map(|a| (a.uid.clone(), a.attempt, reached(job.state)))
    });
    match known {
        Some((uid, attempt, at)) if uid == record.template_uid && attempt == record.attempt => {
            if at != Some(progress) {
                let (key, at) = (pass.key.clone(), pass.now);
                pass.apply(Event::JobProgressed {
                    key,
                    attempt,
                    progress,
                    at,
                });
            }
        }
        _ => {
            pass.queue_pass().remember_places(record);
            pass.apply(Event::JobAdmitted {
                key: pass.key.clone(),
                admission: record.admission(),
                progress,
            });
            apply_leaving(pass, record);
        }
    }
}

/// Charges an ending job until its Works are gone, whatever the engine had before.
pub(crate) fn apply_evicted(pass: &mut JobPass<'_>, record: &AdmissionRecord) {
    if is_over(pass.engine, pass.key, record) {
        let reason = record.reason.unwrap_or(Reason::Evicted);
        return apply_ending(pass, reason, &record.message, None);
    }
    apply_ended(pass, record);
}

/// Applies the eviction of an attempt with its reason, on which it depends whether it counts as a failure
/// of the job and whether the job may compete again.
pub(crate) fn apply_ended(pass: &mut JobPass<'_>, record: &AdmissionRecord) {
    let is_charged = pass.admission_of(record.attempt).is_some();
    match record.reason {
        // Only after a restart: the engine does not evict an attempt that it does not have.
        Some(reason) if !is_charged => {
            apply_admission(pass, record, Progress::Placed);
            apply_ending(pass, reason, &record.message, None);
        }
        _ => apply_admission(pass, record, Progress::Ending),
    }
}

/// Applies the stop of an attempt that ran longer than its queue allows: the job does not compete again
/// until the limit changes. The record has the time of the admission, not of the start, so the run time is
/// shorter than computed.
pub(crate) fn apply_stopped(pass: &mut JobPass<'_>, record: &AdmissionRecord) {
    if let (Some(Reason::RuntimeLimitExceeded), Some(at)) = (record.reason, record.evicted_at) {
        let ran = at
            .as_millisecond()
            .saturating_sub(record.time.as_millisecond());
        pass.apply(Event::JobStopped {
            key: pass.key.clone(),
            uid: record.template_uid.clone(),
            ran_ms: ran,
        });
    }
}

/// Returns the progress of an admitted job in the engine.
fn reached(state: JobState) -> Option<Progress> {
    match state {
        JobState::Queued => None,
        JobState::Assumed => Some(Progress::Assumed),
        JobState::Placed => Some(Progress::Placed),
        JobState::Running => Some(Progress::Running),
        JobState::Ending => Some(Progress::Ending),
        JobState::Finished => Some(Progress::Finished),
    }
}
