//! Nodes on which the pods of a job go one by one where the least has to become free.
//!
//! What jobs hold counts as what may become free; pods that belong to no job are taken to stay,
//! and so is what is kept for others. Amounts are rows here, since whole clusters are looked at
//! whenever a node grows.

use crate::amounts::resource_ids::{PodRequest, ResourceId, ResourceIds, ResourceVec};
use crate::amounts::totals::ResourceTotals;
use crate::api::charge::PoolLimit;
use crate::capacity::pack::{Packing, PlacedPods, can_run_on, leading};
use crate::capacity::{
    Capacity, ClusterCapacity, NodeInfo, PodRules, Together, combined, together,
};
use crate::cost;
use crate::overlay::Overlay;
use facts::{ClusterName, Demand, NodeName, PoolClass, Resources, Role};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Most ways to choose domains that are tried for pods which have to be in one.
const WAYS: usize = 256;

/// The usable nodes of some clusters.
#[derive(Clone)]
pub(crate) struct Sites<'a> {
    resource_ids: &'a ResourceIds,
    /// In order of name, then of cluster.
    nodes: Vec<FilledNode<'a>>,
    /// How the pods of the job have to stand to each other, by cluster; none without rules.
    rules: BTreeMap<&'a ClusterName, PodRules<'a>>,
    /// How much may be put on nodes of some pools.
    limits: Vec<SiteLimit>,
}

/// How much may still be put on the nodes that name this limit.
#[derive(Clone)]
struct SiteLimit {
    resource: ResourceId,
    left: i128,
}

/// A node while pods are put on it one by one.
#[derive(Clone)]
struct FilledNode<'a> {
    cluster: &'a ClusterName,
    node: &'a NodeInfo,
    /// Free now, less what others ahead keep and what was put on it; may go below zero.
    now: ResourceVec,
    /// The same with all pods of jobs gone; never goes below zero by what is put on it.
    cleared: ResourceVec,
    /// The pods that were put on it, by role.
    pods: Vec<(&'a Role, u32)>,
    /// The limits that count what is put on it.
    limits: Vec<usize>,
}

/// What is taken of a node.
pub(crate) struct Taken<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) node: &'a NodeName,
    pub(crate) class: &'a PoolClass,
    pub(crate) resources: Resources,
}

impl Capacity {
    /// The usable nodes of `clusters`, less what an overlay takes off them.
    pub(crate) fn sites<'a>(
        &'a self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        overlay: &Overlay,
    ) -> Sites<'a> {
        let known = clusters.into_iter().filter_map(|cluster| {
            let room = self.cluster(cluster)?;
            Some((cluster, room, overlay.nodes_of(cluster)))
        });
        let mut nodes: Vec<FilledNode<'a>> = known
            .flat_map(|(cluster, room, withheld)| {
                let usable = room.nodes().values().filter(|node| node.fact.usable);
                usable.map(move |node| {
                    let withheld = withheld.and_then(|nodes| nodes.get(&node.fact.name));
                    let empty = overlay.is_of_empty_fleet();
                    FilledNode::new(&self.resource_ids, (cluster, room), node, (withheld, empty))
                })
            })
            .collect();
        cost::node_visits(nodes.len());
        nodes.sort_by_key(|site| (&site.node.fact.name, site.cluster));
        Sites {
            resource_ids: &self.resource_ids,
            nodes,
            rules: BTreeMap::new(),
            limits: Vec::new(),
        }
    }

    /// The same sites with the rules of a job: one for each way to choose domains for those of its pods that have
    /// to be in one.
    pub(crate) fn ways<'a>(&'a self, sites: &Sites<'a>, demand: &'a Demand) -> Vec<Sites<'a>> {
        let roles = || demand.roles.iter().filter(|role| role.count > 0);
        let clusters: BTreeSet<&ClusterName> =
            sites.nodes.iter().map(|site| site.cluster).collect();
        let mut ruled = sites.clone();
        let mut choices = Vec::new();
        for cluster in clusters {
            let Some(room) = self.cluster(cluster) else {
                continue;
            };
            if let Some(rules) = PodRules::of(room, roles(), None) {
                ruled.rules.insert(cluster, rules);
            }
            for group in together(roles()) {
                let domains = room.domains_for(group, None).into_iter();
                choices.push(
                    domains
                        .map(|(domain, _)| (cluster, group, domain))
                        .collect(),
                );
            }
        }
        // Those of the last cluster change first.
        choices.reverse();
        let choose = |chosen: Vec<&(&'a ClusterName, Together<'a>, &'a str)>| {
            let mut way = ruled.clone();
            for (cluster, group, domain) in chosen {
                if let Some(rules) = way.rules.get_mut(cluster) {
                    rules.choose(*group, domain);
                }
            }
            way
        };
        combined(&choices, WAYS).map(choose).collect()
    }
}

