//! Which jobs are to be reconciled, now and later.

use engine::{JobKey, Time};
use std::collections::BTreeSet;

/// The jobs to reconcile. A job is in it once, however often it is added.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    /// Those of the next pass.
    due: BTreeSet<JobKey>,
    /// Those of later passes, with or without an input until then.
    delayed: BTreeSet<(Time, JobKey)>,
}

impl WorkQueue {
    /// Adds a job to the next pass.
    pub(crate) fn add(&mut self, key: &JobKey) {
        self.due.insert(key.clone());
    }

    /// Adds a job to the first pass at `at` or later.
    pub(crate) fn add_at(&mut self, key: &JobKey, at: Time) {
        self.delayed.insert((at, key.clone()));
    }

    /// Returns true if the next pass has no jobs.
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Returns the jobs of this pass. Those that are added from now on are in the next one.
    pub(crate) fn take(&mut self) -> BTreeSet<JobKey> {
        std::mem::take(&mut self.due)
    }

    /// Adds the jobs whose time has come to the next pass.
    pub(crate) fn add_due(&mut self, now: Time) {
        while let Some((at, _)) = self.delayed.first()
            && *at <= now
        {
            self.due
                .extend(self.delayed.pop_first().map(|(_, key)| key));
        }
    }

    /// Returns when the time of the next delayed job comes.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.delayed.first().map(|(at, _)| *at)
    }
}

impl Extend<JobKey> for WorkQueue {
    fn extend<T: IntoIterator<Item = JobKey>>(&mut self, jobs: T) {
        self.due.extend(jobs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delayed_job_is_due_once_at_its_time() {
        let mut queue = WorkQueue::default();
        let (a, b) = (JobKey::new("team", "a"), JobKey::new("team", "b"));
        queue.add_at(&a, Time(10));
        queue.add_at(&a, Time(5));
        queue.add_at(&b, Time(20));
        queue.add_due(Time(4));
        assert!(queue.is_empty());
        assert_eq!(queue.next_at(), Some(Time(5)));
        queue.add_due(Time(10));
        queue.add(&a);
        assert_eq!(queue.take(), BTreeSet::from([a]));
        assert_eq!(queue.next_at(), Some(Time(20)));
        assert!(queue.take().is_empty());
    }
}
