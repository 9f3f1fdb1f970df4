//! The state, order and predicted run time of a job: what several stores need to know of jobs.

use crate::api::ids::{JobKey, Time};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

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
