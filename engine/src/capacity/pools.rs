//! Pools as people see them: what each class of each cluster has, uses and has free.

use super::{Capacity, ClusterCapacity, NodeInfo};
use crate::amounts::totals::ResourceTotals;
use facts::{ClusterName, PoolClass, ResourceName, Resources};
use std::collections::BTreeMap;

/// One pool: the nodes of one class in one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSummary {
    /// The cluster.
    pub cluster: ClusterName,
    /// The class.
    pub class: PoolClass,
    /// The device it is counted in; `None` for pools without devices.
    pub device: Option<ResourceName>,
    /// All its nodes.
    pub nodes: u32,
    /// Those that are usable: Ready and uncordoned.
    pub usable_nodes: u32,
    /// What all its nodes have.
    pub total: Resources,
    /// What its usable nodes have.
    pub allocatable: Resources,
    /// What pods bound to its usable nodes request.
    pub used: Resources,
    /// What is free on its usable nodes, what assumed pods take taken off.
    pub free: Resources,
    /// Held on its usable nodes for released pods that are not bound yet.
    pub assumed: Resources,
    /// Usable nodes by free devices (whole free cores where the pool has no devices).
    pub histogram: BTreeMap<i64, u32>,
    /// The most devices (cores) free on one node.
    pub largest_free_node: i64,
    /// Of the free devices (cores), how many of a thousand are on nodes that are partly used
    /// and so no good for pods that need a whole node.
    pub fragmentation_permille: u32,
}

/// How many pods with this many devices each fit at once, by the devices that are free on each node alone:
/// pairs of free devices and the number of nodes that have them. Each pod needs its devices on one node.
#[must_use]
pub fn pods_that_fit(free: impl IntoIterator<Item = (i64, i64)>, devices: u32) -> i64 {
    let devices = i64::from(devices.max(1));
    let pods = free
        .into_iter()
        .map(|(free, nodes)| (free.max(0) / devices).saturating_mul(nodes.max(0)));
    pods.fold(0, i64::saturating_add)
}

#[derive(Default)]
struct PoolSums {
    device: Option<ResourceName>,
    nodes: u32,
    usable_nodes: u32,
    total: ResourceTotals,
    allocatable: ResourceTotals,
    used: ResourceTotals,
    free: ResourceTotals,
    assumed: ResourceTotals,
    histogram: BTreeMap<i64, u32>,
    free_units: i64,
    free_units_whole: i64,
}

/// Every pool, in order of cluster and class.
pub(super) fn summarize(room: &Capacity) -> Vec<PoolSummary> {
    let mut pools: BTreeMap<(&ClusterName, &PoolClass), PoolSums> = BTreeMap::new();
    for (name, cluster) in room.clusters() {
        for node in cluster.nodes().values() {
            let sums = pools.entry((name, &node.fact.class)).or_default();
            sums.add(room, cluster, node);
        }
    }
    pools
        .into_iter()
        .map(|((cluster, class), sums)| sums.summary(cluster.clone(), class.clone()))
        .collect()
}

impl PoolSums {
    fn add(&mut self, room: &Capacity, cluster: &ClusterCapacity, node: &NodeInfo) {
        self.nodes += 1;
        self.total.add(&node.fact.allocatable, 1);
        if self.device.is_none() {
            self.device.clone_from(&node.device);
        }
        if !node.fact.usable {
            return;
        }
        let has = units(node, &ResourceTotals::from(&node.fact.allocatable));
        let node_free = room.free_on(node);
        let free = units(node, &node_free);
        self.usable_nodes += 1;
        self.allocatable.add(&node.fact.allocatable, 1);
        let by_name = |sums| room.resource_ids.totals(&sums);
        let name = &node.fact.name;
        self.used.add_totals(&by_name(cluster.used(name)), 1);
        self.assumed.add_totals(&by_name(cluster.placed(name)), 1);
        // An overcommitted node has nothing free; it takes nothing from the others.
        self.free.add(&node_free.to_resources(), 1);
        *self.histogram.entry(free).or_default() += 1;
        self.free_units = self.free_units.saturating_add(free);
        if free == has {
            self.free_units_whole = self.free_units_whole.saturating_add(free);
        }
    }

    fn summary(self, cluster: ClusterName, class: PoolClass) -> PoolSummary {
        let broken = i128::from(self.free_units - self.free_units_whole);
        let permille = (broken * 1000)
            .checked_div(i128::from(self.free_units))
            .unwrap_or_default();
        PoolSummary {
            cluster,
            class,
            device: self.device,
            nodes: self.nodes,
            usable_nodes: self.usable_nodes,
            total: self.total.to_resources(),
            allocatable: self.allocatable.to_resources(),
            used: self.used.to_resources(),
            free: self.free.to_resources(),
            assumed: self.assumed.to_resources(),
            largest_free_node: self.histogram.keys().next_back().copied().unwrap_or(0),
            histogram: self.histogram,
            fragmentation_permille: u32::try_from(permille).unwrap_or(1000),
        }
    }
}

/// Free devices of a node, or whole free cores where it has none.
fn units(node: &NodeInfo, free: &ResourceTotals) -> i64 {
    let amount = match &node.device {
        Some(device) => free.get(device),
        None => free.get(&ResourceName::new(ResourceName::CPU)) / 1000,
    };
    crate::amounts::totals::clamp(amount.max(0)).0
}
