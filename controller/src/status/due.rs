//! What has to be published, and when the maintained objects are applied again.

use crate::status::namespace_usage::NamespaceUsage;
use engine::{JobKey, QueueName, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Milliseconds after which maintained objects are applied again, in case a user removed them. Applying an
/// unchanged object writes nothing.
const KEEP_EVERY_MS: i64 = 300_000;

/// Milliseconds for which a queue stays without a policy, and a policy without a Queue, so that an author can apply
/// one, or replace it.
const ALONE_MS: i64 = 5_000;

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
    /// Since when queues have a Queue or a policy only.
    alone: BTreeMap<QueueName, Time>,
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

    /// Returns true if a queue has had only one of its two objects for so long that the other one is created.
    pub(super) fn is_long_alone(&mut self, name: &QueueName, now: Time) -> bool {
        let since = *self.alone.entry(name.clone()).or_insert(now);
        now.millis_since(since) >= ALONE_MS
    }

    /// Notes that a queue has both of its objects, or none.
    pub(super) fn paired(&mut self, name: &QueueName) {
        self.alone.remove(name);
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
        self.alone.clear();
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
