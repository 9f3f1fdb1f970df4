//! What of the engine's behaviour may be set.

use serde::{Deserialize, Serialize};

/// Settings of the engine. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineConfig {
    /// Most decisions of one call of `decide`; it then says that there is more.
    pub decision_budget: usize,
    /// Back-off after the first attempt that failed; doubled for each one after.
    pub backoff_base_ms: i64,
    /// Longest back-off.
    pub backoff_max_ms: i64,
    /// How long a cluster where an attempt failed is left out beyond the back-off, while
    /// another one could take the job.
    pub avoid_extra_ms: i64,
    /// How long a released gang may take to get its minimum of pods bound, where the queue's
    /// policy does not say.
    pub start_deadline_ms: i64,
    /// How long a running gang may be below its minimum of pods, where the queue's policy does not
    /// say. `None` where pods are not observed: then no gang is found to have lost any.
    pub recovery_deadline_ms: Option<i64>,
    /// Evaluations in a row without a result after which a call of `decide` ends all the same. An
    /// assertion: only a defect gets there, and no test, simulation or benchmark may.
    pub max_fruitless_evaluations: usize,
    /// How long a released job may be without room for its unbound pods before it is evicted.
    pub room_lost_grace_ms: i64,
    /// How long a job that found nothing to evict rests before it looks again.
    pub take_retry_ms: i64,
    /// Most reservations of one class of pools, and of one queue's headroom.
    pub reservations_per_class: usize,
    /// In a queue that puts the shortest first, how many times its predicted run time later a
    /// job counts as queued. With few, long jobs pass each other and large ones wait the longer;
    /// with more, nobody is kept from being passed.
    pub ageing: u32,
    /// How long a job is taken to run there of which nothing is known.
    pub assumed_runtime_ms: i64,
    /// Most reservations of one queue whose backfill is conservative and states no number.
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
            max_fruitless_evaluations: 20_000,
            room_lost_grace_ms: 10_000,
            take_retry_ms: 1_000,
            reservations_per_class: 2,
            ageing: 24,
            assumed_runtime_ms: 3_600_000,
            conservative_depth: 16,
        }
    }
}
