//! What queues have and want, for their status.

use crate::api::decision::{Explanation, PlacedUsage, PoolUsage, QueueUsage, Reserved};
use crate::api::ids::{JobKey, QueueName};
use crate::engine::Engine;
use crate::jobs::job::JobState;
use crate::quota::measure::Sums;
use crate::quota::queues::{QueueId, QueueNode, Queues, ROOT};

impl Engine {
    /// Whether something is charged to a queue or to one below it.
    #[must_use]
    pub fn is_charged(&self, queue: &QueueName) -> bool {
        let node = self.quota.get(queue);
        node.is_some_and(|node| node.census.held > 0)
    }

    /// The queues from the top down to `queue`, the root left out: those that what it holds is
    /// charged to.
    #[must_use]
    pub fn queue_path(&self, queue: &QueueName) -> Vec<QueueName> {
        let path = self.quota.path(queue).into_iter();
        path.filter(|name| name.as_str() != ROOT).collect()
    }

    /// What a queue has and wants; `None` for one that neither exists nor has jobs.
    #[must_use]
    pub fn queue_usage(&self, queue: &QueueName) -> Option<QueueUsage> {
        let id = self.quota.id(queue)?;
        let node = self.quota.node(id);
        let (units, account) = (&self.quota.units, node.overall());
        let count = |state| node.census.counts.get(state);
        let problem = self.quota.problem_of(id);
        Some(QueueUsage {
            allocated: units.resources(&account.charged),
            deserved: units.named(&account.bounds.deserved),
            real_capability: units.named(&account.bounds.real),
            borrowed: units.resources(&self.quota.borrowed(node)),
            lent: units.resources(&self.quota.lent(id)),
            pools: self.quota.pool_usage(node),
            decayed_usage: self.quota.decayed_usage(node),
            pending: units.resources(&node.census.pending),
            placed: self.quota.placed(node),
            pending_jobs: count(JobState::Queued),
            admitted_jobs: count(JobState::Assumed).saturating_add(count(JobState::Placed)),
            running_jobs: count(JobState::Running),
            ending_jobs: count(JobState::Ending),
            finished_jobs: count(JobState::Finished),
            head: self.head(queue),
            closed: problem.filter(|_| queue.as_str() != ROOT || node.fact.is_some()),
        })
    }

    /// For how many of a queue's own waiting jobs something is kept.
    #[must_use]
    pub fn reserved(&self, queue: &QueueName) -> Reserved {
        let mut reserved = Reserved::default();
        let holders = self.reservations.holders_in(queue);
        for kept in holders.filter_map(|rank| self.reservations.of(&rank.key)) {
            let count = if kept.taking() {
                &mut reserved.evictions
            } else if kept.nodes.is_empty() {
                &mut reserved.headroom
            } else {
                &mut reserved.nodes
            };
            *count += 1;
        }
        reserved
    }

    fn head(&self, queue: &QueueName) -> Option<(JobKey, Explanation)> {
        let key = &self
            .pending
            .queues
            .pending_queue(queue)?
            .ranks()
            .first()?
            .key;
        Some((key.clone(), self.explain(key)?))
    }
}

impl Queues {
    /// What a queue holds above what it deserves.
    fn borrowed(&self, node: &QueueNode) -> Sums {
        let mut borrowed = Sums::default();
        let held = node.overall().charged.iter();
        for (id, held) in held.filter(|(id, _)| self.units.competes(*id)) {
            borrowed.set(id, (held - node.covered(id)).max(0));
        }
        borrowed
    }

    /// What a queue deserves and does not use, as far as others use it: siblings of its own, or
    /// of a queue above it.
    fn lent(&self, id: QueueId) -> Sums {
        let mut used_by_others = Sums::default();
        for (at, node) in self.upwards(id) {
            let siblings = node.parent.map(|parent| &self.node(parent).children);
            let idle = idle(node);
            if idle.is_empty() {
                continue;
            }
            let mut borrowed = Sums::default();
            for sibling in siblings.into_iter().flatten().filter(|id| **id != at) {
                borrowed.add_all(&self.borrowed(self.node(*sibling)), 1);
            }
            for (id, idle) in idle.iter() {
                used_by_others.add(id, idle.min(borrowed.get(id)));
            }
        }
        let mut lent = Sums::default();
        for (id, idle) in idle(self.node(id)).iter() {
            lent.set(id, idle.min(used_by_others.get(id)));
        }
        lent
    }

    fn pool_usage(&self, node: &QueueNode) -> Vec<PoolUsage> {
        let bounds = node.policy.iter().flat_map(|policy| &policy.pools);
        let usages = bounds.filter_map(|bound| {
            let account = node.account(self.scopes.find(bound)?)?;
            Some(PoolUsage {
                class: bound.class.clone(),
                clusters: bound.clusters.iter().flatten().cloned().collect(),
                allocated: self.units.resources(&account.charged),
                deserved: self.units.named(&account.bounds.deserved),
                real_capability: self.units.named(&account.bounds.real),
            })
        });
        usages.collect()
    }

    /// In order of the names of clusters and classes.
    fn placed(&self, node: &QueueNode) -> Vec<PlacedUsage> {
        let own = node.own.pools.iter();
        let mut placed: Vec<PlacedUsage> = own
            .map(|(pool, sums)| {
                let (cluster, class) = self.scopes.pool(*pool).clone();
                PlacedUsage {
                    cluster,
                    class,
                    allocated: self.units.resources(sums),
                }
            })
            .collect();
        placed.sort_by(|a, b| (&a.cluster, &a.class).cmp(&(&b.cluster, &b.class)));
        placed
    }
}

/// What a queue deserves and does not use.
fn idle(node: &QueueNode) -> Sums {
    let account = node.overall();
    let mut idle = Sums::default();
    for (id, deserved) in account.bounds.deserved.iter() {
        idle.set(id, (deserved - account.charged.get(id)).max(0));
    }
    idle
}
