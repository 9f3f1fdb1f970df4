//! Queues, policies and classes that are created and deleted, and other parents.

use super::steps::Bound;
use crate::machine::model::Model;
use crate::world::{below, queue, res};
use engine::facts::PoolBound;
use engine::{ClusterName, Event, PoolClass, QueueName, Resources};
use std::collections::BTreeSet;

fn gpus(amount: Option<u32>) -> Resources {
    amount.map_or_else(Resources::new, |gpus| res(&format!("gpu {gpus}")))
}

impl Model {
    fn any_queue(&self, index: usize) -> (&'static str, Option<&'static str>) {
        self.layout.tree[index % self.layout.tree.len()]
    }

    pub fn queue_gone(&mut self, index: usize) {
        let name = QueueName::from(self.any_queue(index).0);
        if self.queues.remove(&name).is_some() {
            self.apply(Event::QueueGone(name));
        }
    }

    /// A deleted queue is created again, below its first parent.
    pub fn queue_back(&mut self, index: usize) {
        let (name, parent) = self.any_queue(index);
        if !self.queues.contains_key(&QueueName::from(name)) {
            let fact = queue(name);
            self.queue(match parent {
                Some(parent) => below(parent, fact),
                None => fact,
            });
        }
    }

    /// Any parent, even one that does not exist or is below the queue.
    pub fn parent(&mut self, index: usize, parent: Option<usize>) {
        let name = QueueName::from(self.any_queue(index).0);
        let parent = parent.map(|parent| QueueName::from(self.any_queue(parent).0));
        if let Some(mut fact) = self.queues.get(&name).cloned() {
            fact.parent = parent;
            self.queue(fact);
        }
    }

    pub fn policy_gone(&mut self, index: usize) {
        let name = QueueName::from(self.any_queue(index).0);
        if self.policies.remove(&name).is_some() {
            self.apply(Event::PolicyGone(name));
        }
    }

    pub fn inner_reclaimable(&mut self, index: usize, yes: bool) {
        let inner: Vec<&str> = self.inner().collect();
        if let Some(mut fact) = self.one_of(&inner, index) {
            fact.reclaimable = yes;
            self.queue(fact);
        }
    }

    pub fn class_gone(&mut self, class: u8) {
        let name = format!("p{class}");
        if self.classes.remove(&name).is_some() {
            self.apply(Event::PriorityClassGone(name));
        }
    }

    pub fn pools(&mut self, index: usize, bounds: &[Bound]) {
        let name = QueueName::from(self.any_queue(index).0);
        let mut fact = self.policy_of(&name);
        let bounds = bounds.iter().map(|bound| {
            let mut capability = gpus(bound.most);
            if let Some(cpus) = bound.cpus {
                let cpus = res(&format!("cpu {cpus}"));
                capability = capability.checked_add(&cpus).unwrap();
            }
            let clusters = bound.clusters.iter();
            let clusters: BTreeSet<ClusterName> = clusters
                .map(|index| ClusterName::from(self.cluster_at(*index)))
                .collect();
            PoolBound {
                class: PoolClass::from(if bound.big { "big" } else { "gpu" }),
                clusters: (!clusters.is_empty()).then_some(clusters),
                guarantee: gpus(bound.guarantee),
                deserved: gpus(bound.deserved),
                capability,
            }
        });
        fact.pools = bounds.collect();
        self.policy(fact);
    }
}