impl<'a> Sites<'a> {
    /// The same, with no more put on nodes of some pools than these limits leave.
    pub(crate) fn within(mut self, limits: &[PoolLimit]) -> Self {
        for limit in limits {
            let Some(resource) = self.resource_ids.find(&limit.resource) else {
                continue;
            };
            let number = self.limits.len();
            self.limits.push(SiteLimit {
                resource,
                left: limit.left,
            });
            for site in &mut self.nodes {
                if limit.pools.counts(site.cluster, &site.node.fact.class) {
                    site.limits.push(number);
                }
            }
        }
        self
    }

    /// The nodes of all of these, which are of different clusters and have the same limits.
    pub(crate) fn joined(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        let joined = all.into_iter().reduce(|mut joined, other| {
            joined.nodes.extend(other.nodes);
            joined
        });
        joined.map(|mut joined| {
            joined
                .nodes
                .sort_by_key(|site| (&site.node.fact.name, site.cluster));
            joined
        })
    }

    /// Returns true if one more pod stays within the limits of a node.
    fn is_within(&self, at: usize, pod: &PodToPlace) -> bool {
        let mut limits = self.nodes[at]
            .limits
            .iter()
            .map(|number| &self.limits[*number]);
        limits.all(|limit| i128::from(pod.ask.get(limit.resource)) <= limit.left)
    }

    /// Leaves out all other nodes.
    pub(crate) fn retain(&mut self, on: impl Fn(&ClusterName, &NodeName) -> bool) {
        self.nodes
            .retain(|site| on(site.cluster, &site.node.fact.name));
    }

    /// True if a node could take so much, with all pods of jobs gone, and pods of these roles.
    pub(crate) fn could_hold(
        &self,
        (cluster, node): (&ClusterName, &NodeName),
        resources: &Resources,
        roles: &[Role],
    ) -> bool {
        let place =
            |site: &FilledNode<'a>| (&site.node.fact.name, site.cluster).cmp(&(node, cluster));
        self.nodes.binary_search_by(place).is_ok_and(|at| {
            let (site, mut roles) = (&self.nodes[at], roles.iter());
            roles.all(|role| can_run_on(role, site.node))
                && self.resource_ids.request(resources).fits(&site.cleared)
        })
    }

    /// Returns what a pod of a role requests in each cluster.
    fn asks<'b>(&self, role: &'b Role) -> PodsToPlace<'b> {
        let pod = |request| PodToPlace::new(self.resource_ids, request);
        let in_clusters = role.requests_in.iter();
        PodsToPlace {
            anywhere: pod(&role.request),
            in_clusters: in_clusters
                .map(|(cluster, request)| (cluster, pod(request)))
                .collect(),
        }
    }

    /// Puts the pods of a role one by one where the least has to become free. What has to, and
    /// how many pods do not fit.
    pub(crate) fn put(&mut self, role: &'a Role, count: u32) -> (i128, u32) {
        let asks = self.asks(role);
        let pod_in = |cluster: &ClusterName| asks.of(cluster);
        let pod_of = |sites: &Self, at: usize| pod_in(sites.nodes[at].cluster);
        let sites = self.nodes.iter().enumerate();
        cost::node_visits(self.nodes.len());
        let able = sites.filter(|(_, site)| can_run_on(role, site.node));
        let entries = able.filter_map(|(at, site)| site.entry(at, pod_in(site.cluster)));
        let mut queue: BinaryHeap<Reverse<Entry>> = entries.map(Reverse).collect();
        let mut cost = 0;
        // Nodes that may take no pod now, by the rules.
        let mut closed = Vec::new();
        let ruled = count - role.unruled.min(count);
        for placed in 0..count {
            if placed == ruled {
                queue.extend(closed.drain(..).map(Reverse));
            }
            let found = loop {
                match queue.pop() {
                    // Limits only get tighter.
                    Some(Reverse(entry)) if !self.is_within(entry.2, pod_of(self, entry.2)) => {}
                    Some(Reverse(entry)) if placed < ruled && !self.is_allowed(role, entry.2) => {
                        closed.push(entry);
                    }
                    found => break found,
                }
            };
            let Some(Reverse((shortfall, _, at))) = found else {
                return (cost, count - placed);
            };
            self.note_put(role, at);
            if PodRules::may_open(role) {
                queue.extend(closed.drain(..).map(Reverse));
            }
            let site = &mut self.nodes[at];
            let pod = pod_in(site.cluster);
            site.now.add_pods(&pod.ask, -1);
            site.cleared.add_pods(&pod.ask, -1);
            match site.pods.last_mut() {
                Some((last, pods)) if last.name == role.name => *pods += 1,
                _ => site.pods.push((role, 1)),
            }
            for number in &site.limits {
                let limit = &mut self.limits[*number];
                limit.left -= i128::from(pod.ask.get(limit.resource));
            }
            cost += shortfall;
            queue.extend(site.entry(at, pod).map(Reverse));
        }
        (cost, 0)
    }

    /// How many of so many pods of a role fit, where no limit is on any node and no rule says how they have to stand to
    /// each other: then what one node takes is nothing to the others.
    pub(crate) fn most(&self, role: &Role, count: u32) -> Option<u32> {
        if !self.limits.is_empty() || !self.rules.is_empty() {
            return None;
        }
        cost::node_visits(self.nodes.len());
        let asks = self.asks(role);
        let able = self.nodes.iter().filter(|site| can_run_on(role, site.node));
        let fitting = able.map(|site| asks.of(site.cluster).ask.count_in(&site.cleared, count));
        Some(fitting.fold(0, u32::saturating_add).min(count))
    }

    /// Returns true if the rules allow one more pod of a role on a node.
    fn is_allowed(&self, role: &Role, at: usize) -> bool {
        let site = &self.nodes[at];
        let rules = self.rules.get(site.cluster);
        rules.is_none_or(|rules| rules.most(role, site.node) > 0)
    }

    /// A pod of a role is put on a node.
    fn note_put(&mut self, role: &'a Role, at: usize) {
        let site = &self.nodes[at];
        if let Some(rules) = self.rules.get_mut(site.cluster) {
            rules.count(&role.name, site.node, 1, true);
        }
    }

    /// Returns what was put there, by cluster.
    pub(crate) fn packings(&self, demand: &Demand) -> BTreeMap<&'a ClusterName, Packing> {
        let mut packings: BTreeMap<&ClusterName, Packing> = BTreeMap::new();
        for (index, role) in demand.roles.iter().enumerate() {
            for site in &self.nodes {
                let pods = site.pods.iter().filter(|(of, _)| of.name == role.name);
                let count: u32 = pods.map(|(_, count)| *count).sum();
                if count > 0 {
                    let placed = &mut packings.entry(site.cluster).or_default().placed;
                    placed.push(PlacedPods {
                        role: index,
                        node: site.node.fact.name.clone(),
                        count,
                    });
                }
            }
        }
        packings
    }

    /// Returns what is taken, by cluster and node.
    pub(crate) fn taken(&self) -> Vec<Taken<'a>> {
        let taken = self.nodes.iter().map(|site| Taken {
            cluster: site.cluster,
            node: &site.node.fact.name,
            class: &site.node.fact.class,
            resources: site.taken(),
        });
        let taken = taken.filter(|taken| !taken.resources.is_empty());
        let mut taken: Vec<Taken<'a>> = taken.collect();
        taken.sort_by_key(|taken| (taken.cluster, taken.node));
        taken
    }
}

