//! Clusters, nodes and pools as the facts have them, and what runs there.

use crate::capacity::PoolSummary;
use crate::placement::eligible;
use crate::state::Inputs;
use facts::{ClusterFact, ClusterName, ClusterPlacement, JobKey, NodeFact, NodeName};
use std::collections::BTreeSet;

/// The member clusters and their nodes, read-only.
#[derive(Debug, Clone, Copy)]
pub struct FleetView<'a>(pub(crate) Inputs<'a>);

impl<'a> FleetView<'a> {
    /// The latest fact of a cluster.
    #[must_use]
    pub fn cluster(self, name: &ClusterName) -> Option<&'a ClusterFact> {
        self.0.capacity.cluster_fact(name)
    }

    /// The names of all known clusters, in order.
    pub fn cluster_names(self) -> impl Iterator<Item = &'a ClusterName> {
        self.0.capacity.cluster_names()
    }

    /// The clusters for an object without pods, such as a ConfigMap: those of the first group of `placement` that
    /// has any. They need no live view and no capacity.
    #[must_use]
    pub fn clusters_for_objects(self, placement: &ClusterPlacement) -> Vec<ClusterName> {
        eligible::clusters_for_objects(self.0, placement)
    }

    /// The fact of a node.
    #[must_use]
    pub fn node(self, cluster: &ClusterName, node: &NodeName) -> Option<&'a NodeFact> {
        let nodes = self.0.capacity.cluster(cluster)?.nodes();
        Some(&nodes.get(node)?.fact)
    }

    /// The number of known nodes of a cluster.
    #[must_use]
    pub fn nodes_in(self, cluster: &ClusterName) -> usize {
        let nodes = self.0.capacity.cluster(cluster);
        nodes.map_or(0, |nodes| nodes.nodes().len())
    }

    /// The jobs with pods on a node that have not ended; none if the node is not known, or lost.
    #[must_use]
    pub fn jobs_on(self, cluster: &ClusterName, node: &NodeName) -> BTreeSet<JobKey> {
        let is_ready = self.node(cluster, node).is_some_and(|fact| !fact.lost);
        let nodes = self.0.capacity.cluster(cluster).filter(|_| is_ready);
        let pods = nodes.into_iter().flat_map(|nodes| nodes.pods_on(node));
        pods.filter_map(|pod| pod.job().cloned()).collect()
    }

    /// All pools of all members, in order of cluster and class.
    #[must_use]
    pub fn pools(self) -> Vec<PoolSummary> {
        self.0.capacity.pools()
    }
}
