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
