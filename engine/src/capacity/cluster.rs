//! The nodes and pods of one cluster, with free amounts that follow the facts.
//!
//! Loads are stored by node name apart from node facts, so pods may be observed before their node.
//! Usable nodes stand in pools and topology domains by what they have free, for best fit
//! without a scan.

use super::domains::Domains;
use super::index::Counted;
use super::pool::{Pool, PoolKey};
use crate::amounts::resource_ids::{CPU, ResourceId, ResourceIds, ResourceVec};
use facts::{JobKey, NodeFact, NodeName, PodFact, PoolClass, ResourceName, Uid};
use std::collections::{BTreeMap, BTreeSet};

/// A node, with what of it is free.
#[derive(Debug, Clone)]
pub(crate) struct NodeInfo {
    /// As observed.
    pub(crate) fact: NodeFact,
    /// The device that its pool is counted in, if it has one.
    pub(crate) device: Option<ResourceName>,
    /// The resource that its pool is counted in: the device, else CPU.
    pub(super) units: ResourceId,
    /// Allocatable less what bound pods and assumed pods take; below zero where overcommitted.
    pub(super) free: ResourceVec,
    /// Allocatable.
    pub(super) has: ResourceVec,
}

/// What bound pods and assumed pods take of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Load {
    used: ResourceVec,
    placed: ResourceVec,
    pods: BTreeSet<Uid>,
    /// Assumed pods by job.
    jobs: BTreeMap<JobKey, u32>,
}

/// One cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterCapacity {
    nodes: BTreeMap<NodeName, NodeInfo>,
    pods: BTreeMap<Uid, PodFact>,
    loads: BTreeMap<NodeName, Load>,
    pools: BTreeMap<PoolKey, Pool>,
    domains: Domains,
    /// How many nodes there are of each class.
    classes: BTreeMap<PoolClass, usize>,
    /// Usable nodes with taints.
    tainted: usize,
    /// Nodes that hold assumed pods which cannot be honoured there.
    overcommitted: BTreeSet<NodeName>,
}

/// What a change of a node did.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeChange {
    /// It has more free of something. False for a node that is new, or another.
    pub(crate) grew: bool,
    /// It came, went, or changed what it is (capacity, labels, taints, health).
    pub(crate) fleet: bool,
    /// True if it may run what it could not run before, by what it is.
    pub(crate) better: bool,
    /// True if its cluster has other domains than before.
    pub(crate) regrouped: bool,
    /// What of it counted before and after, where that is not the same.
    pub(crate) counted: Option<(Counted, Counted)>,
}

/// Returns true if a usable node may run more than before by what it is: all but fewer resources and more taints.
fn may_run_more(before: &NodeFact, now: &NodeFact) -> bool {
    let of_before = |name: &ResourceName| before.allocatable.amount_of(name);
    let mut amounts = now.allocatable.iter();
    let mut taints = before.taints.iter();
    !before.usable
        || before.class != now.class
        || before.labels != now.labels
        || before.domains != now.domains
        || amounts.any(|(name, amount)| amount > of_before(name))
        || taints.any(|taint| !now.taints.contains(taint))
}

impl ClusterCapacity {
    pub(crate) fn nodes(&self) -> &BTreeMap<NodeName, NodeInfo> {
        &self.nodes
    }

    pub(crate) fn pods(&self) -> &BTreeMap<Uid, PodFact> {
        &self.pods
    }

    /// Its pools, with their usable nodes; none without any.
    pub(crate) fn pools(&self) -> &BTreeMap<PoolKey, Pool> {
        &self.pools
    }

    /// Its topology.
    pub(crate) fn domains(&self) -> &Domains {
        &self.domains
    }

    /// True if all nodes are of one class.
    pub(crate) fn is_uniform(&self) -> bool {
        self.classes.len() < 2
    }

    /// True if a usable node has taints.
    pub(crate) fn has_taints(&self) -> bool {
        self.tainted > 0
    }

