//! Limits on the number of admitted jobs of a queue and of each user in it, on the pending jobs
//! that compete, and on run time.
//!
//! A job that is blocked by a limit on the number of jobs does not count as ahead of others: it
//! gets no reservation, and no job waits behind it.

use crate::amounts::texts::counted;
use crate::api::facts::{Limits, QueueOrdering};
use crate::api::ids::QueueName;
use crate::api::reason::Reason;
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::store::Quota;

/// A limit that one more job would exceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitReached {
    pub(crate) reason: Reason,
    /// The queue that has the limit.
    pub(crate) queue: QueueName,
    pub(crate) message: String,
}

impl LimitReached {
    /// The pending limit of a queue, for the job at `position`.
    pub(crate) fn pending(queue: &QueueName, limit: u32, position: usize) -> Self {
        Self {
            reason: Reason::PendingLimitReached,
            queue: queue.clone(),
            message: format!(
                "queue {queue} lets {} compete; this one is number {position}",
                counted(limit, "pending job")
            ),
        }
    }
}

impl QueueNode {
    pub(super) fn limits(&self) -> Limits {
        let policy = self.policy.as_ref();
        policy.map_or_else(Limits::default, |policy| policy.limits)
    }

    /// The limit on the jobs of one user, if `user` has reached it.
    fn user_limit_reached(&self, user: &str) -> Option<u32> {
        let limit = self.limits().jobs_per_user?;
        (self.charged_jobs_of(user) >= limit).then_some(limit)
    }

    fn charged_jobs_of(&self, user: &str) -> u32 {
        self.users.get(user).copied().unwrap_or_default()
    }
}

impl Quota {
    /// Checks whether one more job of `user` may be admitted to the queue.
    ///
    /// # Errors
    /// The limit that would be exceeded, of the lowest queue that has one.
    pub(crate) fn check_limits(&self, queue: &QueueName, user: &str) -> Result<(), LimitReached> {
        let Some(id) = self.id(queue) else {
            return Ok(());
        };
        for (_, node) in self.upwards(id) {
            let (name, charged) = (&node.name, node.counts.charged);
            if let Some(limit) = node.limits().jobs.filter(|limit| charged >= *limit) {
                return Err(LimitReached {
                    reason: Reason::JobLimitReached,
                    queue: name.clone(),
                    message: format!(
                        "queue {name} may have {} and has {charged}",
                        counted(limit, "admitted job")
                    ),
                });
            }
            if let Some(limit) = node.user_limit_reached(user) {
                let has = node.charged_jobs_of(user);
                return Err(LimitReached {
                    reason: Reason::UserJobLimitReached,
                    queue: name.clone(),
                    message: format!(
                        "user {user} may have {} in queue {name} and has {has}",
                        counted(limit, "admitted job")
                    ),
                });
            }
        }
        Ok(())
    }

    /// True if the queue or one above it limits the jobs of each user.
    pub(crate) fn counts_users(&self, queue: &QueueName) -> bool {
        let mut up = self.id(queue).into_iter().flat_map(|id| self.upwards(id));
        up.any(|(_, node)| node.limits().jobs_per_user.is_some())
    }

    /// The StrictFIFO queues that admit no more jobs of `user`: those in the subtree of the topmost
    /// queue on the path of `queue` whose limit the user has reached.
    pub(crate) fn strict_queues_at_limit(&self, queue: &QueueName, user: &str) -> Vec<&QueueName> {
        let up = self.id(queue).into_iter().flat_map(|id| self.upwards(id));
        let reached = up.filter(|(_, node)| node.user_limit_reached(user).is_some());
        let below = reached.last().map(|(id, _)| self.subtree(id));
        let below = below.into_iter().flatten().map(|id| self.node(id));
        below
            .filter(|node| node.ordering() == QueueOrdering::StrictFifo)
            .map(|node| &node.name)
            .collect()
    }

    /// The number of pending jobs of a queue that may compete, if it is limited.
    pub(crate) fn pending_limit(&self, queue: &QueueName) -> Option<u32> {
        self.policy(queue)?.limits.pending
    }

    /// The longest run time of a job of the queue in milliseconds, and the queue that has this
    /// limit: the lowest limit on the path.
    pub(crate) fn runtime_limit(&self, queue: &QueueName) -> Option<(i64, &QueueName)> {
        let up = self.upwards(self.id(queue).unwrap_or(QueueId::ROOT));
        let limits = up.filter_map(|(_, node)| {
            let limit = node.limits().runtime_ms?;
            Some((limit.max(0), &node.name))
        });
        limits.min_by_key(|(limit, _)| *limit)
    }
}
