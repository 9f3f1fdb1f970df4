//! The limit of run time: a job that has run as long as its queue allows is stopped.
//!
//! The limit is the least that its queue or a queue above it names, counted from when the job
//! was first seen running (of one that only its record tells of, from its admission). A job
//! that was stopped stays in the queue but does not compete, until it is made anew or the limit
//! is above what it ran, or gone. Only this limit stops jobs; predicted run times never do.

use crate::api::decision::Decision;
use crate::api::event::Progress;
use crate::api::ids::{JobKey, QueueName, Time, Uid};
use crate::api::reason::Reason;
use crate::engine::Engine;
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

impl Engine {
    /// Stops a job that has run as long as it may.
    pub(crate) fn stop_overdue(&mut self, key: &JobKey) -> Option<Decision> {
        let job = self.jobs.by_key.get_mut(key)?;
        let released = job.released.as_deref()?;
        if runtime_ends(&self.quota, released)? > self.now {
            return None;
        }
        let (limit, queue) = runtime_limit(&self.quota, &released.admission.queue)?;
        let ran = self.now.millis_since(released.started_at?).max(limit);
        job.cold.change(|known| known.stopped_after = Some(ran));
        let message = format!(
            "it ran {} s, and queue {queue} lets a job run {} s",
            ran / 1000,
            limit / 1000
        );
        self.evict(key, Reason::RuntimeLimitExceeded, &message, None)
    }

    /// A job was found stopped, by its record.
    pub(crate) fn job_stopped(&mut self, key: &JobKey, uid: &Uid, ran_ms: i64) {
        if let Some(job) = self.jobs.by_key.get_mut(key).filter(|job| job.uid == *uid) {
            job.cold.change(|known| known.stopped_after = Some(ran_ms));
            self.register(key);
        }
    }

    /// Why a job that was stopped does not compete, while that holds.
    pub(crate) fn stopped(&self, job: &Job) -> Option<(Reason, String)> {
        let ran = job.cold.stopped_after?;
        let (limit, queue) = runtime_limit(&self.quota, &job.queue)?;
        let message = format!(
            "it was stopped after {} s, and queue {queue} lets a job run {} s; it competes again once it is made anew, or that limit is higher",
            ran / 1000,
            limit / 1000
        );
        (ran >= limit).then_some((Reason::RuntimeLimitExceeded, message))
    }
}
