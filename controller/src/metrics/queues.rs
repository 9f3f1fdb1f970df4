//! Metrics with the label `queue`. They end with their queue and with the term: no series outlives its queue,
//! and a replica that does not lead exports none.

use super::volcano::VolcanoSeries;
use engine::decision::Reserved;
use engine::facts::QueueFact;
use engine::faults::FaultClass;
use engine::resources::Unit;
use engine::{Amount, QueueName, QueueUsage, Reason, ResourceName, Resources, StartResult, Time};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Metric;
use runtime::metrics::{AmountGauge, Registry, ScopedFamily, wait_buckets};
use std::collections::BTreeMap;
use std::hash::Hash;

#[cfg(test)]
mod tests;

/// Label: the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: String,
}

/// Labels: the queue and the resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueResourceLabel {
    queue: String,
    resource: String,
}

/// What an amount of a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum AmountKind {
    Allocated,
    Deserved,
    Capability,
    Borrowed,
    Lent,
    Pending,
}

/// Labels of a queue's amounts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueAmountLabel {
    queue: String,
    resource: String,
    kind: AmountKind,
}

/// Labels: the queue and the reason why its first pending job waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueHeadLabel {
    queue: String,
    reason: String,
}

/// Labels of what pods use beyond what was admitted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UnadmittedLabel {
    queue: String,
    namespace: String,
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

/// How much of a job is evicted for another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum EvictedPart {
    /// The whole job.
    Whole,
    /// Its pods above the minimum.
    Surplus,
}

/// Labels of evictions for other jobs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PreemptionLabel {
    reason: String,
    queue: String,
    part: EvictedPart,
}

/// Labels of jobs that failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabel {
    queue: String,
    class: String,
}

/// Where an admission came relative to the range in which it was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum StartRangeResult {
    Early,
    Within,
    Late,
    Open,
}

/// Labels of expected starts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartRangeLabel {
    queue: String,
    result: StartRangeResult,
}

/// Metrics whose labels include a queue.
pub(super) type QueueFamily<L, M> = ScopedFamily<QueueName, L, M>;

/// The end of series, whatever their labels and values are.
pub(super) trait QueueScoped {
    fn forget(&self, queue: &QueueName);
    fn clear(&self);
}

impl<L, M> QueueScoped for QueueFamily<L, M>
where
    L: Clone + Eq + Hash,
    M: Clone,
    Family<L, M, fn() -> M>: Metric,
{
    fn forget(&self, queue: &QueueName) {
        self.forget(queue);
    }

    fn clear(&self) {
        self.clear();
    }
}

/// The metrics of queues.
#[derive(Debug, Clone)]
pub(crate) struct QueueSeries {
    pending: QueueFamily<QueueLabel, Gauge>,
    active: QueueFamily<QueueLabel, Gauge>,
    amounts: QueueFamily<QueueAmountLabel, AmountGauge>,
    head_reason: QueueFamily<QueueHeadLabel, AmountGauge>,
    head_queued: QueueFamily<QueueLabel, AmountGauge>,
    reservations: QueueFamily<ReservationLabel, Gauge>,
    over_capability: QueueFamily<QueueResourceLabel, AmountGauge>,
    unadmitted: QueueFamily<UnadmittedLabel, AmountGauge>,
    preemptions: QueueFamily<PreemptionLabel, Counter>,
    failures: QueueFamily<FailureLabel, Counter>,
    admission_wait: QueueFamily<QueueLabel, Histogram>,
    start_wait: QueueFamily<QueueLabel, Histogram>,
    start_ranges: QueueFamily<StartRangeLabel, Counter>,
    /// The same by Volcano's names, if the operator wants them.
    volcano: Option<VolcanoSeries>,
}

