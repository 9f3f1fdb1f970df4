//! Why a request shape is infeasible, and the nodes that may change that.
//!
//! Capacity does not depend on queues: a shape that fits nowhere for one queue fits nowhere for any.
//! It is infeasible for all classes of the shape at once, until a node with freed capacity could take
//! at least one of its pods. Where it fits only on reserved nodes, that blocks the jobs that the same
//! reservations bind. A completion costs what it may make feasible, not what is pending.
//!
//! There must be no plan for an infeasible shape: whatever else may lead to one (another fleet,
//! another queue policy) makes it feasible.

use facts::{ClusterName, JobKey, NodeName, ResourceName};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

/// Why a shape is infeasible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Infeasible {
    /// It fits nowhere.
    NoRoom,
    /// It fits only on nodes that are reserved for these jobs: that blocks the jobs that all of these
    /// reservations bind. A reservation that is dropped frees its nodes.
    Withheld(Arc<[JobKey]>),
}

/// Nodes with freed capacity, by cluster.
pub(crate) type Nodes = BTreeMap<ClusterName, BTreeSet<NodeName>>;

/// The nodes, each with its cluster.
pub(crate) fn listed(nodes: &Nodes) -> impl Iterator<Item = (&ClusterName, &NodeName)> {
    let clusters = nodes.iter();
    clusters.flat_map(|(cluster, nodes)| nodes.iter().map(move |node| (cluster, node)))
}

/// Nodes with freed capacity since all feasible shapes were evaluated, each with the generation at
/// which more of it last became free: a shape that was found infeasible later was evaluated with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreedNodes {
    nodes: BTreeMap<ClusterName, BTreeMap<NodeName, FreedAt>>,
    generation: u64,
    /// Those that are yet to be offered to infeasible shapes.
    to_offer: BTreeSet<FreedNode>,
    /// The others, by how much was free of each resource when that was last looked at: no more is now.
    offered: BTreeMap<ResourceName, BinaryHeap<(i128, FreedNode)>>,
}

/// A node with its cluster.
pub(crate) type FreedNode = (ClusterName, NodeName);

/// The generation at which more of a node last became available.
#[derive(Debug, Clone, Copy, Default)]
struct FreedAt {
    /// Pods left it.
    free: u64,
    /// Pods left it, or less of it is reserved.
    unreserved: u64,
}

impl FreedNodes {
    /// Returns true if there is any.
    pub(crate) fn is_any(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// How often nodes were freed or unreserved so far.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The clusters that have any.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.nodes.keys()
    }

    /// Returns true if some are yet to be offered to infeasible shapes.
    pub(crate) fn has_to_offer(&self) -> bool {
        !self.to_offer.is_empty()
    }

    /// The next one to offer, which is offered from now on.
    pub(super) fn take_to_offer(&mut self) -> Option<FreedNode> {
        self.to_offer.pop_first()
    }

    /// A node was offered with so much free of each resource.
    pub(super) fn note_offered(&mut self, node: &FreedNode, free: Vec<(ResourceName, i128)>) {
        for (name, amount) in free {
            let nodes = self.offered.entry(name).or_default();
            nodes.push((amount, node.clone()));
        }
    }

    /// The most that is free of a resource on a node that was offered, or nothing.
    pub(super) fn most_offered(
        &mut self,
        name: &ResourceName,
        free: impl Fn(&FreedNode) -> i128,
    ) -> i128 {
        let Some(nodes) = self.offered.get_mut(name) else {
            return 0;
        };
        while let Some((amount, node)) = nodes.pop() {
            let left = free(&node).min(amount);
            if left > 0 {
                nodes.push((left, node));
            }
            if left == amount {
                return amount;
            }
        }
        0
    }

    /// Pods left these nodes.
    pub(super) fn note_freed(&mut self, nodes: &Nodes) {
        self.generation += 1;
        let generation = self.generation;
        for (cluster, node) in listed(nodes) {
            let at = self.at(cluster, node);
            (at.free, at.unreserved) = (generation, generation);
        }
    }

    /// Less of these nodes is reserved.
    pub(super) fn note_unreserved<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = (&'a ClusterName, &'a NodeName)>,
    ) {
        self.generation += 1;
        for (cluster, node) in nodes {
            self.at(cluster, node).unreserved = self.generation;
        }
    }

    /// All feasible shapes were evaluated with them.
    pub(super) fn settle(&mut self) {
        self.nodes.clear();
        self.to_offer.clear();
        self.offered.clear();
    }

    fn at(&mut self, cluster: &ClusterName, node: &NodeName) -> &mut FreedAt {
        self.to_offer.insert((cluster.clone(), node.clone()));
        let nodes = self.nodes.entry(cluster.clone()).or_default();
        nodes.entry(node.clone()).or_default()
    }

    /// Those freed after a generation, as far as it matters to a shape that is infeasible for `why`.
    pub(crate) fn since(
        &self,
        generation: u64,
        why: &Infeasible,
    ) -> impl Iterator<Item = (&ClusterName, &NodeName)> {
        let nodes = self.nodes.iter();
        let nodes = nodes.flat_map(|(cluster, nodes)| nodes.iter().map(move |n| (cluster, n)));
        let withheld = matches!(why, Infeasible::Withheld(_));
        nodes
            .filter(move |(_, (_, at))| generation < at.matters_to(withheld))
            .map(|(cluster, (node, _))| (cluster, node))
    }

    /// Returns true if a node was freed after a generation, as far as it matters to a shape that is infeasible for
    /// `why`.
    pub(crate) fn is_since(
        &self,
        (cluster, node): &FreedNode,
        generation: u64,
        why: &Infeasible,
    ) -> bool {
        let at = self.nodes.get(cluster).and_then(|nodes| nodes.get(node));
        let withheld = matches!(why, Infeasible::Withheld(_));
        at.is_some_and(|at| generation < at.matters_to(withheld))
    }
}

impl FreedAt {
    /// The generation that matters to a shape which is infeasible for want of room, or since nodes are withheld.
    fn matters_to(&self, withheld: bool) -> u64 {
        if withheld { self.unreserved } else { self.free }
    }
}
