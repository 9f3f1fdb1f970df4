//! The metrics of queues by Volcano's names (`--compat-metrics=volcano`), so that its dashboards show Muster's
//! queues: those of its scheduler and of its controller, as Volcano 1.14 exports them.
//!
//! The values are those of Muster's own metrics ([`super::queues`]), and end with them. As in Volcano, CPU and all
//! resources but memory count in thousandths. Volcano's metrics of jobs, tasks and namespaces have no counterpart:
//! their labels name each job.

use super::queues::{QueueFamily, QueueScoped};
use engine::facts::QueueFact;
use engine::resources::Unit;
use engine::{Amount, QueueName, QueueUsage, ResourceName, Resources};
use prometheus_client::encoding::EncodeLabelSet;
use runtime::metrics::{AmountGauge, Registry};

/// Label: the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VolcanoQueueLabel {
    queue_name: String,
}

/// Labels: the queue, and a resource other than CPU and memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VolcanoResourceLabel {
    queue_name: String,
    resource: String,
}

type PlainFamily = QueueFamily<VolcanoQueueLabel, AmountGauge>;

/// The three metrics in which Volcano exports one list of amounts.
#[derive(Debug, Clone)]
struct AmountFamilies {
    cpu: PlainFamily,
    memory: PlainFamily,
    others: QueueFamily<VolcanoResourceLabel, AmountGauge>,
}

/// The metrics of queues by Volcano's names.
#[derive(Debug, Clone)]
pub(super) struct VolcanoSeries {
    allocated: AmountFamilies,
    request: AmountFamilies,
    deserved: AmountFamilies,
    capacity: AmountFamilies,
    real_capacity: AmountFamilies,
    share: PlainFamily,
    weight: PlainFamily,
    overused: PlainFamily,
    pending: PlainFamily,
    inqueue: PlainFamily,
    running: PlainFamily,
    unknown: PlainFamily,
    completed: PlainFamily,
}

impl VolcanoSeries {
    /// Registers the metrics.
    pub(super) fn new(registry: &Registry) -> Self {
        let amounts = |name: &str, what: &str| AmountFamilies::new(registry, name, what);
        let plain = |name: &str, help: &str| plain(registry, name, help);
        let count = |phase: &str| {
            let name = format!("pod_group_{phase}_count");
            plain(&name, &format!("Jobs of the queue in the phase {phase}"))
        };
        Self {
            allocated: amounts("allocated", "Charged to the queue and its children"),
            request: amounts("request", "Charged or pending, with its children"),
            deserved: amounts("deserved", "Effective deserved amounts of the queue"),
            capacity: amounts("capacity", "The queue's own capability"),
            real_capacity: amounts("real_capacity", "Effective capability of the queue"),
            share: plain("share", "The largest ratio of allocated to deserved"),
            weight: plain("weight", "Weight of the queue"),
            overused: plain("overused", "1 if the queue has all that it deserves"),
            pending: count("pending"),
            inqueue: count("inqueue"),
            running: count("running"),
            unknown: count("unknown"),
            completed: count("completed"),
        }
    }

    /// Records the use of a queue.
    pub(super) fn used(&self, fact: &QueueFact, usage: &QueueUsage) {
        let queue = &fact.name;
        let request = usage.allocated.checked_add(&usage.pending);
        for (families, list) in [
            (&self.allocated, &usage.allocated),
            (&self.request, request.as_ref().unwrap_or(&usage.allocated)),
            (&self.deserved, &usage.deserved),
            (&self.capacity, &fact.capability),
            (&self.real_capacity, &usage.real_capability),
        ] {
            families.set(queue, list);
        }
        let share = share(&usage.allocated, &usage.deserved);
        for (family, value) in [
            (&self.share, share),
            (&self.weight, f64::from(fact.weight)),
            (&self.overused, f64::from(u8::from(is_overused(usage)))),
            (&self.pending, f64::from(usage.pending_jobs)),
            (&self.inqueue, f64::from(usage.admitted_jobs)),
            (&self.running, f64::from(usage.running_jobs)),
            (&self.unknown, f64::from(usage.ending_jobs)),
            (&self.completed, f64::from(usage.finished_jobs)),
        ] {
            family.replace(queue, [(label(queue), value)]);
        }
    }

