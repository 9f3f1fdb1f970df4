//! Metrics of the controller. Only labels with names of queues grow with use ([`queues`]).

mod queues;
mod remediations;
mod volcano;

pub(crate) use queues::{EvictedPart, QueueSeries};
pub(crate) use remediations::RemediationMetrics;

use crate::admission_policies;
use engine::Reason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use runtime::alerts::AlertMetrics;
use runtime::metrics::Registry;
use std::time::Duration;

/// Label: the reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct EvictionReason {
    reason: String,
}

/// The controller's metrics.
#[derive(Debug, Clone)]
pub(crate) struct ControllerMetrics {
    pub(crate) admission_policies: admission_policies::AdmissionPolicyMetrics,
    pub(crate) admitted: Counter,
    pub(crate) opened_by_hand: Counter,
    pub(crate) records_unreadable: Gauge,
    pub(crate) records_changed: Counter,
    pub(crate) finalizers_restored: Counter,
    pub(crate) parts_repaired: Counter,
    pub(crate) decisions_cut: Counter,
    /// Nodes of all members with the taint of avoided nodes.
    pub(crate) nodes_avoided: Gauge,
    pub(crate) node_taint_failures: Counter,
    pub(crate) alerts: AlertMetrics,
    pub(crate) remediations: RemediationMetrics,
    pub(crate) notice_failures: Counter,
    /// Clusters that take no new jobs because many failed there.
    pub(crate) clusters_paused: Gauge,
    pub(crate) invariant_violations: Counter,
    pub(crate) invariant_checks: Counter,
    pub(crate) invariant_check_seconds: Histogram,
    pub(crate) queues: QueueSeries,
    evicted: Family<EvictionReason, Counter>,
    not_running: Family<EvictionReason, Gauge>,
    refused: Family<EvictionReason, Counter>,
    decide_seconds: Histogram,
}

impl ControllerMetrics {
    /// Registers the metrics.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            admission_policies: admission_policies::AdmissionPolicyMetrics::new(registry),
            admitted: registry.register(
                "jobs_admitted",
                "Jobs that were admitted",
                Counter::default(),
            ),
            opened_by_hand: registry.register(
                "bindings_opened_by_hand",
                "Bindings found open without an admission and gated again",
                Counter::default(),
            ),
            records_unreadable: registry.register(
                "records_unreadable",
                "Jobs whose admission record this version cannot act on: charged, and not touched",
                Gauge::default(),
            ),
            records_changed: registry.register(
                "admission_records_changed",
                "Admission records that another user changed, and that the leader restored",
                Counter::default(),
            ),
            finalizers_restored: registry.register(
                "finalizers_restored",
                "Finalizers that another user removed from charged bindings, and that the leader restored",
                Counter::default(),
            ),
            parts_repaired: registry.register(
                "parts_repaired",
                "Overrides written again because a cluster did not get its part of a gang",
                Counter::default(),
            ),
            decisions_cut: registry.register(
                "decisions_cut",
                "Rounds of decisions that ended early since too many jobs were evaluated without result",
                Counter::default(),
            ),
            nodes_avoided: registry.register(
                "nodes_avoided",
                "Nodes of all members that are avoided because of faults",
                Gauge::default(),
            ),
            node_taint_failures: registry.register(
                "node_taint_failures",
                "Taints of avoided nodes that could not be written",
                Counter::default(),
            ),
            alerts: AlertMetrics::new(registry),
            remediations: RemediationMetrics::new(registry),
            notice_failures: registry.register(
                "notice_failures",
                "Notices that could not be posted to the operator's webhook",
                Counter::default(),
            ),
            clusters_paused: registry.register(
                "clusters_paused",
                "Clusters that take no new jobs because many jobs failed there",
                Gauge::default(),
            ),
            invariant_violations: registry.register(
                "invariant_violations",
                "Derived numbers of the engine that were found to differ from a recomputation",
                Counter::default(),
            ),
            invariant_checks: registry.register(
                "invariant_checks",
                "Checks of the engine's numbers that have ended, whatever they found",
                Counter::default(),
            ),
            invariant_check_seconds: registry.register(
                "invariant_check_seconds",
                "Time for which a check of the engine's numbers held decisions up, in seconds",
                Histogram::new(exponential_buckets(0.000_1, 4.0, 10)),
            ),
            queues: QueueSeries::new(registry),
            evicted: registry.register(
                "jobs_evicted",
                "Admitted jobs that were evicted",
                Family::default(),
            ),
            not_running: registry.register(
                "jobs_not_running",
                "Admitted jobs whose pods do not run, by reason: PodsRefused, PodsNotStarting, PodsNotScheduled",
                Family::default(),
            ),
            refused: registry.register(
                "plans_refused",
                "Plans that could not be carried out",
                Family::default(),
            ),
            decide_seconds: registry.register(
                "decide_seconds",
                "Time of one round of decisions, in seconds",
                Histogram::new(exponential_buckets(0.000_01, 4.0, 10)),
            ),
        }
    }

    pub(crate) fn evicted(&self, reason: Reason) {
        self.evicted
            .get_or_create(&EvictionReason {
                reason: reason.to_string(),
            })
            .inc();
    }

    /// Sets how many admitted jobs show `reason`.
    pub(crate) fn not_running(&self, reason: Reason, jobs: i64) {
        let reason = reason.to_string();
        self.not_running
            .get_or_create(&EvictionReason { reason })
            .set(jobs);
    }

    pub(crate) fn refused(&self, reason: Reason) {
        self.refused
            .get_or_create(&EvictionReason {
                reason: reason.to_string(),
            })
            .inc();
    }

    pub(crate) fn decided(&self, took: Duration, decisions: usize) {
        if decisions > 0 {
            self.decide_seconds.observe(took.as_secs_f64());
        }
    }
}
