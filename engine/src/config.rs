//! The engine's settings.

use serde::{Deserialize, Serialize};

/// Settings of the engine. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineConfig {
    /// The most decisions of one call of `decide`; [`crate::Decisions::more`] tells if it was
    /// reached.
    pub decision_budget: usize,
    /// The back-off after the first failed attempt, doubled for each further one.
    pub backoff_base_ms: i64,
    /// The longest back-off.
    pub backoff_max_ms: i64,
    /// For how long after its back-off a job avoids a cluster where an attempt failed, as long as
    /// another cluster could take it.
    pub avoid_extra_ms: i64,
    /// The default time after admission by which the gang's minimum of pods must be bound.
    pub start_deadline_ms: i64,
    /// For how long a running gang may be below its minimum of pods, if its queue's policy does not
    /// say. `None` if pods are not observed: then no gang is found to have lost any.
    pub recovery_deadline_ms: Option<i64>,
    /// The same for a gang of which no pod is gone and only devices have failed, if that is longer: while a
    /// device plugin restarts, its node offers no devices for a while.
    pub device_deadline_ms: i64,
    /// The most evaluations of one call of `decide`, so that none takes long; [`crate::Decisions::more`] tells if it
    /// was reached. Admissions and searches for heads count as evaluations by what they cost. It is a number and not a
    /// time, because the engine reads no clock.
    pub evaluation_budget: usize,
    /// The most jobs that one call brings in step with rules that changed. Nothing is admitted before all are, and
    /// [`crate::Decisions::more`] tells if some are left.
    pub resync_budget: usize,
    /// For how long an admitted job may lack capacity for its unbound pods before it is evicted.
    pub room_lost_grace_ms: i64,
    /// For how long a job that found no victims waits before it tries preemption again.
    pub take_retry_ms: i64,
    /// The most reservations of nodes of one class, and of headroom of one queue.
    pub reservations_per_class: usize,
    /// The factor of the predicted run time in the sort key of `ShortestPredicted`, which is the
    /// time of queueing plus ageing × predicted run time. 0 is FIFO; larger values favour short
    /// jobs.
    pub ageing: u32,
    /// The predicted run time of a job of which nothing is known, for `ShortestPredicted`.
    pub assumed_runtime_ms: i64,
    /// The most reservations of a queue with conservative backfill that states no number.
    pub conservative_depth: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            decision_budget: 256,
            backoff_base_ms: 1_000,
            backoff_max_ms: 300_000,
            avoid_extra_ms: 60_000,
            start_deadline_ms: 600_000,
            recovery_deadline_ms: None,
            device_deadline_ms: 300_000,
            evaluation_budget: 512,
            resync_budget: 2_048,
            room_lost_grace_ms: 10_000,
            take_retry_ms: 1_000,
            reservations_per_class: 2,
            ageing: 24,
            assumed_runtime_ms: 3_600_000,
            conservative_depth: 16,
        }
    }
}