impl QueueSeries {
    /// Registers the metrics.
    pub(super) fn new(registry: &Registry) -> Self {
        let pending = "Pending jobs, by queue";
        let active = "Charged jobs, by queue";
        let amounts =
            "Amounts of a queue with those of its children, by resource, in cores, bytes or units";
        let head_reason = "1 for the reason why the first pending job of a queue waits";
        let head_queued = "When the first pending job of a queue was submitted";
        let reservations = "Pending jobs with a reservation, by queue and by what is reserved";
        let over =
            "Charge of a queue above its real capability, by resource, in cores, bytes or units";
        let unadmitted = "What pods of a queue's namespaces use beyond what was admitted, by namespace and resource, \
                          in cores, bytes or units: pods that request more than their template, that outlive their \
                          job, or that belong to none";
        let preemptions = "Jobs evicted, or shrunk, for another job, by their queue";
        let failures = "Jobs that failed, by queue and by whose fault it was: User, Node, Device, Network, Storage, \
                        Cluster, or Unknown if no rule says; also those that are queued again";
        let admission_wait =
            "Time from the submission of jobs to their first admission, by queue, in seconds";
        let start_wait =
            "Time from the admission of jobs until enough of them ran, by queue, in seconds";
        let start_ranges = "Expected starts that pending jobs have shown, by queue and by whether the admission \
                            came before the range, within it, after it, or in one without an end";
        Self {
            pending: counts(registry, "queue_pending_jobs", pending),
            active: counts(registry, "queue_active_jobs", active),
            amounts: counts(registry, "queue_resources", amounts),
            head_reason: counts(registry, "queue_head_reason", head_reason),
            head_queued: counts(registry, "queue_head_queued_timestamp_seconds", head_queued),
            reservations: counts(registry, "reservations", reservations),
            over_capability: counts(registry, "queue_over_capability", over),
            unadmitted: counts(registry, "queue_unadmitted_resources", unadmitted),
            preemptions: counts(registry, "preemptions", preemptions),
            failures: counts(registry, "jobs_failed", failures),
            admission_wait: waits(registry, "job_admission_wait_seconds", admission_wait),
            start_wait: waits(registry, "job_start_wait_seconds", start_wait),
            start_ranges: counts(registry, "start_ranges", start_ranges),
            volcano: None,
        }
    }

    /// Exports the amounts and jobs of queues by Volcano's names too.
    pub(crate) fn add_volcano_names(&mut self, registry: &Registry) {
        self.volcano = Some(VolcanoSeries::new(registry));
    }

    /// Records the use of a queue. `head_queued` says when its first pending job was submitted.
    pub(crate) fn used(
        &self,
        fact: &QueueFact,
        usage: &QueueUsage,
        reserved: Reserved,
        head_queued: Option<Time>,
    ) {
        let queue = &fact.name;
        if let Some(volcano) = &self.volcano {
            volcano.used(fact, usage);
        }
        let pending = self.pending.of(queue, label(queue));
        pending.set(usage.pending_jobs.into());
        let active = usage.admitted_jobs + usage.running_jobs + usage.ending_jobs;
        self.active.of(queue, label(queue)).set(active.into());
        self.amounts.replace(queue, amounts(queue, usage));
        self.charged(queue, &usage.allocated, &usage.real_capability);
        self.unadmitted.replace(queue, unadmitted(queue, usage));
        self.reserved(queue, reserved);
        let head = usage.head.iter().map(|(_, explanation)| {
            let reason = explanation.reason.to_string();
            let queue = queue.to_string();
            (QueueHeadLabel { queue, reason }, 1.0)
        });
        self.head_reason.replace(queue, head);
        let queued = head_queued.filter(|_| usage.head.is_some());
        let queued = queued.map(|at| (label(queue), seconds(at.millis_since(Time(0)))));
        self.head_queued.replace(queue, queued);
    }

    fn reserved(&self, queue: &QueueName, reserved: Reserved) {
        for (kept, count) in [
            (ReservedFor::Nodes, reserved.nodes),
            (ReservedFor::Headroom, reserved.headroom),
            (ReservedFor::Evictions, reserved.evictions),
        ] {
            let label = ReservationLabel {
                queue: queue.to_string(),
                kept,
            };
            self.reservations.of(queue, label).set(count.into());
        }
    }

    /// Records what a queue is charged and the most it may have. Exports only resources that exceed the most.
    fn charged(&self, queue: &QueueName, charged: &Resources, most: &Resources) {
        let beyond = most.iter().filter_map(|(resource, most)| {
            let beyond = charged.amount_of(resource).0.saturating_sub(most.0);
            let label = QueueResourceLabel {
                queue: queue.to_string(),
                resource: resource.to_string(),
            };
            (beyond > 0).then(|| (label, shown(resource, Amount(beyond))))
        });
        self.over_capability.replace(queue, beyond);
    }

    /// Counts an eviction for another job.
    pub(crate) fn preempted(&self, reason: Reason, queue: &QueueName, part: EvictedPart) {
        let label = PreemptionLabel {
            reason: reason.to_string(),
            queue: queue.to_string(),
            part,
        };
        self.preemptions.of(queue, label).inc();
    }

    /// Counts a job that has failed.
    pub(crate) fn failed(&self, queue: &QueueName, class: FaultClass) {
        let label = FailureLabel {
            queue: queue.to_string(),
            class: class.to_string(),
        };
        self.failures.of(queue, label).inc();
    }

    /// Records how long a job has waited for its first admission.
    pub(crate) fn admitted_after(&self, queue: &QueueName, millis: i64) {
        let wait = self.admission_wait.of(queue, label(queue));
        wait.observe(seconds(millis.max(0)));
    }

