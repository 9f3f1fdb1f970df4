//! What a job asks for: its roles, how it may be split, and where it may go.

use crate::amounts::resources::Resources;
use crate::api::ids::ClusterName;
use crate::api::matching::{ClusterRule, NodeTerm, Toleration};
use crate::api::reason::Reason;
use crate::plugins::Filters;
use serde::{Deserialize, Serialize};

/// One kind of pod in a job: all its pods ask for the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Role {
    /// The task's name in the template (`worker`); unique within the job.
    pub name: String,
    /// Pods that the members may start for it.
    pub count: u32,
    /// Pods it cannot start without.
    pub min: u32,
    /// What one pod requests (init containers, sidecars, overhead; one `pods`).
    pub request: Resources,
    /// Nodes it may run on: any of these terms (required node affinity and the node selector
    /// merged); empty means any node.
    pub node_terms: Vec<NodeTerm>,
    /// Taints its pods tolerate.
    pub tolerations: Vec<Toleration>,
}

/// Over how many clusters a gang may be placed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Split {
    /// In one cluster only.
    #[default]
    Never,
    /// Over several where no one cluster has room now.
    Allowed,
    /// Over several whenever that starts it sooner or leaves less unusable.
    Preferred,
}

/// How close the pods of a gang must be (Volcano `networkTopology`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Topology {
    /// Whether it must hold (`mode: hard`); else it is preferred.
    pub hard: bool,
    /// The highest tier that the gang of one cluster may span: 1 is the innermost domain of its
    /// nodes, 2 the one around it, and so on.
    pub highest_tier: u32,
}

/// What keeps the clusters of a released job to what was admitted.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Held {
    /// Nothing: an edit of its template goes straight to the members (Volcano Job, PyTorchJob, ...).
    #[default]
    Not,
    /// Karmada dispatches exactly `spec.clusters[].replicas` of it (batch/v1 Job, Deployment,
    /// StatefulSet, Pod, ...).
    ByReplicas,
    /// An override for each cluster, which is changed as its share is (an elastic Volcano Job).
    /// Its parts stay where they are: none of them is shrunk to nothing while the job runs.
    ByOverride,
}

/// What a job is made of. A million jobs have a few hundred of these.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Demand {
    /// Its roles, in the template's order; at least one.
    pub roles: Vec<Role>,
    /// Pods that must run together for the job to start (the gang's minimum).
    pub min_available: u32,
    /// Whether Karmada itself divides and holds its replicas by `spec.clusters[].replicas`
    /// (batch/v1 Job, Deployment, ... with a Divided policy): one role, any whole division.
    pub natively_divisible: bool,
    /// What keeps each cluster to the pods that were admitted for it: where something does,
    /// growth after release waits until the engine grants it.
    pub held: Held,
    /// Whether it may be started with fewer pods than its counts, down to its minimums, and
    /// grown and shrunk between them while it runs (elastic gang).
    pub elastic: bool,
    /// Over how many clusters it may be placed, beside what `natively_divisible` says.
    pub split: Split,
    /// How close its pods must be.
    pub topology: Option<Topology>,
    /// Where it may be placed.
    pub placement: ClusterPlacement,
}

impl Demand {
    /// Whether its clusters get what overrides make of its template, each its own part.
    #[must_use]
    pub fn in_parts(&self) -> bool {
        self.split != Split::Never || self.held == Held::ByOverride
    }

    /// Whether a cluster starts what was admitted for it, and not what its template says.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held != Held::Not || self.natively_divisible
    }

    /// What all its pods request together, or `None` where that cannot be counted.
    #[must_use]
    pub fn total(&self) -> Option<Resources> {
        self.roles.iter().try_fold(Resources::new(), |sum, role| {
            sum.checked_add(&role.request.checked_mul(role.count)?)
        })
    }

    /// All its pods.
    #[must_use]
    pub fn pods(&self) -> u64 {
        self.roles.iter().map(|role| u64::from(role.count)).sum()
    }
}

/// What a binding's `spec.placement` and kind say of the clusters it may go to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ClusterPlacement {
    /// `apiVersion/Kind` that a cluster must serve (`batch.volcano.sh/v1alpha1/Job`).
    pub api: String,
    /// Groups of clusters, tried in this order (`clusterAffinities`; one for
    /// `clusterAffinity`); empty means every cluster.
    pub groups: Vec<ClusterRule>,
    /// Cluster taints that are tolerated.
    pub tolerations: Vec<Toleration>,
    /// At most so many clusters (spread constraints by cluster, `maxGroups`).
    pub max_clusters: Option<u32>,
    /// At least so many clusters (`minGroups`).
    pub min_clusters: Option<u32>,
    /// Clusters that hold the data it works on, if it names any (`muster.io/data-clusters`).
    pub data_clusters: Vec<ClusterName>,
    /// Which clusters are left out, as its queue's policy chooses.
    pub filters: Filters,
}

/// Why a job may not be considered for now, as the controller found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The reason's word.
    pub reason: Reason,
    /// Field, value and what would be right.
    pub message: String,
}