    /// Returns all metrics, for the end of their series.
    pub(super) fn all(&self) -> Vec<&dyn QueueScoped> {
        let amounts = [
            &self.allocated,
            &self.request,
            &self.deserved,
            &self.capacity,
            &self.real_capacity,
        ];
        let plain = [
            &self.share,
            &self.weight,
            &self.overused,
            &self.pending,
            &self.inqueue,
            &self.running,
            &self.unknown,
            &self.completed,
        ];
        let amounts = amounts.into_iter().flat_map(AmountFamilies::all);
        let plain = plain.into_iter().map(|family| family as &dyn QueueScoped);
        amounts.chain(plain).collect()
    }
}

impl AmountFamilies {
    fn new(registry: &Registry, name: &str, what: &str) -> Self {
        let milli = format!("{name}_milli_cpu");
        let bytes = format!("{name}_memory_bytes");
        let others = format!("volcano_queue_{name}_scalar_resources");
        let help = format!("{what}, by resource, in thousandths");
        Self {
            cpu: plain(registry, &milli, &format!("{what}, in milli-cores")),
            memory: plain(registry, &bytes, &format!("{what}, in bytes")),
            others: QueueFamily::register_as(registry, &others, &help, AmountGauge::default),
        }
    }

    fn set(&self, queue: &QueueName, list: &Resources) {
        let of = |name: &str| list.amount_of(&ResourceName::new(name));
        let cpu = number(of(ResourceName::CPU));
        self.cpu.replace(queue, [(label(queue), cpu)]);
        let memory = number(of(ResourceName::MEMORY));
        self.memory.replace(queue, [(label(queue), memory)]);
        let known = [ResourceName::CPU, ResourceName::MEMORY, ResourceName::PODS];
        let others = list
            .iter()
            .filter(|(resource, _)| !known.contains(&resource.as_str()));
        let others = others.map(|(resource, amount)| {
            let label = VolcanoResourceLabel {
                queue_name: queue.to_string(),
                resource: resource.to_string(),
            };
            let thousandths = match resource.unit() {
                Unit::Milli => 1.0,
                Unit::Bytes | Unit::Count => 1_000.0,
            };
            (label, number(amount) * thousandths)
        });
        self.others.replace(queue, others);
    }

    fn all(&self) -> [&dyn QueueScoped; 3] {
        [&self.cpu, &self.memory, &self.others]
    }
}

fn plain(registry: &Registry, name: &str, help: &str) -> PlainFamily {
    let name = format!("volcano_queue_{name}");
    QueueFamily::register_as(registry, &name, help, AmountGauge::default)
}

fn label(queue: &QueueName) -> VolcanoQueueLabel {
    VolcanoQueueLabel {
        queue_name: queue.to_string(),
    }
}

/// The largest ratio of allocated to deserved; 1 for what is allocated and not deserved, as in Volcano.
fn share(allocated: &Resources, deserved: &Resources) -> f64 {
    let ratios = deserved.iter().map(|(resource, deserved)| {
        let allocated = allocated.amount_of(resource);
        match (allocated.0, deserved.0) {
            (0, _) => 0.0,
            (_, 0) => 1.0,
            _ => number(allocated) / number(deserved),
        }
    });
    ratios.fold(0.0, f64::max)
}

/// Volcano asks whether a queue may reclaim in any resource that it deserves.
fn is_overused(usage: &QueueUsage) -> bool {
    let mut deserved = usage.deserved.iter();
    deserved.all(|(resource, deserved)| usage.allocated.amount_of(resource).0 >= deserved.0)
}

// For display only; decisions never use it.
#[allow(clippy::cast_precision_loss)]
fn number(amount: Amount) -> f64 {
    amount.0 as f64
}

#[cfg(test)]
mod tests;