    /// Records how long an admitted job took to run.
    pub(crate) fn started_after(&self, queue: &QueueName, millis: i64) {
        let wait = self.start_wait.of(queue, label(queue));
        wait.observe(seconds(millis.max(0)));
    }

    /// Counts a range in which a job was expected to start.
    pub(crate) fn started_as_expected(&self, queue: &QueueName, result: StartResult) {
        let label = StartRangeLabel {
            queue: queue.to_string(),
            result: match result {
                StartResult::Early => StartRangeResult::Early,
                StartResult::Within => StartRangeResult::Within,
                StartResult::Late => StartRangeResult::Late,
                StartResult::Open => StartRangeResult::Open,
            },
        };
        self.start_ranges.of(queue, label).inc();
    }

    /// Removes what is exported about a deleted `queue`.
    pub(crate) fn forget(&self, queue: &QueueName) {
        for family in self.all() {
            family.forget(queue);
        }
    }

    /// Removes everything when this replica stops leading; the new leader exports it.
    pub(crate) fn clear(&self) {
        for family in self.all() {
            family.clear();
        }
    }

    fn all(&self) -> Vec<&dyn QueueScoped> {
        let own: [&dyn QueueScoped; 13] = [
            &self.pending,
            &self.active,
            &self.amounts,
            &self.head_reason,
            &self.head_queued,
            &self.reservations,
            &self.over_capability,
            &self.unadmitted,
            &self.preemptions,
            &self.failures,
            &self.admission_wait,
            &self.start_wait,
            &self.start_ranges,
        ];
        let volcano = self.volcano.iter().flat_map(VolcanoSeries::all);
        own.into_iter().chain(volcano).collect()
    }
}

/// Registers gauges or counters.
fn counts<L, M>(registry: &Registry, name: &str, help: &str) -> QueueFamily<L, M>
where
    L: Clone + Eq + Hash,
    M: Clone + Default,
    Family<L, M, fn() -> M>: Metric,
{
    QueueFamily::register(registry, name, help, M::default)
}

/// Registers histograms of waiting times.
fn waits(registry: &Registry, name: &str, help: &str) -> QueueFamily<QueueLabel, Histogram> {
    QueueFamily::register(registry, name, help, || Histogram::new(wait_buckets()))
}

fn label(queue: &QueueName) -> QueueLabel {
    QueueLabel {
        queue: queue.to_string(),
    }
}

/// Returns what pods use beyond what was admitted, by namespace and resource.
fn unadmitted(
    queue: &QueueName,
    usage: &QueueUsage,
) -> impl Iterator<Item = (UnadmittedLabel, f64)> + use<> {
    let mut sums: BTreeMap<(String, ResourceName), i64> = BTreeMap::new();
    for used in &usage.unadmitted {
        for (resource, amount) in used.resources.iter() {
            let namespace = used.pods_of.namespace.to_string();
            let sum = sums.entry((namespace, resource.clone())).or_default();
            *sum = sum.saturating_add(amount.0);
        }
    }
    let queue = queue.to_string();
    sums.into_iter().map(move |((namespace, name), sum)| {
        let label = UnadmittedLabel {
            queue: queue.clone(),
            namespace,
            resource: name.to_string(),
        };
        (label, shown(&name, Amount(sum)))
    })
}

fn amounts(queue: &QueueName, usage: &QueueUsage) -> Vec<(QueueAmountLabel, f64)> {
    let kinds = [
        (AmountKind::Allocated, &usage.allocated),
        (AmountKind::Deserved, &usage.deserved),
        (AmountKind::Capability, &usage.real_capability),
        (AmountKind::Borrowed, &usage.borrowed),
        (AmountKind::Lent, &usage.lent),
        (AmountKind::Pending, &usage.pending),
    ];
    let all = kinds.into_iter().flat_map(|(kind, list)| {
        list.iter().map(move |(resource, amount)| {
            let label = QueueAmountLabel {
                queue: queue.to_string(),
                resource: resource.to_string(),
                kind,
            };
            (label, shown(resource, amount))
        })
    });
    all.collect()
}

// For display only; decisions never use it.
#[allow(clippy::cast_precision_loss)]
fn shown(resource: &ResourceName, amount: Amount) -> f64 {
    let unit = match resource.unit() {
        Unit::Milli => 1_000.0,
        Unit::Bytes | Unit::Count => 1.0,
    };
    amount.0 as f64 / unit
}

// As `shown`.
#[allow(clippy::cast_precision_loss)]
fn seconds(millis: i64) -> f64 {
    millis as f64 / 1_000.0
}