    pub(crate) fn overcommitted(&self) -> &BTreeSet<NodeName> {
        &self.overcommitted
    }

    /// The fewest free on a node with at least `least`, of the pools counted in `resource`.
    pub(super) fn tightest(&self, resource: ResourceId, least: i128) -> Option<i128> {
        let pools = self.pools.values().filter(|pool| pool.units == resource);
        pools.filter_map(|pool| pool.now.tightest(least)).min()
    }

    /// Returns what bound pods take of a node.
    pub(super) fn used(&self, node: &NodeName) -> ResourceVec {
        self.load(node, |load| load.used.clone())
    }

    /// Returns what bound pods take of one resource of a node.
    pub(super) fn used_of(&self, node: &NodeName, resource: ResourceId) -> i128 {
        self.load(node, |load| load.used.get(resource))
    }

    /// Returns what assumed pods take of a node.
    pub(super) fn placed(&self, node: &NodeName) -> ResourceVec {
        self.load(node, |load| load.placed.clone())
    }

    /// The pods bound to a node that have not ended.
    pub(crate) fn pods_on(&self, node: &NodeName) -> impl Iterator<Item = &PodFact> {
        self.loads
            .get(node)
            .into_iter()
            .flat_map(|load| &load.pods)
            .filter_map(|uid| self.pods.get(uid))
    }

    /// The jobs with assumed pods on a node.
    pub(crate) fn placed_on(&self, node: &NodeName) -> impl DoubleEndedIterator<Item = &JobKey> {
        let load = self.loads.get(node).into_iter();
        load.flat_map(|load| load.jobs.keys())
    }

    fn load<T: Default>(&self, node: &NodeName, read: impl Fn(&Load) -> T) -> T {
        self.loads.get(node).map(read).unwrap_or_default()
    }

    pub(super) fn upsert_node(
        &mut self,
        fact: NodeFact,
        resource_ids: &mut ResourceIds,
    ) -> NodeChange {
        let name = fact.name.clone();
        if self.nodes.get(&name).is_some_and(|node| node.fact == fact) {
            return NodeChange::default();
        }
        let from = Counted::of(self.nodes.get(&name));
        let before = self.nodes.get(&name);
        let better = fact.usable && before.is_none_or(|before| may_run_more(&before.fact, &fact));
        let paths = [before.map(|before| &before.fact), Some(&fact)];
        let paths = paths.map(|fact| fact.map(|fact| fact.domains.clone()).unwrap_or_default());
        let domains = self.domains_along(&paths);
        self.stand_down(&name);
        let has = resource_ids.vector(&fact.allocatable);
        let device = device_of(&fact);
        let room = NodeInfo {
            units: device
                .as_ref()
                .map_or(CPU, |device| resource_ids.intern(device)),
            device,
            free: self.free_of(&name, &has),
            has,
            fact,
        };
        *self.classes.entry(room.fact.class.clone()).or_default() += 1;
        if let Some(before) = self.nodes.insert(name.clone(), room) {
            self.uncount(&before.fact.class);
        }
        self.stand_up(&name);
        self.note_overcommitted(&name);
        NodeChange {
            grew: false,
            fleet: true,
            better,
            regrouped: domains != self.domains_along(&paths),
            counted: Some((from, Counted::of(self.nodes.get(&name)))),
        }
    }

    pub(super) fn remove_node(&mut self, name: &NodeName) -> NodeChange {
        let from = Counted::of(self.nodes.get(name));
        let paths = self.nodes.get(name).map(|node| [node.fact.domains.clone()]);
        let domains = self.domains_along(paths.as_slice().as_flattened());
        self.stand_down(name);
        let before = self.nodes.remove(name);
        if let Some(before) = &before {
            self.uncount(&before.fact.class);
        }
        self.note_overcommitted(name);
        NodeChange {
            grew: false,
            fleet: before.is_some(),
            better: false,
            regrouped: domains != self.domains_along(paths.as_slice().as_flattened()),
            counted: Some((from, Counted::default())),
        }
    }

