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
    failed: Family<ReasonLabel, Counter>,
    pub(crate) created: Counter,
}

impl PlanMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.register(name, help, Counter::default());
        Self {
            checked: counter("plans_checked", "Plans checked on the live view"),
            failed: registry.register(
                "plan_checks_failed",
                "Plans that failed the check on the live view, or the preparation of their members",
                Family::default(),
            ),
            created: counter(
                "member_objects_created",
                "Queues and PriorityClasses created in members",
            ),
        }
    }

    /// Counts a plan that failed its check.
    pub(crate) fn failed(&self, reason: Reason) {
        self.failed
            .get_or_create(&ReasonLabel {
                reason: reason.to_string(),
            })
            .inc();
    }
}
