//! What entitles jobs to have others evicted, so that evictions come to an end.
//!
//! An eviction for another job needs a *cause*: something that came up after the victim was admitted. Causes of a job
//! are that it was queued, that it came back after it failed, that a person changed it or a queue, and that a job of
//! its queue ended by itself. A job that is evicted for another one inherits the cause of that eviction, since it may
//! have to take another place; it has a right of its own only by a later cause.
//!
//! That is why evictions end, over any number of queues: a job that was admitted after the last cause is evicted for
//! nobody. Jobs that never gave way yet may give way once whatever the cause. So between two causes each job is evicted
//! at most once: it is admitted again after the last one.
//!
//! A cause comes after all admissions that were made before it was seen: the clock moves by a millisecond where these
//! would have the same time.
//!
//! This is kept in memory, and what of it is not is in the records (when a job was queued and admitted): after a
//! restart each job may give way once more.

use crate::jobs::job::Job;
use crate::jobs::store::Jobs;
use crate::quota::ROOT;
use facts::{JobKey, QueueName, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What came up for whole queues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueCauses {
    /// When a job of each queue, or of one below it, last ended by itself; at the root, when a person last changed a
    /// queue.
    last: BTreeMap<QueueName, Time>,
    /// When a job that gave way was last admitted again.
    readmitted_at: Option<Time>,
}

impl QueueCauses {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if a job that gave way was admitted at this time or later.
    pub(crate) fn is_readmitted_since(&self, at: Time) -> bool {
        self.readmitted_at >= Some(at)
    }

    /// Something came up for the queues of `path`.
    pub(crate) fn note(&mut self, path: impl IntoIterator<Item = QueueName>, at: Time) {
        for queue in path {
            let last = self.last.entry(queue).or_insert(at);
            *last = (*last).max(at);
        }
    }

    fn last(&self, queue: &QueueName) -> Option<Time> {
        self.last.get(queue).copied()
    }

    /// Forgets a queue that is gone.
    pub(crate) fn forget(&mut self, queue: &QueueName) {
        self.last.remove(queue);
    }
}

impl Jobs {
    /// Returns what came up for whole queues.
    pub(crate) fn queue_causes(&self) -> &QueueCauses {
        &self.queue_causes
    }

    /// The same, to be changed.
    pub(crate) fn queue_causes_mut(&mut self) -> &mut QueueCauses {
        &mut self.queue_causes
    }

    /// When the latest cause came up for which jobs may be evicted for this one. `queue` is its queue, or the one above
    /// it that is entitled.
    pub(crate) fn cause_of(&self, key: &JobKey, queue: &QueueName) -> Time {
        let job = self.get(key);
        let own = job.map(|job| {
            let causes = [job.cold.gave_way_to, job.cold.renewed_at];
            causes.into_iter().flatten().fold(job.queued_at, Time::max)
        });
        let of_queues = [queue, &QueueName::from(ROOT)].map(|queue| self.queue_causes.last(queue));
        let all = own.into_iter().chain(of_queues.into_iter().flatten());
        all.max().unwrap_or_default()
    }

    /// Notes that a job is evicted for another one, because of what came up at `cause`.
    pub(crate) fn note_gave_way(&mut self, key: &JobKey, cause: Time) {
        if let Some(job) = self.job_mut(key) {
            job.cold
                .change(|cold| cold.gave_way_to = cold.gave_way_to.max(Some(cause)));
        }
    }

    /// Notes that a job was admitted.
    pub(crate) fn note_readmitted(&mut self, key: &JobKey, at: Time) {
        if self.get(key).is_some_and(Job::gave_way) {
            self.queue_causes.readmitted_at = Some(at);
        }
    }

    /// Notes that a job came back after it failed, or that a person changed it.
    pub(crate) fn note_renewed(&mut self, key: &JobKey, at: Time) {
        if let Some(job) = self.job_mut(key) {
            job.cold.change(|cold| cold.renew(at));
        }
    }
}

impl Job {
    /// Returns true if it was ever evicted for another job.
    pub(crate) fn gave_way(&self) -> bool {
        self.cold.gave_way_to.is_some()
    }
}