/// What the pods of a role request, by cluster where that is not what they request anywhere.
struct PodsToPlace<'a> {
    anywhere: PodToPlace,
    in_clusters: BTreeMap<&'a ClusterName, PodToPlace>,
}

impl PodsToPlace<'_> {
    fn of(&self, cluster: &ClusterName) -> &PodToPlace {
        self.in_clusters.get(cluster).unwrap_or(&self.anywhere)
    }
}

/// What a pod requests, and the resource that it is best known by.
struct PodToPlace {
    ask: PodRequest,
    leading: Option<ResourceId>,
}

impl PodToPlace {
    fn new(resource_ids: &ResourceIds, request: &Resources) -> Self {
        Self {
            ask: resource_ids.request(request),
            leading: leading(request).and_then(|name| resource_ids.find(name)),
        }
    }
}

/// A node in the order in which pods are put: where the least has to become free, then the
/// fewest free devices, then the name.
type Entry = (i128, i128, usize);

impl<'a> FilledNode<'a> {
    fn new(
        resource_ids: &ResourceIds,
        (cluster, room): (&'a ClusterName, &ClusterCapacity),
        node: &'a NodeInfo,
        (withheld, empty): (Option<&ResourceTotals>, bool),
    ) -> Self {
        let mut now = node.free_if(empty).clone();
        let mut cleared = node.has.clone();
        for pod in room.pods_on(&node.fact.name) {
            if pod.job().is_none() && !empty {
                cleared.add_pods(&resource_ids.request(&pod.request), -1);
            }
        }
        if let Some(withheld) = withheld {
            let withheld = resource_ids.vector_of(withheld);
            now.add_all(&withheld, -1);
            cleared.add_all(&withheld, -1);
        }
        Self {
            cluster,
            node,
            now,
            cleared,
            pods: Vec::new(),
            limits: Vec::new(),
        }
    }

    /// Returns what its pods request together.
    fn taken(&self) -> Resources {
        let mut taken = ResourceTotals::default();
        for (role, pods) in &self.pods {
            taken.add(role.request_in(self.cluster), i64::from(*pods));
        }
        taken.to_resources()
    }

    fn entry(&self, at: usize, pod: &PodToPlace) -> Option<Entry> {
        let devices = match &self.node.device {
            Some(_) => self.now.get(self.node.units),
            None => 0,
        };
        Some((self.cost(pod)?, devices, at))
    }

    /// How much has to become free for one pod more; `None` where none can ever fit.
    fn cost(&self, pod: &PodToPlace) -> Option<i128> {
        if !pod.ask.fits(&self.cleared) {
            return None;
        }
        if pod.ask.fits(&self.now) {
            return Some(0);
        }
        let shortfall = pod.leading.map_or(0, |resource| {
            let asked = i128::from(pod.ask.get(resource));
            asked - self.now.get(resource).clamp(0, asked)
        });
        Some(shortfall.max(1))
    }
}
