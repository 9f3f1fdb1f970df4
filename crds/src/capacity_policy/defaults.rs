//! The spec that the API server makes of an empty one, by the defaults of the schema.

use super::retries::DEFAULT_INFRASTRUCTURE;
use super::{
    CapacityPolicy, CapacityPolicyEvictOverdue, CapacityPolicyPlacement, CapacityPolicyPrePull,
    CapacityPolicyPreemptableLabel, CapacityPolicyPreemption, CapacityPolicyPreemptionWithinQueue,
    CapacityPolicyReclaim, CapacityPolicyRetries, CapacityPolicySpec, CapacityPolicySplit,
    CapacityPolicyStop, DEFAULT_START_DEADLINE_MS,
};
use crate::loose::Loose;

impl CapacityPolicySpec {
    /// Returns the spec of an object that was created without one, as the API server shows it.
    #[must_use]
    pub fn with_defaults() -> Self {
        Self {
            stop_policy: Some(Loose::Known(CapacityPolicyStop::None)),
            preemption: Some(CapacityPolicyPreemption {
                within_queue: Some(Loose::Known(CapacityPolicyPreemptionWithinQueue::Never)),
                reclaim: Some(Loose::Known(CapacityPolicyReclaim::Any)),
                min_runtime_seconds: Some(0),
                preemptable_label: Some(Loose::Known(CapacityPolicyPreemptableLabel::Honor)),
                evict_overdue: Some(Loose::Known(CapacityPolicyEvictOverdue::Never)),
            }),
            retries: Some(CapacityPolicyRetries {
                infrastructure: Some(DEFAULT_INFRASTRUCTURE.into()),
                user: Some(0),
                on_exit_codes: Vec::new(),
            }),
            placement: Some(CapacityPolicyPlacement {
                split: Some(Loose::Known(CapacityPolicySplit::Never)),
                start_deadline_seconds: Some(DEFAULT_START_DEADLINE_MS / 1_000),
                pre_pull: Some(Loose::Known(CapacityPolicyPrePull::Never)),
                ..CapacityPolicyPlacement::default()
            }),
            ..Self::default()
        }
    }
}

impl CapacityPolicy {
    /// Returns true if it states nothing, as the one that Muster creates for a Queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spec == CapacityPolicySpec::default()
            || self.spec == CapacityPolicySpec::with_defaults()
    }
}
