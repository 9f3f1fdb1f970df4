//! What has to be published, and when the maintained objects are applied again.

use crate::status::namespace_usage::NamespaceUsage;
use engine::{JobKey, QueueName, Time};
use std::collections::BTreeSet;
use std::ops::Bound;

/// Milliseconds after which maintained objects are applied again, in case a user removed them. Applying an
/// unchanged object writes nothing.
const KEEP_EVERY_MS: i64 = 300_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct DuePublications {
    jobs: BTreeSet<JobKey>,
    /// The job that was published last when the time ran out; the next pass continues after it.
    reached: Option<JobKey>,
    queues: BTreeSet<QueueName>,
    fault_policies: BTreeSet<String>,
    /// What the jobs of namespaces use, and which of their statuses are due.
    pub(crate) namespaces: NamespaceUsage,
    /// When the maintained objects were last applied.
    kept_at: Option<Time>,
}

impl DuePublications {
    /// Queues a job whose status may have changed.
    pub(crate) fn job(&mut self, key: &JobKey) {
        self.jobs.insert(key.clone());
    }

    /// Queues a queue whose status may have changed.
    pub(crate) fn queue(&mut self, name: &QueueName) {
        self.queues.insert(name.clone());
        self.namespaces.queue(name);
    }

    /// Queues a fault policy whose status may have changed.
    pub(crate) fn fault_policy(&mut self, name: &str) {
        self.fault_policies.insert(name.to_owned());
    }

    /// Drops a job.
    pub(super) fn forget(&mut self, key: &JobKey) {
        self.jobs.remove(key);
        self.namespaces.note(key, None);
    }

    /// Drops everything: another replica publishes it.
    pub(super) fn clear(&mut self) {
        self.jobs.clear();
        self.queues.clear();
        self.fault_policies.clear();
        self.namespaces.clear();
    }

    /// Returns true if jobs are left to publish.
    pub(crate) fn is_behind(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Returns the next job in turn, so that frequent changes of other jobs starve none.
    pub(super) fn next_job(&mut self) -> Option<JobKey> {
        let behind = self.reached.take().and_then(|reached| {
            let after = (Bound::Excluded(reached), Bound::Unbounded);
            self.jobs.range(after).next().cloned()
        });
        let next = behind.or_else(|| self.jobs.first().cloned())?;
        self.jobs.remove(&next);
        self.reached = Some(next.clone());
        Some(next)
    }

    /// Returns the queues to publish.
    pub(super) fn take_queues(&mut self) -> BTreeSet<QueueName> {
        std::mem::take(&mut self.queues)
    }

    /// Returns the fault policies to publish.
    pub(super) fn take_fault_policies(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.fault_policies)
    }

    /// Returns true if the maintained objects are due to be applied, which is noted.
    pub(super) fn take_keep(&mut self, now: Time) -> bool {
        let is_due = |at: Time| now.millis_since(at) >= KEEP_EVERY_MS;
        let is_due = self.kept_at.is_none_or(is_due);
        if is_due {
            self.kept_at = Some(now);
        }
        is_due
    }
}
