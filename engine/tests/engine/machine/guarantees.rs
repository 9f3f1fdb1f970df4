//! S1 by guarantees: what is guaranteed to a queue and idle is kept for it, also where all others
//! together borrow.
//!
//! Worked out from the queues' objects and what the engine says that they hold: at each queue, and
//! at the root, what is held there and what is kept for those directly below is together no more
//! than the real capability, or no more than it was. (It may be more after a bound has changed, or
//! a cluster has gone: then nothing is let in that adds to it.)

use super::checks::Amounts;
use super::model::Model;
use engine::{QueueName, Reason, ResourceName};
use std::collections::BTreeMap;

/// What is held or kept at each queue with others below it, and at the root.
pub type Committed = BTreeMap<QueueName, Amounts>;

impl Model {
    pub fn committed(&self) -> Committed {
        let root = QueueName::from("root");
        let inner = self.queues.keys().filter(|name| **name != root);
        let inner = inner.filter(|name| !self.directly_below(name).is_empty());
        let names: Vec<QueueName> = inner.chain([&root]).cloned().collect();
        let gpu = ResourceName::new("nvidia.com/gpu");
        let all = names.into_iter().map(|name| {
            let idle = self.directly_below(&name).into_iter();
            let idle: i64 = idle.map(|below| self.idle(&below, &gpu)).sum();
            let committed = self.held_of(&name, &gpu) + idle;
            (name, Amounts::from([(gpu.clone(), committed)]))
        });
        all.collect()
    }

    pub fn check_guarantees(&self, before: &Committed) {
        for (name, committed) in self.committed() {
            let real = self.engine.queue_usage(&name).unwrap().real_capability;
            for (resource, now) in committed {
                let was = before.get(&name).and_then(|was| was.get(&resource));
                let most = real
                    .get(&resource)
                    .map(|most| most.0.max(*was.unwrap_or(&0)));
                assert!(
                    most.is_none_or(|most| now <= most),
                    "{name}: {now} of {resource} held or guaranteed of {most:?}, before {was:?}"
                );
            }
        }
    }

    fn directly_below(&self, queue: &QueueName) -> Vec<QueueName> {
        let root = QueueName::from("root");
        let others = self.queues.keys().filter(|name| **name != root);
        let below = others.filter(|name| {
            let parent = self.parent_of(name).unwrap_or_else(|| root.clone());
            parent == *queue
        });
        below.cloned().collect()
    }

    fn held_of(&self, queue: &QueueName, resource: &ResourceName) -> i64 {
        let usage = self.engine.queue_usage(queue);
        usage.map_or(0, |usage| usage.allocated.amount_of(resource).0)
    }

    /// What it names, or what those below it are guaranteed together; nothing of one that is wrong.
    fn guaranteed(&self, queue: &QueueName, resource: &ResourceName) -> i64 {
        if self.is_wrong(queue) {
            return 0;
        }
        let below = self.directly_below(queue).into_iter();
        let below = below.map(|below| self.guaranteed(&below, resource));
        let named = self.queues[queue].guarantee.get(resource);
        named.map_or_else(|| below.sum(), |named| named.0)
    }

    fn idle(&self, queue: &QueueName, resource: &ResourceName) -> i64 {
        if self.is_wrong(queue) {
            return 0;
        }
        let below = self.directly_below(queue).into_iter();
        let below: i64 = below.map(|below| self.idle(&below, resource)).sum();
        let own = self.guaranteed(queue, resource) - self.held_of(queue, resource);
        own.max(below).max(0)
    }

    /// Whether something is wrong with the queue itself, not with one above it.
    fn is_wrong(&self, queue: &QueueName) -> bool {
        let usage = self.engine.queue_usage(queue);
        let closed = usage.and_then(|usage| usage.closed);
        closed.is_some_and(|(reason, why)| {
            let itself = [":", " names", " is below itself"];
            let itself = itself.map(|how| format!("queue {queue}{how}"));
            reason == Reason::QueueInvalid && itself.iter().any(|own| why.starts_with(own))
        })
    }
}
