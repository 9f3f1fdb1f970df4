//! The limit of run time: a job that has run as long as its queue allows is stopped.
//!
//! The limit is the least that its queue or a queue above it names, counted from when the job
//! was first seen running (of one that only its record tells of, from its admission). A job
//! that was stopped stays in the queue but does not compete, until it is made again or the limit
//! is above what it ran, or gone. Only this limit stops jobs; predicted run times never do.

use crate::api::event::Progress;
use crate::api::ids::Time;
use crate::api::reason::Reason;
use crate::jobs::job::{Job, Released};
use crate::quota::Quota;

/// When a running job has run as long as it may.
pub(crate) fn runtime_ends(queues: &Quota, released: &Released) -> Option<Time> {
    let started = released
        .started_at
        .filter(|_| released.progress == Progress::Running)?;
    let (limit, _) = queues.runtime_limit(&released.admission.queue)?;
    Some(started.after(limit))
}

/// Why a job that was stopped does not compete, while that holds.
pub(crate) fn stopped(queues: &Quota, job: &Job) -> Option<(Reason, String)> {
    let ran = job.cold.stopped_after?;
    let (limit, queue) = queues.runtime_limit(&job.queue)?;
    let message = format!(
        "it was stopped after {} s, and queue {queue} lets a job run {} s; it competes again once it is submitted again, or that limit is higher",
        ran / 1000,
        limit / 1000
    );
    (ran >= limit).then_some((Reason::RuntimeLimitExceeded, message))
}
