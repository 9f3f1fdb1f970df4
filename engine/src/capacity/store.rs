//! The capacity store: clusters, their nodes, and what is assumed of pods on them.

use crate::api::facts::ClusterFact;
use crate::api::ids::ClusterName;
use crate::capacity::Room;
use crate::capacity::completion_grace::CompletionGrace;
use std::collections::BTreeMap;

/// All clusters, and their nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capacity {
    /// Nodes and pods by cluster.
    pub(crate) room: Room,
    /// Each cluster as last observed.
    pub(crate) clusters: BTreeMap<ClusterName, ClusterFact>,
    /// Pods that have ended before their jobs are seen to have.
    pub(crate) completion_grace: CompletionGrace,
}
