//! Metrics of the scheduler: the results of plans.
//!
//! Labels are reasons, never jobs.

use engine::Reason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use runtime::metrics::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: String,
}

/// Metrics of plans and their preparation.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlanMetrics {
    pub(crate) checked: Counter,
    refused: Family<ReasonLabel, Counter>,
    pub(crate) created: Counter,
}

impl PlanMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.register(name, help, Counter::default());
        Self {
            checked: counter("plans_checked", "Plans checked on the live view"),
            refused: registry.register(
                "plans_refused",
                "Plans that could not be carried out",
                Family::default(),
            ),
            created: counter(
                "member_objects_created",
                "Queues and PriorityClasses created in members",
            ),
        }
    }

    /// Counts a refused plan.
    pub(crate) fn refused(&self, reason: Reason) {
        self.refused
            .get_or_create(&ReasonLabel {
                reason: reason.to_string(),
            })
            .inc();
    }
}
