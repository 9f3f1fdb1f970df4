//! How far a job is, and the order of pending jobs: what the stores say of jobs to each other.

use crate::api::ids::{JobKey, Time};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JobState {
    /// It waits, charged nothing.
    Queued,
    /// Its release was decided and is being written.
    Assumed,
    /// Its placement is written.
    Placed,
    /// Enough of it runs.
    Running,
    /// It is being evicted or deleted, and charged until its Works are gone.
    Ending,
    /// It ended, and is charged nothing.
    Finished,
}

/// Sort key of a pending job in its queue. The order of the fields is the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct QueueOrder {
    /// Higher priority first.
    pub(crate) priority: Reverse<i32>,
    /// Then who was queued first; in a queue that puts the shortest first, with a multiple of
    /// how long each is predicted to run added.
    pub(crate) at: Time,
    /// Then the name, so that no two are equal.
    pub(crate) key: JobKey,
}

/// A predicted run time as a pending job keeps it, in seconds, rounded up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PredictedRunTime {
    /// On average; `None` if nothing is known.
    pub(crate) mean: Option<u32>,
    /// Nine of ten end within it. Rounded up to a power of two, so that like jobs stay alike.
    pub(crate) high: Option<u32>,
}

impl PredictedRunTime {
    /// The average in milliseconds.
    pub(crate) fn mean_ms(self) -> Option<i64> {
        self.mean.map(|seconds| i64::from(seconds) * 1000)
    }

    /// Within how many milliseconds nine of ten end.
    pub(crate) fn high_ms(self) -> Option<i64> {
        self.high.map(|seconds| i64::from(seconds) * 1000)
    }
}
