//! Changes of queues, policies and priority classes by administrators.

use super::model::Model;
use super::step::PolicyStep;
use crate::world::{bound, res};
use engine::facts::{
    Backfill, FairShare, Preemption, PriorityClassFact, QueueFact, QueueOrdering, QueueState,
};
use engine::{Event, QueueName, Resources};

fn gpus(bound: Option<u32>) -> Resources {
    bound.map_or_else(Resources::new, |gpus| res(&format!("gpu {gpus}")))
}

impl Model {
    /// A queue of the list, if it exists.
    pub fn one_of(&self, names: &[&str], index: usize) -> Option<QueueFact> {
        let name = QueueName::from(names[index % names.len()]);
        self.queues.get(&name).cloned()
    }

    pub fn capability(&mut self, queue: usize, most: Option<u32>) {
        let Some(mut fact) = self.one_of(self.layout.capped, queue) else {
            return;
        };
        fact.capability = gpus(most);
        self.queue(fact);
    }

    /// Any values, even invalid ones: an invalid queue must block only its own jobs.
    pub fn shares(&mut self, queue: usize, guarantee: Option<u32>, deserved: Option<u32>) {
        let Some(mut fact) = self.one_of(self.layout.promised, queue) else {
            return;
        };
        fact.guarantee = gpus(guarantee);
        fact.deserved = gpus(deserved);
        self.queue(fact);
    }

    pub fn reclaimable(&mut self, queue: usize, yes: bool) {
        let Some(mut fact) = self.one_of(self.layout.leaves, queue) else {
            return;
        };
        fact.reclaimable = yes;
        self.queue(fact);
    }

    pub fn open(&mut self, queue: usize, open: bool) {
        let Some(mut fact) = self.one_of(self.layout.leaves, queue) else {
            return;
        };
        fact.state = if open {
            QueueState::Open
        } else {
            QueueState::Closed
        };
        self.queue(fact);
    }

    pub fn change_policy(&mut self, queue: usize, change: PolicyStep) {
        let mut fact = self.policy_of(&self.leaf(queue));
        match change {
            PolicyStep::Ordering(which) => {
                fact.ordering = [
                    QueueOrdering::Backfill,
                    QueueOrdering::BestEffort,
                    QueueOrdering::StrictFifo,
                    QueueOrdering::ShortestPredicted,
                ][usize::from(which)];
            }
            PolicyStep::PoolBound(most) => {
                let most = most.into_iter();
                let bounds = most.map(|gpus| bound("gpu", None, &format!("gpu {gpus}")));
                fact.pools = bounds.collect();
            }
            PolicyStep::Preemption {
                within,
                reclaim,
                min_runtime,
            } => {
                fact.preemption = Preemption {
                    within_queue: within,
                    reclaim,
                    min_runtime_ms: i64::from(min_runtime) * 1000,
                    ..Preemption::default()
                };
            }
            PolicyStep::Jobs(most) => fact.limits.jobs = most,
            PolicyStep::JobsPerUser(most) => fact.limits.jobs_per_user = most,
            PolicyStep::Pending(most) => fact.limits.pending = most,
            PolicyStep::Runtime(most) => {
                fact.limits.runtime_ms = most.map(|seconds| i64::from(seconds) * 1000);
            }
            PolicyStep::FairShare { weight, half_life } => {
                fact.fair_share = FairShare {
                    weight,
                    within: fact.fair_share.within,
                    usage_half_life_ms: half_life.map(|seconds| i64::from(seconds) * 1000),
                };
            }
            PolicyStep::Backfill {
                conservative,
                reservations,
            } => {
                fact.backfill = Backfill {
                    conservative,
                    reservations,
                };
            }
            PolicyStep::MaxClusters(most) => fact.max_clusters = most,
        }
        self.policy(fact);
    }

    pub fn class(&mut self, class: u8, value: i32, preempts: bool) {
        let name = format!("p{class}");
        let fact = PriorityClassFact {
            name: name.clone(),
            value,
            global_default: class == 2,
            preempts,
        };
        self.classes.insert(name, fact.clone());
        self.apply(Event::PriorityClassUpserted(fact));
    }
}
