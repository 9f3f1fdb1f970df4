//! What a check is to assume beside the facts: capacity and usage as they would be.
//!
//! An [`Overlay`] has differences only, and nothing that it is applied to changes. The stores read it
//! (`quota/check.rs`, `capacity/pack.rs`); which differences a decision assumes is in
//! `backfill/assume.rs`.

use crate::amounts::totals::ResourceTotals;
use crate::api::charge::Pools;
use facts::{ClusterName, NodeName, PoolClass, QueueName, ResourceName};
use std::collections::BTreeMap;

/// A class of nodes in a cluster.
type ClusterPool = (ClusterName, PoolClass);

/// Differences from the facts. By default there are none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlay {
    /// True if no pod runs and nothing is charged.
    empty: bool,
    /// Taken off what is free on nodes; below zero, given back.
    nodes: BTreeMap<ClusterName, BTreeMap<NodeName, ResourceTotals>>,
    /// Charged in addition; below zero, charged no more.
    usage: BTreeMap<QueueName, QueueAmounts>,
    /// Headroom that reservations withhold.
    reserved: BTreeMap<QueueName, QueueAmounts>,
    /// True if some of what is charged is charged no more.
    gone: bool,
    /// True if what is gone only makes up for what is reserved.
    floored: bool,
}

/// Amounts at one queue.
#[derive(Debug, Clone, Default)]
struct QueueAmounts {
    overall: ResourceTotals,
    pools: BTreeMap<ClusterPool, ResourceTotals>,
}

impl Overlay {
    /// Returns what could ever be: no pod runs and nothing is charged.
    pub(crate) fn empty_fleet() -> Self {
        Self {
            empty: true,
            ..Self::default()
        }
    }

    /// True if no pod runs and nothing is charged.
    pub(crate) fn is_of_empty_fleet(&self) -> bool {
        self.empty
    }

    /// The same usage, without what reservations withhold: a queue does not use what is reserved
    /// for its jobs.
    pub(crate) fn usage_only(&self) -> Self {
        Self {
            usage: self.usage.clone(),
            gone: self.gone,
            ..Self::default()
        }
    }

    /// Makes what is gone count only as far as something is reserved: nothing more than now is free.
    pub(crate) fn floor(&mut self) {
        self.floored = true;
        let nodes = self.nodes.values_mut().flat_map(BTreeMap::values_mut);
        nodes.for_each(ResourceTotals::drop_negative);
    }

    /// Returns what is taken off a node, to be changed.
    pub(crate) fn node_mut(
        &mut self,
        cluster: &ClusterName,
        node: &NodeName,
    ) -> &mut ResourceTotals {
        let nodes = self.nodes.entry(cluster.clone()).or_default();
        nodes.entry(node.clone()).or_default()
    }

    /// Returns what is taken off the nodes of a cluster, if anything is.
    pub(crate) fn nodes_of(
        &self,
        cluster: &ClusterName,
    ) -> Option<&BTreeMap<NodeName, ResourceTotals>> {
        self.nodes.get(cluster)
    }

    /// The clusters with nodes that differ.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.nodes.keys()
    }

    /// Adds `times` a charge at one queue.
    pub(crate) fn charge(&mut self, queue: &QueueName, charge: &Pools, times: i64) {
        self.gone |= times < 0;
        let here = self.usage.entry(queue.clone()).or_default();
        for (pool, part) in charge {
            here.overall.add(part, times);
            here.pools.entry(pool.clone()).or_default().add(part, times);
        }
    }

    /// Takes `amount` of a resource off the usage of one queue, over everything or in a pool.
    pub(crate) fn relieve(
        &mut self,
        queue: &QueueName,
        pool: Option<ClusterPool>,
        resource: &ResourceName,
        amount: i128,
    ) {
        self.gone = true;
        let here = self.usage.entry(queue.clone()).or_default();
        here.sum_mut(pool).add_amount(resource, -amount);
    }

    /// Withholds headroom of one queue, over everything or in a pool.
    pub(crate) fn withhold(
        &mut self,
        queue: &QueueName,
        pool: Option<ClusterPool>,
        more: &ResourceTotals,
    ) {
        let here = self.reserved.entry(queue.clone()).or_default();
        here.sum_mut(pool).add_totals(more, 1);
    }

    /// The queues at which something differs.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.usage.keys().chain(self.reserved.keys())
    }

    /// Returns what counts of a resource at a queue beside what is charged.
    pub(crate) fn overall_at(&self, queue: &QueueName, resource: &ResourceName) -> i128 {
        self.sum_at(queue, |here| here.overall.get(resource))
    }

    /// The same in the pools that `counts` names.
    pub(crate) fn in_pools_at(
        &self,
        queue: &QueueName,
        resource: &ResourceName,
        counts: impl Fn(&ClusterPool) -> bool,
    ) -> i128 {
        self.sum_at(queue, |here| {
            let within = here.pools.iter().filter(|(pool, _)| counts(pool));
            within.map(|(_, sum)| sum.get(resource)).sum()
        })
    }

    fn sum_at(&self, queue: &QueueName, of: impl Fn(&QueueAmounts) -> i128) -> i128 {
        let here = [self.usage.get(queue), self.reserved.get(queue)];
        let sum = here.into_iter().flatten().map(of).sum::<i128>();
        if self.floored { sum.max(0) } else { sum }
    }

    /// True if headroom is reserved and no more counts as free than is.
    pub(crate) fn only_withholds(&self) -> bool {
        !self.reserved.is_empty() && (!self.gone || self.floored)
    }
}

impl QueueAmounts {
    fn sum_mut(&mut self, pool: Option<ClusterPool>) -> &mut ResourceTotals {
        match pool {
            Some(pool) => self.pools.entry(pool).or_default(),
            None => &mut self.overall,
        }
    }
}
