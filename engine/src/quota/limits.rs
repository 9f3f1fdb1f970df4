//! Bounds on numbers of jobs: of a queue with all below it, of one user in it, and of those
//! that compete in a queue.
//!
//! A job that is stopped by its user's limit or by one on the number of jobs does not count as
//! standing ahead of others: nothing is reserved for it, and nobody waits behind it.

use crate::api::facts::{Limits, QueueOrdering};
use crate::api::ids::{JobKey, QueueName};
use crate::api::reason::Reason;
use crate::cycle::evaluate::Request;
use crate::engine::Engine;
use crate::quota::queues::{QueueId, QueueNode, Queues};

/// A limit that one job more would pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitReached {
    pub(crate) reason: Reason,
    /// Whose limit.
    pub(crate) queue: QueueName,
    pub(crate) limit: u32,
    pub(crate) message: String,
}

impl QueueNode {
    pub(crate) fn limits(&self) -> Limits {
        self.policy
            .as_ref()
            .map_or_else(Limits::default, |policy| policy.limits)
    }
}

impl Queues {
    /// Whether one job more of `user` may be released in the queue; nearest to it first.
    ///
    /// # Errors
    /// The limit that would be passed.
    pub(crate) fn check_limits(&self, queue: &QueueName, user: &str) -> Result<(), LimitReached> {
        let Some(id) = self.id(queue) else {
            return Ok(());
        };
        for (_, node) in self.upwards(id) {
            let (limits, name) = (node.limits(), &node.name);
            if let Some(limit) = limits.jobs.filter(|limit| node.census.held >= *limit) {
                let held = node.census.held;
                return Err(LimitReached {
                    reason: Reason::JobLimitReached,
                    queue: name.clone(),
                    limit,
                    message: format!("queue {name} may have {limit} jobs released and has {held}"),
                });
            }
            let held = node.users.get(user).copied().unwrap_or_default();
            if let Some(limit) = limits.jobs_per_user.filter(|limit| held >= *limit) {
                return Err(LimitReached {
                    reason: Reason::UserJobLimitReached,
                    queue: name.clone(),
                    limit,
                    message: format!(
                        "user {user} may have {limit} jobs released in queue {name} and has {held}"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Whether the jobs of a queue are limited by user, there or above.
    pub(crate) fn counts_users(&self, queue: &QueueName) -> bool {
        let Some(id) = self.id(queue) else {
            return false;
        };
        let mut up = self.upwards(id);
        up.any(|(_, node)| node.limits().jobs_per_user.is_some())
    }

    /// The topmost queue, from this one upwards, in which a user may have no job more.
    fn topmost_reached(&self, queue: &QueueName, user: &str) -> Option<QueueId> {
        let up = self.upwards(self.id(queue)?);
        let reached = up.filter(|(_, node)| {
            let limit = node.limits().jobs_per_user;
            limit.is_some_and(|limit| node.users.get(user).copied().unwrap_or_default() >= limit)
        });
        reached.map(|(id, _)| id).last()
    }

    /// How many of those who wait in a queue may compete.
    pub(crate) fn pending_limit(&self, queue: &QueueName) -> Option<u32> {
        self.policy(queue)?.limits.pending
    }
}

impl Engine {
    /// A job of a user was released. Where the user may have no more now, a job that stands first in
    /// a strict queue holds up nobody any more: it is judged again.
    pub(crate) fn rouse_limited(&mut self, queue: &QueueName, user: &str) {
        let Some(reached) = self.quota.topmost_reached(queue, user) else {
            return;
        };
        let below = self.quota.subtree(reached).into_iter();
        let strict = below.map(|id| self.quota.node(id)).filter(|node| {
            let ordering = node.ordering();
            ordering == QueueOrdering::StrictFifo
        });
        let heads = strict.filter_map(|node| {
            self.pending
                .queues
                .pending_queue(&node.name)?
                .first_that_may_go()
        });
        let heads: Vec<JobKey> = heads.map(|rank| rank.key.clone()).collect();
        for head in heads {
            let shape = self
                .shape_of(&head)
                .and_then(|shape| self.pending.shapes.get(shape));
            if shape.is_some_and(|shape| shape.user_of(&head) == user) {
                self.rouse_job(&head);
            }
        }
    }

    /// Whoever may not compete in a queue any more keeps nothing: it would keep it for ever.
    pub(crate) fn drop_beyond(&mut self, queue: &QueueName) {
        if self.quota.pending_limit(queue).is_none() {
            return;
        }
        let holders = self.reservations.holders_in(queue);
        let beyond = holders.filter(|rank| self.place_beyond(queue, rank).is_some());
        let beyond: Vec<JobKey> = beyond.map(|rank| rank.key.clone()).collect();
        for key in beyond {
            self.drop_reservation_of(&key);
        }
    }

    /// Whether a waiting job is among the first of its queue, who may compete.
    ///
    /// # Errors
    /// The limit beyond which it waits.
    pub(crate) fn check_competes(&self, request: Request<'_>) -> Result<(), LimitReached> {
        let Some((place, limit)) = self.place_beyond(request.queue, request.rank) else {
            return Ok(());
        };
        let queue = request.queue.clone();
        Err(LimitReached {
            reason: Reason::PendingLimitReached,
            limit,
            message: format!(
                "queue {queue} lets the first {limit} that wait compete; this one is number {place}"
            ),
            queue,
        })
    }
}
