//! Why a request shape is infeasible, and the nodes that may change that.
//!
//! Capacity does not depend on queues: a shape that fits nowhere for one queue fits nowhere for any.
//! It is infeasible for all classes of the shape at once, until a node with freed capacity could take
//! at least one of its pods. Where it fits only on reserved nodes, that blocks the jobs that the same
//! reservations bind. A completion costs what it may make feasible, not what is pending.
//!
//! There must be no plan for an infeasible shape: whatever else may lead to one (another fleet,
//! another queue policy) makes it feasible.

use crate::api::ids::{ClusterName, JobKey, NodeName};
use std::collections::{BTreeMap, BTreeSet};
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
}

/// The generation at which more of a node last became available.
#[derive(Debug, Clone, Copy, Default)]
struct FreedAt {
    /// Pods left it.
    free: u64,
    /// Pods left it, or less of it is reserved.
    unreserved: u64,
}

impl FreedNodes {
    /// Whether there is any.
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

    /// All, by cluster.
    pub(crate) fn by_cluster(
        &self,
    ) -> impl Iterator<Item = (&ClusterName, impl Iterator<Item = &NodeName>)> {
        let clusters = self.nodes.iter();
        clusters.map(|(cluster, nodes)| (cluster, nodes.keys()))
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
    }

    fn at(&mut self, cluster: &ClusterName, node: &NodeName) -> &mut FreedAt {
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
        let freed_at = move |at: &FreedAt| if withheld { at.unreserved } else { at.free };
        nodes
            .filter(move |(_, (_, at))| generation < freed_at(at))
            .map(|(cluster, (node, _))| (cluster, node))
    }
}
