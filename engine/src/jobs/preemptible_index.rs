//! The index of jobs that could be evicted, by queue and priority, and of terminating jobs.
//!
//! A search for victims uses this index, so that its cost does not depend on the number of pending
//! jobs.

use crate::api::ids::{JobKey, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// Admitted jobs that are neither ending nor over, and jobs that are terminating.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PreemptibleIndex {
    /// Jobs by the queue that they are charged to, lowest priority first.
    queues: BTreeMap<QueueName, BTreeSet<(i32, JobKey)>>,
    /// The number of jobs of each priority.
    priorities: BTreeMap<i32, usize>,
    /// Jobs that are ending and still charged, or have terminating pods.
    terminating: BTreeSet<JobKey>,
}

impl PreemptibleIndex {
    /// Moves a job from one queue and priority to another; `None` means that it is not listed.
    pub(crate) fn set(
        &mut self,
        key: &JobKey,
        was: Option<&(QueueName, i32)>,
        now: Option<&(QueueName, i32)>,
    ) {
        if was == now {
            return;
        }
        if let Some((queue, priority)) = was {
            if let Some(jobs) = self.queues.get_mut(queue) {
                jobs.remove(&(*priority, key.clone()));
                if jobs.is_empty() {
                    self.queues.remove(queue);
                }
            }
            if let Some(count) = self.priorities.get_mut(priority) {
                *count -= 1;
                if *count == 0 {
                    self.priorities.remove(priority);
                }
            }
        }
        if let Some((queue, priority)) = now {
            let jobs = self.queues.entry(queue.clone()).or_default();
            jobs.insert((*priority, key.clone()));
            *self.priorities.entry(*priority).or_default() += 1;
        }
    }

    /// Lists a job as terminating, or not.
    pub(crate) fn set_terminating(&mut self, key: &JobKey, terminating: bool) {
        if terminating {
            self.terminating.insert(key.clone());
        } else {
            self.terminating.remove(key);
        }
    }

    /// Jobs that are terminating, as a whole or in part.
    pub(crate) fn terminating(&self) -> impl Iterator<Item = &JobKey> {
        self.terminating.iter()
    }

    /// The queues that have such jobs.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.queues.keys()
    }

    /// The jobs of a queue, lowest priority first.
    pub(crate) fn of(&self, queue: &QueueName) -> impl Iterator<Item = &(i32, JobKey)> {
        self.queues.get(queue).into_iter().flatten()
    }

    /// The jobs of all queues.
    pub(crate) fn all(&self) -> impl Iterator<Item = &JobKey> {
        self.below(|_| true)
    }

    /// The jobs of all queues for which `counts` returns true.
    pub(crate) fn below(
        &self,
        counts: impl Fn(&QueueName) -> bool,
    ) -> impl Iterator<Item = &JobKey> {
        let queues = self.queues.iter().filter(move |(queue, _)| counts(queue));
        queues.flat_map(|(_, jobs)| jobs.iter().map(|(_, key)| key))
    }

    /// The position of a priority among those in use, 0 for the lowest.
    pub(crate) fn rank(&self, priority: i32) -> usize {
        self.priorities.range(..priority).count()
    }
}
