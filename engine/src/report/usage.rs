//! What queues have and want, for their status.

use crate::api::decision::{Explanation, QueueUsage, Reserved};
use crate::api::ids::{JobKey, QueueName};
use crate::engine::Engine;
use crate::quota::ROOT;

impl Engine {
    /// Whether something is charged to a queue or to one below it.
    #[must_use]
    pub fn is_charged(&self, queue: &QueueName) -> bool {
        self.quota.is_charged(queue)
    }

    /// The queues from the top down to `queue`, the root left out: those that what it holds is
    /// charged to.
    #[must_use]
    pub fn queue_path(&self, queue: &QueueName) -> Vec<QueueName> {
        let path = self.quota.path(queue).into_iter();
        path.filter(|name| name.as_str() != ROOT).collect()
    }

    /// What a queue has and wants; `None` for one that neither exists nor has jobs.
    #[must_use]
    pub fn queue_usage(&self, queue: &QueueName) -> Option<QueueUsage> {
        let usage = self.quota.usage(queue)?;
        Some(QueueUsage {
            head: self.head(queue),
            ..usage
        })
    }

    /// How a bound is exceeded, of the queue that a released job is charged to or of one above it,
    /// in a resource that the job has; `None` if none is.
    #[must_use]
    pub fn bound_passed_by(&self, key: &JobKey) -> Option<String> {
        let released = self.jobs.get(key)?.released.as_ref()?;
        let queue = &released.admission.queue;
        self.quota.exceeded_bound(queue, &released.pools())
    }

    /// For how many of a queue's own waiting jobs something is kept.
    #[must_use]
    pub fn reserved(&self, queue: &QueueName) -> Reserved {
        let mut reserved = Reserved::default();
        let holders = self.reservations.holders_in(queue);
        for kept in holders.filter_map(|rank| self.reservations.of(&rank.key)) {
            let count = if kept.taking() {
                &mut reserved.evictions
            } else if kept.nodes.is_empty() {
                &mut reserved.headroom
            } else {
                &mut reserved.nodes
            };
            *count += 1;
        }
        reserved
    }

    fn head(&self, queue: &QueueName) -> Option<(JobKey, Explanation)> {
        let key = &self
            .pending
            .queues
            .pending_queue(queue)?
            .ranks()
            .first()?
            .key;
        Some((key.clone(), self.explain(key)?))
    }
}
