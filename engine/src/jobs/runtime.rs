//! The limit of run time of a queue, at which a job is stopped.
//!
//! The limit is the lowest of its queue and those above. It counts from when the job was first
//! observed running; for a job that is known from its record, from its admission. A stopped job
//! stays in the queue but does not compete until it is re-created or the limit is raised above its
//! run time. Predicted run times never stop a job.

use crate::jobs::job::{Job, Released};
use crate::quota::Quota;
use facts::{Progress, Reason, Time};

/// When a running job reaches the limit of its queue.
pub(crate) fn runtime_ends(queues: &Quota, released: &Released) -> Option<Time> {
    let started = released
        .started_at
        .filter(|_| released.progress == Progress::Running)?;
    let (limit, _) = queues.runtime_limit(&released.admission.queue)?;
    Some(started.after(limit))
}

/// Why a stopped job does not compete, if it still does not.
pub(crate) fn stopped(queues: &Quota, job: &Job) -> Option<(Reason, String)> {
    let ran = job.cold.stopped_after?;
    let (limit, queue) = queues.runtime_limit(&job.queue)?;
    let message = format!(
        "it was stopped after {} s, and queue {queue} lets a job run {} s; it competes again once \
         it is submitted again, or that limit is higher",
        ran / 1000,
        limit / 1000
    );
    (ran >= limit).then_some((Reason::RuntimeLimitExceeded, message))
}
