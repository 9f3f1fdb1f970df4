//! The rules of a queue for what it, its users and its namespaces have: fair shares and limits.

use crate::resources::Resources;
use serde::{Deserialize, Serialize};

/// How a queue's usage is compared with that of its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FairShare {
    /// A weight instead of the queue's own, at least 1.
    pub weight: Option<u32>,
    /// Milliseconds after which past usage counts half, at least 1; `None` if only the current
    /// usage counts.
    pub usage_half_life_ms: Option<i64>,
    /// How the queue's own jobs of one priority are shared among others than in their order; `None` if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<FairShareWithin>,
}

/// Whose jobs of one queue come in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FairShareWithin {
    /// Of jobs of the same priority, that of the user with the smallest share goes first.
    User,
}

/// Bounds on numbers of jobs, on what one user or one namespace is charged, and on the length of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// The most jobs of the queue and of all below it that are admitted at once.
    pub jobs: Option<u32>,
    /// The most jobs of one user that are admitted at once.
    pub jobs_per_user: Option<u32>,
    /// The most pending jobs that compete; those behind them are not evaluated.
    pub pending: Option<u32>,
    /// The longest run time of a job, in milliseconds.
    pub runtime_ms: Option<i64>,
    /// The most that is charged to one user, in the queue and all below it, by an admission or by growth.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources_per_user: Resources,
    /// The most that is charged to one namespace, in the queue and all below it, by an admission or by growth.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources_per_namespace: Resources,
}
