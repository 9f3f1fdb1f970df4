//! Which jobs of a queue may be evicted for which.

use crate::loose::Loose;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which jobs may be evicted for which.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityPolicyPreemption {
    /// Which jobs of its own queue a job may preempt.
    #[schemars(extend("default" = {"stated": "Never"}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_queue: Option<Loose<CapacityPolicyPreemptionWithinQueue>>,
    /// Whether its jobs may reclaim what other queues borrowed.
    #[schemars(extend("default" = {"stated": "Any"}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Loose<CapacityPolicyReclaim>>,
    /// How many seconds a job of this queue runs before it may be evicted for another.
    #[schemars(with = "Option<i32>", range(min = 0), extend("default" = {"stated": 0}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_runtime_seconds: Option<i64>,
    /// Whether its jobs may opt out of eviction by the label `volcano.sh/preemptable: "false"`.
    #[schemars(extend("default" = {"stated": "Honor"}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptable_label: Option<Loose<CapacityPolicyPreemptableLabel>>,
    /// Whether a job that runs longer than it declared (muster.io/expected-duration) may be evicted for
    /// the jobs that it delays. This overrides volcano.sh/preemptable.
    #[schemars(extend("default" = {"stated": "Never"}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_overdue: Option<Loose<CapacityPolicyEvictOverdue>>,
}

/// Which jobs of its own queue a job may preempt, with the words of Kueue's ClusterQueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityPolicyPreemptionWithinQueue {
    /// None.
    Never,
    /// Those of lower priority.
    LowerPriority,
}

/// Whether a queue's jobs may reclaim what other queues borrowed, with the words of Kueue's ClusterQueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityPolicyReclaim {
    /// They wait for it.
    Never,
    /// They may evict jobs of other queues for it.
    Any,
}

/// Whether the label by which a job opts out of eviction counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityPolicyPreemptableLabel {
    /// They may.
    Honor,
    /// The label has no effect.
    Ignore,
}

/// For whom a job that runs longer than it declared may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityPolicyEvictOverdue {
    /// It is not evicted because of that.
    Never,
    /// It may be evicted for the jobs that it delays: those of this queue with the same or a higher priority, and
    /// those of queues that may reclaim.
    ForDelayedJobs,
}
