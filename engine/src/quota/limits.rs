//! Limits on numbers of jobs and on run time: of a queue with all below it, of one user in it,
//! and of the pending jobs that compete in a queue.
//!
//! A job that is stopped by its user's limit, or by one on the number of jobs, does not count as
//! ahead of others: it gets no reservation, and no job waits behind it.

use crate::api::facts::{Limits, QueueOrdering};
use crate::api::ids::QueueName;
use crate::api::reason::Reason;
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::store::Quota;

/// A limit that one job more would exceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitReached {
    pub(crate) reason: Reason,
    /// The queue whose limit it is.
    pub(crate) queue: QueueName,
    pub(crate) limit: u32,
    pub(crate) message: String,
}

impl LimitReached {
    /// The pending limit of a queue, for the job at `position`.
    pub(crate) fn pending(queue: &QueueName, limit: u32, position: usize) -> Self {
        Self {
            reason: Reason::PendingLimitReached,
            queue: queue.clone(),
            limit,
            message: format!(
                "queue {queue} lets the first {limit} that wait compete; this one is number \
                 {position}"
            ),
        }
    }
}

impl QueueNode {
    pub(super) fn limits(&self) -> Limits {
        let policy = self.policy.as_ref();
        policy.map_or_else(Limits::default, |policy| policy.limits)
    }

    /// The limit on jobs of each user, if this one has reached it.
    fn user_limit_reached(&self, user: &str) -> Option<u32> {
        let limit = self.limits().jobs_per_user?;
        (self.charged_jobs_of(user) >= limit).then_some(limit)
    }

    fn charged_jobs_of(&self, user: &str) -> u32 {
        self.users.get(user).copied().unwrap_or_default()
    }
}

impl Quota {
    /// Whether one job more of `user` may be admitted to the queue. The queue nearest to it is
    /// checked first.
    ///
    /// # Errors
    /// The limit that would be exceeded.
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
                    limit,
                    message: format!(
                        "queue {name} may have {limit} jobs released and has {charged}"
                    ),
                });
            }
            if let Some(limit) = node.user_limit_reached(user) {
                let has = node.charged_jobs_of(user);
                return Err(LimitReached {
                    reason: Reason::UserJobLimitReached,
                    queue: name.clone(),
                    limit,
                    message: format!(
                        "user {user} may have {limit} jobs released in queue {name} and has {has}"
                    ),
                });
            }
        }
        Ok(())
    }

    /// True if the jobs of a queue are limited by user, there or above.
    pub(crate) fn counts_users(&self, queue: &QueueName) -> bool {
        let mut up = self.id(queue).into_iter().flat_map(|id| self.upwards(id));
        up.any(|(_, node)| node.limits().jobs_per_user.is_some())
    }

    /// The strict queues in which no more jobs of a user are admitted: those in the subtree of the
    /// topmost queue, from this one upwards, whose limit the user has reached.
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

    /// How many of the pending jobs of a queue may compete.
    pub(crate) fn pending_limit(&self, queue: &QueueName) -> Option<u32> {
        self.policy(queue)?.limits.pending
    }

    /// Milliseconds that a job of the queue may run, and the queue on its path that says so.
    pub(crate) fn runtime_limit(&self, queue: &QueueName) -> Option<(i64, &QueueName)> {
        let up = self.upwards(self.id(queue).unwrap_or(QueueId::ROOT));
        let limits = up.filter_map(|(_, node)| {
            let limit = node.limits().runtime_ms?;
            Some((limit.max(0), &node.name))
        });
        limits.min_by_key(|(limit, _)| *limit)
    }
}
