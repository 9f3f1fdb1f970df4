//! Jobs of which other rules may have changed the place, the timer or the priority.
//!
//! A policy or a priority class may concern all jobs of many queues. They are noted here, whole queues by name,
//! and are brought in step in batches: what one call costs does not grow with the number of jobs.

use crate::api::job::QueueOrder;
use facts::{JobKey, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// Jobs that may be out of step with the rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unsynced {
    /// Queues whose pending jobs have other bounds.
    bounds: BTreeSet<QueueName>,
    jobs: BTreeSet<JobKey>,
    /// Queues of whose pending jobs only those after this one, user by user, may be out of step.
    queues: BTreeMap<QueueName, Option<QueueOrder>>,
}

impl Unsynced {
    /// Returns true if all jobs are in step.
    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty() && self.jobs.is_empty() && self.queues.is_empty()
    }

    /// Notes queues whose pending jobs have other bounds.
    pub(crate) fn note_bounds_of(&mut self, queues: impl IntoIterator<Item = QueueName>) {
        self.bounds.extend(queues);
    }

    /// Takes the first of the queues whose pending jobs have other bounds.
    pub(crate) fn take_bounds_of(&mut self) -> Option<QueueName> {
        self.bounds.pop_first()
    }

    /// Notes these jobs.
    pub(crate) fn note_jobs(&mut self, jobs: impl IntoIterator<Item = JobKey>) {
        self.jobs.extend(jobs);
    }

    /// Notes all pending jobs of queues.
    pub(crate) fn note_pending_of(&mut self, queues: impl IntoIterator<Item = QueueName>) {
        let queues = queues.into_iter().map(|queue| (queue, None));
        self.queues.extend(queues);
    }

    /// Takes the first of the jobs that were noted by name.
    pub(crate) fn take_job(&mut self) -> Option<JobKey> {
        self.jobs.pop_first()
    }

    /// The first queue with pending jobs that may be out of step, and the last job that was taken of it.
    pub(crate) fn first_queue(&self) -> Option<(&QueueName, Option<&QueueOrder>)> {
        let (queue, last) = self.queues.first_key_value()?;
        Some((queue, last.as_ref()))
    }

    /// The pending jobs of a queue up to this one were taken.
    pub(crate) fn note_taken(&mut self, queue: &QueueName, last: QueueOrder) {
        if let Some(taken) = self.queues.get_mut(queue) {
            *taken = Some(last);
        }
    }

    /// All pending jobs of a queue were taken.
    pub(crate) fn note_all_taken(&mut self, queue: &QueueName) {
        self.queues.remove(queue);
    }
}
