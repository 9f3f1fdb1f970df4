//! The limit of run time: a job that has run as long as its queue allows is stopped.
//!
//! The limit is the least that its queue or a queue above it names, counted from when the job
//! was first seen running (of one that only its record tells of, from its admission). A job
//! that was stopped stays in the queue but does not compete, until it is made anew or the limit
//! is above what it ran, or gone. Only this limit stops jobs; predicted run times never do.

use crate::api::event::Progress;
use crate::api::ids::{QueueName, Time};
use crate::api::reason::Reason;
use crate::jobs::job::{Job, Released};
use crate::quota::queues::Queues;

/// Milliseconds that a job of the queue may run, and which queue says so.
pub(crate) fn runtime_limit(queues: &Queues, queue: &QueueName) -> Option<(i64, QueueName)> {
    let path = queues.path(queue).into_iter().rev();
    let limits = path.filter_map(|name| {
        let limit = queues.policy(&name)?.limits.runtime_ms?;
        Some((limit.max(0), name))
    });
    limits.min_by_key(|(limit, _)| *limit)
}

/// When a running job has run as long as it may.
pub(crate) fn runtime_ends(queues: &Queues, released: &Released) -> Option<Time> {
    let started = released
        .started_at
        .filter(|_| released.progress == Progress::Running)?;
    let (limit, _) = runtime_limit(queues, &released.admission.queue)?;
    Some(started.after(limit))
}

/// Why a job that was stopped does not compete, while that holds.
pub(crate) fn stopped(queues: &Queues, job: &Job) -> Option<(Reason, String)> {
    let ran = job.cold.stopped_after?;
    let (limit, queue) = runtime_limit(queues, &job.queue)?;
    let message = format!(
        "it was stopped after {} s, and queue {queue} lets a job run {} s; it competes again once it is made anew, or that limit is higher",
        ran / 1000,
        limit / 1000
    );
    (ran >= limit).then_some((Reason::RuntimeLimitExceeded, message))
}
