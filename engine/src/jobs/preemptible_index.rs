//! The jobs that could be evicted: released, neither terminating nor over, by the queue that is
//! charged and by priority. And the jobs that are terminating.
//!
//! A search for victims goes through this index, so that its cost does not depend on the number of
//! pending jobs.

use crate::api::ids::{JobKey, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// Jobs by queue, lowest priority first; and how many there are of each priority.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PreemptibleIndex {
    queues: BTreeMap<QueueName, BTreeSet<(i32, JobKey)>>,
    priorities: BTreeMap<i32, usize>,
    /// Jobs that are ending and still charged, or of which pods are leaving.
    terminating: BTreeSet<JobKey>,
}

impl PreemptibleIndex {
    /// Moves a job from where it stood to where it stands.
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

    /// Lists a job as terminating, as a whole or in part, or removes it from that list.
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

    /// Queues whose jobs hold something.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.queues.keys()
    }

    /// The jobs of a queue, lowest priority first.
    pub(crate) fn of(&self, queue: &QueueName) -> impl Iterator<Item = &(i32, JobKey)> {
        self.queues.get(queue).into_iter().flatten()
    }

    /// The jobs of all queues that `counts` names.
    pub(crate) fn below(&self, counts: impl Fn(&QueueName) -> bool) -> Vec<JobKey> {
        let queues = self.queues.iter().filter(|(queue, _)| counts(queue));
        queues
            .flat_map(|(_, jobs)| jobs.iter().map(|(_, key)| key.clone()))
            .collect()
    }

    /// Place of a priority among those in use, 0 being the lowest.
    pub(crate) fn rank(&self, priority: i32) -> usize {
        self.priorities.range(..priority).count()
    }
}
