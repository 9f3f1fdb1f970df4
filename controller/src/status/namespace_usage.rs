//! What the jobs of each namespace use and request, by queue. Pure.
//!
//! ```text
//! a job changes ─► its part here ─► at most once in a while, all of the namespaces that are due
//! ```
//!
//! Each namespace that is due may write a status for each of its queues, and a change of a queue concerns all of its
//! namespaces. So the pause between two looks grows with the number of these statuses: at most ten are written in a
//! second.

use crds::capacity_policy::JobCounts;
use engine::{JobKey, JobState, QueueName, Resources, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Least milliseconds between two looks.
const EVERY_MS: i64 = 5_000;
/// Least milliseconds between two looks at what is free in all clusters: that changes with the jobs of everybody.
const FREE_EVERY_MS: i64 = 60_000;
/// Milliseconds between two looks for each status.
const FOR_EACH_MS: i64 = 100;

/// The part of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobPart {
    pub(super) queue: QueueName,
    pub(super) state: JobState,
    /// What is charged, or requested while it is pending.
    pub(super) amount: Resources,
}

/// What the jobs of one namespace are in one queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NamespacePart {
    pub(super) used: Resources,
    pub(super) pending: Resources,
    pub(super) counts: JobCounts,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct NamespaceUsage {
    jobs: BTreeMap<JobKey, JobPart>,
    /// The namespaces and queues whose statuses may have changed.
    namespaces: BTreeSet<Arc<str>>,
    queues: BTreeSet<QueueName>,
    looked_at: Option<Time>,
    /// The number of statuses at the last look.
    statuses: usize,
    /// What was free in all clusters, and when.
    free: (Option<Time>, Resources),
}

impl NamespaceUsage {
    /// Records the part of a job; none if nothing is known of it any more.
    pub(super) fn note(&mut self, key: &JobKey, part: Option<JobPart>) {
        let before = match part.clone() {
            Some(part) => self.jobs.insert(key.clone(), part),
            None => self.jobs.remove(key),
        };
        if before != part {
            self.namespaces.insert(Arc::clone(&key.namespace));
        }
    }

    /// Marks a namespace.
    pub(crate) fn namespace(&mut self, namespace: &str) {
        self.namespaces.insert(Arc::from(namespace));
    }

    /// Marks the namespaces of a queue.
    pub(super) fn queue(&mut self, queue: &QueueName) {
        self.queues.insert(queue.clone());
    }

    /// Forgets everything: another replica publishes it.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Looks again at what is free in all clusters if that was long ago, and returns true if it has changed.
    pub(super) fn look_at_free(&mut self, now: Time, free: impl FnOnce() -> Resources) -> bool {
        let (at, before) = &self.free;
        if at.is_some_and(|at| now.millis_since(at) < FREE_EVERY_MS) {
            return false;
        }
        let free = free();
        let has_changed = *before != free;
        self.free = (Some(now), free);
        has_changed
    }

    /// Returns what was free in all clusters at the last look.
    pub(super) fn free(&self) -> &Resources {
        &self.free.1
    }

    /// Returns when the next look is due, if something is marked.
    pub(crate) fn next_due(&self) -> Option<Time> {
        if self.namespaces.is_empty() && self.queues.is_empty() {
            return None;
        }
        let each = i64::try_from(self.statuses).unwrap_or(i64::MAX);
        let pause = EVERY_MS.max(each.saturating_mul(FOR_EACH_MS));
        Some(self.looked_at.map_or(Time(0), |at| at.after(pause)))
    }

    /// Returns the marked namespaces and queues if a look is due at `now`, with `statuses` statuses in all.
    pub(super) fn take_due(
        &mut self,
        now: Time,
        statuses: usize,
    ) -> Option<(BTreeSet<Arc<str>>, BTreeSet<QueueName>)> {
        self.next_due().filter(|due| *due <= now)?;
        self.looked_at = Some(now);
        self.statuses = statuses;
        let namespaces = std::mem::take(&mut self.namespaces);
        Some((namespaces, std::mem::take(&mut self.queues)))
    }

    /// Returns the parts of a namespace by queue.
    pub(super) fn of(&self, namespace: &str) -> BTreeMap<QueueName, NamespacePart> {
        let mut parts: BTreeMap<QueueName, NamespacePart> = BTreeMap::new();
        let jobs = self.jobs.range(JobKey::new(namespace, "")..);
        let jobs = jobs.take_while(|(key, _)| &*key.namespace == namespace);
        for (_, job) in jobs {
            parts.entry(job.queue.clone()).or_default().add(job);
        }
        parts
    }
}

impl NamespacePart {
    fn add(&mut self, job: &JobPart) {
        let (counted, amounts) = match job.state {
            JobState::Queued => (&mut self.counts.pending, &mut self.pending),
            JobState::Assumed | JobState::Placed => (&mut self.counts.admitted, &mut self.used),
            JobState::Running => (&mut self.counts.running, &mut self.used),
            JobState::Ending => (&mut self.counts.ending, &mut self.used),
            JobState::Finished => (&mut self.counts.finished, &mut self.used),
        };
        *counted += 1;
        // Each amount was checked for overflow before.
        if let Some(sum) = amounts.checked_add(&job.amount) {
            *amounts = sum;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn part(queue: &str, state: JobState, gpus: &str) -> Option<JobPart> {
        Some(JobPart {
            queue: QueueName::new(queue),
            state,
            amount: Resources::parse([("nvidia.com/gpu", gpus)]).unwrap(),
        })
    }

    #[test]
    fn jobs_are_summed_by_queue_within_their_namespace() {
        let mut usage = NamespaceUsage::default();
        for (namespace, name, queue, state, gpus) in [
            ("a", "1", "q", JobState::Running, "4"),
            ("a", "2", "q", JobState::Placed, "2"),
            ("a", "3", "q", JobState::Queued, "8"),
            ("a", "4", "p", JobState::Queued, "1"),
            ("b", "1", "q", JobState::Running, "16"),
        ] {
            usage.note(&JobKey::new(namespace, name), part(queue, state, gpus));
        }
        let q = &usage.of("a")[&QueueName::new("q")];
        assert_eq!(q.used.to_string(), "nvidia.com/gpu 6");
        assert_eq!(q.pending.to_string(), "nvidia.com/gpu 8");
        let counts = (q.counts.pending, q.counts.admitted, q.counts.running);
        assert_eq!(counts, (1, 1, 1));
        usage.note(&JobKey::new("a", "4"), None);
        assert_eq!(usage.of("a").len(), 1);
        assert_eq!(usage.of("c").len(), 0);
    }

    #[test]
    fn many_statuses_are_looked_at_less_often_and_nothing_new_is_not() {
        let mut usage = NamespaceUsage::default();
        assert_eq!(usage.next_due(), None);
        let job = JobKey::new("a", "1");
        usage.note(&job, part("q", JobState::Queued, "1"));
        let (namespaces, queues) = usage.take_due(Time(1_000), 2).unwrap();
        assert_eq!((namespaces.len(), queues.len()), (1, 0));
        usage.note(&job, part("q", JobState::Queued, "1"));
        assert_eq!(usage.next_due(), None, "nothing has changed");
        usage.queue(&QueueName::new("q"));
        assert_eq!(usage.take_due(Time(5_999), 2), None);
        assert!(usage.take_due(Time(6_000), 100).is_some());
        usage.namespace("b");
        assert_eq!(usage.next_due(), Some(Time(16_000)));
    }
}
