//! Metrics of the controller. Only labels with names of queues grow with use.

use crate::admission_policies;
use engine::decision::Reserved;
use engine::resources::Unit;
use engine::{QueueName, Reason, Resources};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use runtime::metrics::Registry;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Label: the reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct EvictionReason {
    reason: String,
}

/// How much of a job is evicted for another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum EvictedPart {
    /// The whole job.
    Whole,
    /// Its pods above the minimum.
    Surplus,
}

/// Labels of evictions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictionLabel {
    reason: String,
    queue: String,
    part: EvictedPart,
}

/// Label: the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct QueueLabel {
    pub(crate) queue: String,
}

/// Labels: the queue and the resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct QueueResourceLabel {
    queue: String,
    resource: String,
}

/// What is reserved for a pending job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum ReservedFor {
    Nodes,
    Headroom,
    Evictions,
}

/// Labels of reservations.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReservationLabel {
    queue: String,
    kept: ReservedFor,
}

/// The controller's metrics.
#[derive(Debug, Clone)]
pub(crate) struct ControllerMetrics {
    pub(crate) admission_policies: admission_policies::AdmissionPolicyMetrics,
    pub(crate) released: Counter,
    pub(crate) opened_by_hand: Counter,
    pub(crate) records_unreadable: Gauge,
    pub(crate) records_changed: Counter,
    pub(crate) finalizers_restored: Counter,
    pub(crate) parts_repaired: Counter,
    pub(crate) decisions_cut: Counter,
    /// Nodes of all members with the taint of avoided nodes.
    pub(crate) nodes_avoided: Gauge,
    pub(crate) node_taint_failures: Counter,
    pub(crate) invariant_violations: Counter,
    pub(crate) invariant_check_seconds: Histogram,
    pub(crate) pending_jobs: Family<QueueLabel, Gauge>,
    pub(crate) active_jobs: Family<QueueLabel, Gauge>,
    reservations: Family<ReservationLabel, Gauge>,
    over_capability: Family<QueueResourceLabel, Gauge<f64, AtomicU64>>,
    /// Labels that `over_capability` exports at present.
    exported: Arc<Mutex<BTreeSet<QueueResourceLabel>>>,
    evicted: Family<EvictionReason, Counter>,
    preemptions: Family<EvictionLabel, Counter>,
    refused: Family<EvictionReason, Counter>,
    decide_seconds: Histogram,
}

impl ControllerMetrics {
    /// Registers the metrics.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            admission_policies: admission_policies::AdmissionPolicyMetrics::new(registry),
            released: registry.register(
                "jobs_released",
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
            invariant_violations: registry.register(
                "invariant_violations",
                "Derived numbers of the engine that were found to differ from a recomputation",
                Counter::default(),
            ),
            invariant_check_seconds: registry.register(
                "invariant_check_seconds",
                "Time for which a check of the engine's numbers held decisions up, in seconds",
                Histogram::new(exponential_buckets(0.000_1, 4.0, 10)),
            ),
            pending_jobs: registry.register(
                "queue_pending_jobs",
                "Pending jobs, by queue",
                Family::default(),
            ),
            active_jobs: registry.register(
                "queue_active_jobs",
                "Charged jobs, by queue",
                Family::default(),
            ),
            reservations: registry.register(
                "reservations",
                "Pending jobs with a reservation, by queue and by what is reserved",
                Family::default(),
            ),
            over_capability: registry.register(
                "queue_over_capability",
                "Charge of a queue above its real capability, by resource, in cores, bytes or units",
                Family::default(),
            ),
            exported: Arc::default(),
            evicted: registry.register(
                "jobs_evicted",
                "Admitted jobs that were evicted",
                Family::default(),
            ),
            preemptions: registry.register(
                "preemptions",
                "Jobs evicted, or shrunk, for another job, by their queue",
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

    pub(crate) fn reserved(&self, queue: &QueueName, reserved: Reserved) {
        for (kept, count) in [
            (ReservedFor::Nodes, reserved.nodes),
            (ReservedFor::Headroom, reserved.headroom),
            (ReservedFor::Evictions, reserved.evictions),
        ] {
            let label = ReservationLabel {
                queue: queue.to_string(),
                kept,
            };
            self.reservations
                .get_or_create(&label)
                .set(i64::from(count));
        }
    }

    /// Records what a queue is charged and the most it may have. Exports only resources that exceed the most.
    pub(crate) fn charged(&self, queue: &QueueName, charged: &Resources, most: &Resources) {
        self.forget(queue);
        let beyond = most.iter().filter_map(|(resource, most)| {
            let beyond = charged.amount_of(resource).0.saturating_sub(most.0);
            (beyond > 0).then_some((resource, beyond))
        });
        for (resource, beyond) in beyond {
            let label = QueueResourceLabel {
                queue: queue.to_string(),
                resource: resource.to_string(),
            };
            let unit = match resource.unit() {
                Unit::Milli => 1_000.0,
                Unit::Bytes | Unit::Count => 1.0,
            };
            // For display only; decisions never use it.
            #[allow(clippy::cast_precision_loss)]
            let shown = beyond as f64 / unit;
            self.over_capability.get_or_create(&label).set(shown);
            self.exported().insert(label);
        }
    }

    /// Removes what `queue` exports about charges above its real capability.
    pub(crate) fn forget(&self, queue: &QueueName) {
        let mut exported = self.exported();
        exported.retain(|label| {
            let other = label.queue != queue.as_str();
            if !other {
                self.over_capability.remove(label);
            }
            other
        });
    }

    fn exported(&self) -> MutexGuard<'_, BTreeSet<QueueResourceLabel>> {
        // After a panic it still names labels that are, or were, exported.
        self.exported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clears the gauges when this replica stops leading; the new leader exports them.
    pub(crate) fn clear(&self) {
        self.over_capability.clear();
        self.exported().clear();
    }

    pub(crate) fn evicted(&self, reason: Reason) {
        self.evicted
            .get_or_create(&EvictionReason {
                reason: reason.to_string(),
            })
            .inc();
    }

    pub(crate) fn preempted(&self, reason: Reason, queue: &QueueName, part: EvictedPart) {
        let label = EvictionLabel {
            reason: reason.to_string(),
            queue: queue.to_string(),
            part,
        };
        self.preemptions.get_or_create(&label).inc();
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