    /// The tiers of the domains on some paths.
    fn domains_along(&self, paths: &[Vec<String>]) -> Vec<Vec<Option<u32>>> {
        let tiers = paths.iter().map(|path| self.domains.tiers_along(path));
        tiers.collect()
    }

    fn uncount(&mut self, class: &PoolClass) {
        if let Some(count) = self.classes.get_mut(class) {
            *count -= 1;
            if *count == 0 {
                self.classes.remove(class);
            }
        }
    }

    /// Replaces a pod. `None` where nothing changed; else what was there before. The node's
    /// free amounts are stale until [`Self::refresh`].
    #[expect(
        clippy::option_option,
        reason = "unchanged, new and changed are three answers"
    )]
    pub(super) fn put_pod(
        &mut self,
        fact: PodFact,
        resource_ids: &mut ResourceIds,
    ) -> Option<Option<PodFact>> {
        if self.pods.get(&fact.uid) == Some(&fact) {
            return None;
        }
        let before = self.drop_pod(&fact.uid, resource_ids);
        if let Some(node) = fact.node.as_ref().filter(|_| !fact.ended()) {
            let request = resource_ids.vector(&fact.request);
            let load = self.loads.entry(node.clone()).or_default();
            load.used.add_all(&request, 1);
            load.pods.insert(fact.uid.clone());
        }
        self.pods.insert(fact.uid.clone(), fact);
        Some(before)
    }

    /// Forgets a pod. The node's free amounts are stale until [`Self::refresh`].
    pub(super) fn drop_pod(
        &mut self,
        uid: &Uid,
        resource_ids: &mut ResourceIds,
    ) -> Option<PodFact> {
        let pod = self.pods.remove(uid)?;
        if let Some(node) = pod.node.as_ref().filter(|_| !pod.ended()) {
            let request = resource_ids.vector(&pod.request);
            self.change_load(node, |load| {
                load.used.add_all(&request, -1);
                load.pods.remove(uid);
            });
        }
        Some(pod)
    }

    /// Adds `count` assumed pods of `request` for a job to a node, or takes them off. Its free amounts
    /// are stale until [`Self::refresh`].
    pub(super) fn assumed_pod(
        &mut self,
        node: &NodeName,
        key: &JobKey,
        request: &ResourceVec,
        count: u32,
        come: bool,
    ) {
        let times = if come {
            i64::from(count)
        } else {
            -i64::from(count)
        };
        self.change_load(node, |load| {
            load.placed.add_all(request, times);
            if come {
                *load.jobs.entry(key.clone()).or_default() += count;
            } else if let Some(assumed) = load.jobs.get_mut(key) {
                *assumed = assumed.saturating_sub(count);
                if *assumed == 0 {
                    load.jobs.remove(key);
                }
            }
        });
    }

    fn change_load(&mut self, node: &NodeName, change: impl FnOnce(&mut Load)) {
        if let Some(load) = self.loads.get_mut(node) {
            change(load);
            if load.pods.is_empty() && *load == Load::default() {
                self.loads.remove(node);
            }
        } else {
            let mut load = Load::default();
            change(&mut load);
            self.loads.insert(node.clone(), load);
        }
    }

    /// Recomputes what a node has free.
    pub(super) fn refresh(&mut self, name: &NodeName) -> NodeChange {
        let mut done = NodeChange::default();
        if let Some(node) = self.nodes.get(name) {
            let free = self.free_of(name, &node.has);
            if free != node.free {
                done = self.set_free(name, free);
            }
        }
        self.note_overcommitted(name);
        done
    }

    fn set_free(&mut self, name: &NodeName, free: ResourceVec) -> NodeChange {
        let Some(node) = self.nodes.get_mut(name) else {
            return NodeChange::default();
        };
        let before = std::mem::replace(&mut node.free, free);
        if !node.fact.usable {
            return NodeChange::default();
        }
        if let Some(pool) = self.pools.get_mut(&node.pool()) {
            pool.move_node(name, &before, &node.free);
        }
        let path = &node.fact.domains;
        self.domains
            .move_node(path, node.units, &before, &node.free);
        let from = Counted {
            free: before,
            has: node.has.clone(),
        };
        NodeChange {
            grew: node.free.exceeds_somewhere(&from.free),
            fleet: false,
            better: false,
            regrouped: false,
            counted: Some((from, Counted::of(Some(node)))),
        }
    }

    fn free_of(&self, name: &NodeName, has: &ResourceVec) -> ResourceVec {
        let mut free = has.clone();
        if let Some(load) = self.loads.get(name) {
            free.add_all(&load.used, -1);
            free.add_all(&load.placed, -1);
        }
        free
    }

    /// Takes a node out of its pool and domains.
    fn stand_down(&mut self, name: &NodeName) {
        let Some(node) = self.nodes.get(name).filter(|node| node.fact.usable) else {
            return;
        };
        let key = node.pool();
        if let Some(pool) = self.pools.get_mut(&key) {
            pool.remove(name, &node.free, &node.has);
            if pool.is_empty() {
                self.pools.remove(&key);
            }
        }
        let path = &node.fact.domains;
        self.domains
            .count(path, name, node.units, &node.free, false);
        self.tainted -= usize::from(!node.fact.taints.is_empty());
    }

    /// Puts a node into its pool and domains.
    fn stand_up(&mut self, name: &NodeName) {
        let Some(node) = self.nodes.get(name).filter(|node| node.fact.usable) else {
            return;
        };
        self.pools
            .entry(node.pool())
            .or_insert_with(|| Pool::new(node.units))
            .insert(name, &node.free, &node.has);
        let path = &node.fact.domains;
        self.domains.count(path, name, node.units, &node.free, true);
        self.tainted += usize::from(!node.fact.taints.is_empty());
    }

    fn note_overcommitted(&mut self, name: &NodeName) {
        let node = self.nodes.get(name);
        let placed = || {
            let load = self.loads.get(name);
            load.is_some_and(|load| !load.placed.is_empty())
        };
        let sound = node.is_some_and(|node| node.fact.usable && !node.free.overdrawn());
        if !sound && placed() {
            self.overcommitted.insert(name.clone());
        } else if !self.overcommitted.is_empty() {
            self.overcommitted.remove(name);
        }
    }

    /// Pools and domains as they follow from the nodes.
    pub(crate) fn rebuilt(&self) -> (BTreeMap<PoolKey, Pool>, Domains) {
        let mut rebuilt = Self {
            nodes: self.nodes.clone(),
            ..Self::default()
        };
        self.nodes.keys().for_each(|name| rebuilt.stand_up(name));
        (rebuilt.pools, rebuilt.domains)
    }
}

impl NodeInfo {
    /// Returns what is free of it: now, or if no pod ran.
    pub(super) fn free_if(&self, empty: bool) -> &ResourceVec {
        if empty { &self.has } else { &self.free }
    }

    pub(super) fn pool(&self) -> PoolKey {
        PoolKey {
            class: self.fact.class.clone(),
            device: self.device.clone(),
        }
    }
}

/// The device that a node's pool is counted in: of the devices it has, the one that ranks first.
/// Nodes of class `cpu` have none.
fn device_of(fact: &NodeFact) -> Option<ResourceName> {
    if fact.class.as_str() == "cpu" {
        return None;
    }
    fact.allocatable
        .iter()
        .filter(|(name, amount)| name.is_device() && amount.0 > 0)
        .map(|(name, _)| name)
        .min_by_key(|name| name.rank_as_device())
        .cloned()
}
