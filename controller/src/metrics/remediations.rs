//! Metrics of NodeRemediations. No label names a node or a cluster.

use crate::avoided_nodes::{RemediationCounts, RemediationNews};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::metrics::Registry;

const OPEN: &str = "Open";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

/// Label: how far the operator is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RemediationState {
    state: &'static str,
}

/// Label: what the operator has said.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RemediationResult {
    result: &'static str,
}

/// The metrics. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct RemediationMetrics {
    there: Family<RemediationState, Gauge>,
    requested: Counter,
    decided: Family<RemediationResult, Counter>,
}

impl RemediationMetrics {
    /// Registers the metrics.
    pub(super) fn new(registry: &Registry) -> Self {
        let metrics = Self {
            there: registry.register(
                "node_remediations",
                "NodeRemediations, by state: Open, Succeeded, Failed (the operator has given up)",
                Family::default(),
            ),
            requested: registry.register(
                "node_remediations_requested",
                "NodeRemediations that were requested",
                Counter::default(),
            ),
            decided: registry.register(
                "node_remediations_decided",
                "NodeRemediations of which the operator has said how they ended, by result: Succeeded, Failed",
                Family::default(),
            ),
        };
        metrics.set(RemediationCounts::default());
        // A series that begins with its first count shows no increase.
        metrics.count(RemediationNews::default());
        metrics
    }

    /// Sets how many there are; a replica that does not lead shows none.
    pub(crate) fn set(&self, counts: RemediationCounts) {
        let states = [
            (OPEN, counts.open),
            (SUCCEEDED, counts.succeeded),
            (FAILED, counts.failed),
        ];
        for (state, count) in states {
            let gauge = self.there.get_or_create(&RemediationState { state });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts what has happened.
    pub(crate) fn count(&self, news: RemediationNews) {
        self.requested.inc_by(news.requested);
        for (result, count) in [(SUCCEEDED, news.succeeded), (FAILED, news.failed)] {
            let counter = self.decided.get_or_create(&RemediationResult { result });
            counter.inc_by(count);
        }
    }
}
