//! What a queue, its users and its namespaces have: fair shares and limits.

use crate::loose::{Loose, QuantityList};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The fair share of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityPolicyFairShare {
    /// The weight relative to its siblings. Unset: the weight of the Queue.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// The seconds after which past usage counts half. Unset: only current usage counts.
    #[schemars(with = "Option<i32>", range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_half_life_seconds: Option<i64>,
    /// Whose jobs come in turn inside the queue. It concerns the queue's own jobs, not those of
    /// queues below it, and is not possible with StrictFIFO.
    #[schemars(extend("default" = {"stated": "None"}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<Loose<CapacityPolicyFairShareWithin>>,
}

/// Whose jobs come in turn inside a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityPolicyFairShareWithin {
    /// Jobs go in the order of the queue.
    None,
    /// Of jobs of the same priority, that of the user with the smallest share of what the queue may use goes first.
    /// Past usage counts by usageHalfLifeSeconds.
    User,
}

/// Limits on the number of jobs, on what one user and one namespace have, and on run time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityPolicyLimits {
    /// How many jobs of the queue, and of the queues below it, may be admitted at the same time.
    #[schemars(with = "Option<i32>", range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<i64>,
    /// The same for each user.
    #[schemars(with = "Option<i32>", range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs_per_user: Option<i64>,
    /// How many pending jobs compete, in order. The jobs behind them wait until one of these has started
    /// or gone.
    #[schemars(with = "Option<i32>", range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<i64>,
    /// How many seconds a job may run. Then it is evicted and does not compete again.
    #[schemars(with = "Option<i32>", range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_seconds: Option<i64>,
    /// The most that the jobs of one user are charged at the same time, by resource, in the queue and the
    /// queues below it: devices, shares of devices, cpu, memory or others. A job that would exceed it waits,
    /// and keeps no other job waiting.
    #[serde(skip_serializing_if = "QuantityList::is_empty")]
    pub resources_per_user: QuantityList,
    /// The same for each namespace.
    #[serde(skip_serializing_if = "QuantityList::is_empty")]
    pub resources_per_namespace: QuantityList,
}
