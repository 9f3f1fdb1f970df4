//! Who holds something and could be evicted: released jobs that are neither ending nor
//! over, by the queue that is charged and by priority.
//!
//! Kept so that who looks for something to evict sees its candidates and nobody else.

use crate::api::event::Progress;
use crate::api::ids::{JobKey, QueueName};
use crate::engine::Engine;
use crate::jobs::job::{Job, JobState};
use std::collections::{BTreeMap, BTreeSet};

/// Jobs by queue, lowest priority first; and how many there are of each priority.
#[derive(Debug, Clone, Default)]
pub(crate) struct PreemptibleIndex {
    queues: BTreeMap<QueueName, BTreeSet<(i32, JobKey)>>,
    priorities: BTreeMap<i32, usize>,
    /// Jobs that are ending and still charged, or of which pods are leaving.
    going: BTreeSet<JobKey>,
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

    /// Notes whether a job is, or some of it, on its way out.
    pub(crate) fn set_going(&mut self, key: &JobKey, going: bool) {
        if going {
            self.going.insert(key.clone());
        } else {
            self.going.remove(key);
        }
    }

    /// Jobs that are on their way out, or some of which is.
    pub(crate) fn going(&self) -> impl Iterator<Item = &JobKey> {
        self.going.iter()
    }

    pub(crate) fn is_listed_going(&self, key: &JobKey) -> bool {
        self.going.contains(key)
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

    pub(crate) fn has(&self, queue: &QueueName, priority: i32, key: &JobKey) -> bool {
        let jobs = self.queues.get(queue);
        jobs.is_some_and(|jobs| jobs.contains(&(priority, key.clone())))
    }

    /// All jobs.
    pub(crate) fn len(&self) -> usize {
        self.queues.values().map(BTreeSet::len).sum()
    }
}

impl Engine {
    /// Where a job should be listed, if it holds something that could be evicted.
    pub(crate) fn held_of(&self, job: &Job) -> Option<(QueueName, i32)> {
        let holds = matches!(
            job.state(),
            JobState::Assumed | JobState::Placed | JobState::Running
        );
        let released = job.released.as_ref().filter(|_| holds)?;
        let priority = self.priority_of(job).unwrap_or_default();
        Some((released.admission.queue.clone(), priority))
    }

    /// Whether a job is charged for what is on its way out.
    pub(crate) fn is_going(job: &Job) -> bool {
        let released = job.released.as_ref().filter(|released| released.charged());
        released.is_some_and(|released| {
            released.progress == Progress::Ending || !released.leaving.is_empty()
        })
    }

    pub(crate) fn note_stopped(&mut self, key: &JobKey, stopped: bool) {
        if stopped {
            self.jobs.stopped.insert(key.clone());
        } else {
            self.jobs.stopped.remove(key);
        }
    }
}
