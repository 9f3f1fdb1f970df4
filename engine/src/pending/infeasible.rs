//! What no room can be found for is judged once, whoever asks for it.
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
    /// It fits only where nodes are kept for these jobs: that stops whoever has to leave alone
    /// what is kept for all of them. Of one that keeps nothing any more the nodes have grown.
    Withheld(Arc<[JobKey]>),
}

/// Nodes of which more has become free, by cluster.
pub(crate) type Nodes = BTreeMap<ClusterName, BTreeSet<NodeName>>;

/// Nodes of which more has become free since all that is open was judged, and when each last
/// grew, counted in growths: a shape that was shut later was judged with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreedNodes {
    pub(crate) nodes: BTreeMap<ClusterName, BTreeMap<NodeName, At>>,
    pub(crate) count: u64,
}

/// When a node grew last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct At {
    /// More of it became free.
    pub(crate) free: u64,
    /// That, or less of it is kept.
    pub(crate) open: u64,
}

impl FreedNodes {
    /// Whether any has grown since all that is open was judged.
    pub(crate) fn is_any(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Growths so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn add(&mut self, cluster: &ClusterName, node: &NodeName, free: bool) {
        let nodes = self.nodes.entry(cluster.clone()).or_default();
        let at = nodes.entry(node.clone()).or_default();
        at.open = self.count;
        if free {
            at.free = self.count;
        }
    }

    /// Those that grew after so many growths, as far as it matters to what is shut so.
    pub(crate) fn since(
        &self,
        count: u64,
        why: &Infeasible,
    ) -> impl Iterator<Item = (&ClusterName, &NodeName)> {
        let nodes = self.nodes.iter();
        let nodes = nodes.flat_map(|(cluster, nodes)| nodes.iter().map(move |n| (cluster, n)));
        let kept = matches!(why, Infeasible::Withheld(_));
        let grew = move |at: &At| count < if kept { at.open } else { at.free };
        nodes
            .filter(move |(_, (_, at))| grew(at))
            .map(|(cluster, (node, _))| (cluster, node))
    }
}
