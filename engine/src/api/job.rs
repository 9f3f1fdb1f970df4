//! The state, order and predicted run time of a job: what several stores need to know of jobs.

use facts::{JobKey, Time};
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JobState {
    /// It waits and is not charged.
    Queued,
    /// Its admission is decided and is being written.
    Assumed,
    /// Its placement is written.
    Placed,
    /// Enough of it runs.
    Running,
    /// It is being evicted or deleted, and charged until its Works are gone.
    Ending,
    /// It has ended and is not charged.
    Finished,
}

/// Sort key of a pending job in its queue. The order of the fields is the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct QueueOrder {
    /// Higher priority first: that of its class, which rises while it waits if its queue wants that.
    pub(crate) priority: Reverse<i32>,
    /// Then the earlier queueing time, to which `ShortestPredicted` adds a multiple of the
    /// predicted run time.
    pub(crate) at: Time,
    /// Then the name, so that no two jobs are equal.
    pub(crate) key: JobKey,
    /// Its user, where the order of its queue is by users: how they come among each other is in
    /// [`TurnOrder`]. It decides nothing here, and a snapshot does not have it.
    #[serde(skip)]
    pub(crate) user: UserId,
}

/// A user by number. It does not appear in any output, and its order means nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UserId(u32);

impl UserId {
    /// No user: the order of the queue is not by users.
    pub(crate) const NONE: Self = Self(0);

    /// The user with a number from 1.
    pub(crate) fn numbered(number: usize) -> Self {
        Self(u32::try_from(number).unwrap_or(u32::MAX))
    }
}

/// Sort key of a pending job among those of all users of its queue. The order of the fields is the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TurnOrder<'a> {
    /// Higher priority first.
    priority: Reverse<i32>,
    /// Then the user with the smaller share of what the queue has; 0 if the order is not by users.
    pub(crate) share: u64,
    /// Then as without users.
    pub(crate) rank: &'a QueueOrder,
}

/// A [`TurnOrder`] in an ordered set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnedTurn {
    priority: Reverse<i32>,
    pub(crate) share: u64,
    pub(crate) rank: QueueOrder,
}

impl<'a> TurnOrder<'a> {
    /// The key of a job whose user has a share.
    pub(crate) fn of(rank: &'a QueueOrder, share: u64) -> Self {
        Self {
            priority: rank.priority,
            share,
            rank,
        }
    }

    /// Compares a job whose user has a share with another.
    pub(crate) fn compare(rank: &QueueOrder, share: u64, other: &TurnOrder<'_>) -> Ordering {
        let shares = (rank.priority, share).cmp(&(other.priority, other.share));
        shares.then_with(|| rank.cmp(other.rank))
    }
}

impl OwnedTurn {
    /// The key of a job whose user has a share.
    pub(crate) fn of(rank: QueueOrder, share: u64) -> Self {
        Self {
            priority: rank.priority,
            share,
            rank,
        }
    }
}

/// The predicted run time of a pending job in seconds, rounded up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PredictedRunTime {
    /// The average; `None` if nothing is known.
    pub(crate) mean: Option<u32>,
    /// The 90th percentile, rounded up to a power of two so that similar jobs share a shape.
    pub(crate) high: Option<u32>,
}

impl PredictedRunTime {
    /// The average in milliseconds.
    pub(crate) fn mean_ms(self) -> Option<i64> {
        self.mean.map(|seconds| i64::from(seconds) * 1000)
    }

    /// The 90th percentile in milliseconds.
    pub(crate) fn high_ms(self) -> Option<i64> {
        self.high.map(|seconds| i64::from(seconds) * 1000)
    }
}
