//! What no room can be found for is evaluated once for all queues.
//!
//! Room does not know queues: a shape that finds none for one queue finds none for any, until
//! somewhere more of it becomes free. So the shape is shut, all groups of it at once, and stays
//! so until a node on which more has become free could take at least one of its pods. The same
//! holds for what is only kept for others: then those are stopped whom the same reservations
//! bind. A completion costs what it may have opened, not what waits.
//!
//! A shape that is shut must find no plan: whatever else might open it (another fleet, another
//! queue policy) opens it by name.

use crate::api::ids::{ClusterName, JobKey, NodeName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a shape is shut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Infeasible {
    /// It fits nowhere.
    NoRoom,
    /// It fits only where nodes are kept for these jobs: that blocks the jobs that have to leave alone
    /// what is kept for all of them. Of one that keeps nothing any more the nodes have grown.
    Withheld(Arc<[JobKey]>),
}

/// Nodes of which more has become free, by cluster.
pub(crate) type Nodes = BTreeMap<ClusterName, BTreeSet<NodeName>>;

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
    pub(crate) fn generation(&self) -> u64 {
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
    pub(crate) fn note_freed<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = (&'a ClusterName, &'a NodeName)>,
    ) {
        self.generation += 1;
        for (cluster, node) in nodes {
            let generation = self.generation;
            let at = self.at(cluster, node);
            (at.free, at.unreserved) = (generation, generation);
        }
    }

    /// Less of these nodes is reserved.
    pub(crate) fn note_unreserved<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = (&'a ClusterName, &'a NodeName)>,
    ) {
        self.generation += 1;
        for (cluster, node) in nodes {
            self.at(cluster, node).unreserved = self.generation;
        }
    }

    /// All feasible shapes were evaluated with them.
    pub(crate) fn settle(&mut self) {
        self.nodes.clear();
    }

    fn at(&mut self, cluster: &ClusterName, node: &NodeName) -> &mut FreedAt {
        let nodes = self.nodes.entry(cluster.clone()).or_default();
        nodes.entry(node.clone()).or_default()
    }

    /// Those freed after a generation, as far as it matters to a shape that is infeasible for `why`.
    pub(crate) fn since(
        &self,
        count: u64,
        why: &Infeasible,
    ) -> impl Iterator<Item = (&ClusterName, &NodeName)> {
        let nodes = self.nodes.iter();
        let nodes = nodes.flat_map(|(cluster, nodes)| nodes.iter().map(move |n| (cluster, n)));
        let kept = matches!(why, Infeasible::Withheld(_));
        let grew = move |at: &FreedAt| count < if kept { at.unreserved } else { at.free };
        nodes
            .filter(move |(_, (_, at))| grew(at))
            .map(|(cluster, (node, _))| (cluster, node))
    }
}
