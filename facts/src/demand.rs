//! The request of a job: its roles, how it may be split, and where it may be placed.

use crate::ids::ClusterName;
use crate::matching::{ClusterRule, NodeTerm, Toleration};
use crate::plugins::Filters;
use crate::pod_rules::PodRule;
use crate::reason::Reason;
use crate::resources::Resources;
use crate::spread::{Division, GroupSpread};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One kind of pod in a job. All pods of a role have the same request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Role {
    /// The task's name in the template (`worker`); unique within the job.
    pub name: String,
    /// The number of pods.
    pub count: u32,
    /// The number of pods that the job needs to start.
    pub min: u32,
    /// The request of one pod (init containers, sidecars, overhead; one `pods`), as its template has it.
    pub request: Resources,
    /// The request of one pod in clusters that add to it (LimitRange, RuntimeClass); nowhere less than `request`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests_in: BTreeMap<ClusterName, Resources>,
    /// The nodes its pods may run on: those that match any of these terms (required node affinity
    /// merged with the node selector); empty for all.
    pub node_terms: Vec<NodeTerm>,
    /// The tolerations of its pods.
    pub tolerations: Vec<Toleration>,
    /// How its pods have to stand to the pods of the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PodRule>,
    /// The pods among them that keep no rules: those that only a rolling update starts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unruled: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Role {
    /// A role of `count` pods that start together, on any node that has no taints, without rules.
    #[must_use]
    pub fn of(name: impl Into<String>, count: u32, request: Resources) -> Self {
        Self {
            name: name.into(),
            count,
            min: count,
            request,
            requests_in: BTreeMap::new(),
            node_terms: Vec::new(),
            tolerations: Vec::new(),
            rules: Vec::new(),
            unruled: 0,
        }
    }

    /// The request of one pod in a cluster.
    #[inline]
    #[must_use]
    pub fn request_in(&self, cluster: &ClusterName) -> &Resources {
        self.requests_in.get(cluster).unwrap_or(&self.request)
    }

    /// The largest request that one pod has in any cluster, for checks before the cluster is known: no resource is
    /// less in any of them.
    #[must_use]
    pub fn largest_request(&self) -> Cow<'_, Resources> {
        let mut largest = Cow::Borrowed(&self.request);
        for request in self.requests_in.values() {
            largest = Cow::Owned(Resources::max(&largest, request));
        }
        largest
    }
}

/// Whether a gang may be placed in several clusters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Split {
    /// It is placed in one cluster.
    #[default]
    Never,
    /// It is split if it fits into no single cluster now.
    Allowed,
    /// It is split whenever that starts it sooner or strands less capacity.
    Preferred,
}

/// The topology constraint of a gang (Volcano `networkTopology`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Topology {
    /// True if it is required (`mode: hard`) or only preferred.
    pub hard: bool,
    /// The highest tier that the pods in one cluster may span: 1 is the innermost domain of a
    /// node, 2 the domain that contains it, and so on.
    pub highest_tier: u32,
}

/// What keeps an admitted job at its admitted size in each cluster.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Held {
    /// Nothing: an edit of its template reaches the members at once (Volcano Job, PyTorchJob, ...).
    #[default]
    Not,
    /// Karmada dispatches exactly `spec.clusters[].replicas` (batch/v1 Job, Deployment,
    /// StatefulSet, Pod, ...).
    ByReplicas,
    /// An override for each cluster, which follows its share (an elastic Volcano Job). Its parts
    /// stay in their clusters: none is shrunk to zero while the job runs.
    ByOverride,
}

/// The request of a job. A million jobs share a few hundred of these.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Demand {
    /// Its roles, in the template's order; at least one.
    pub roles: Vec<Role>,
    /// The gang's minimum: the number of pods that must run together for the job to start.
    pub min_available: u32,
    /// True if Karmada itself divides its replicas by `spec.clusters[].replicas` (batch/v1 Job,
    /// Deployment, ... with a Divided policy). Such a job has one role and can be divided anyhow.
    pub natively_divisible: bool,
    /// What keeps it at its admitted size. If something does, growth after admission waits until
    /// the engine grants it.
    pub held: Held,
    /// True if it may start with fewer pods than its counts, down to its minimums, and scale
    /// between them while it runs (elastic gang).
    pub elastic: bool,
    /// Whether it may be split over several clusters, apart from `natively_divisible`.
    pub split: Split,
    /// Its topology constraint.
    pub topology: Option<Topology>,
    /// The clusters it may be placed in.
    pub placement: ClusterPlacement,
}

impl Demand {
    /// Returns true if each cluster gets a part of its own, rendered by an override.
    #[inline]
    #[must_use]
    pub fn in_parts(&self) -> bool {
        self.split != Split::Never || self.held == Held::ByOverride
    }

    /// Returns true if a cluster starts the admitted number of pods, and not the template's.
    #[inline]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held != Held::Not || self.natively_divisible
    }

    /// Returns true if it may be spread over several clusters, by its kind or by its user's word.
    #[inline]
    #[must_use]
    pub fn is_divisible(&self) -> bool {
        self.natively_divisible || self.split != Split::Never
    }

    /// Returns true if some of its pods have to stand in some way to each other.
    #[inline]
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.roles.iter().any(|role| !role.rules.is_empty())
    }

    /// The request of all its pods together, each where it is largest, or `None` if the sum overflows.
    #[must_use]
    pub fn total(&self) -> Option<Resources> {
        self.roles.iter().try_fold(Resources::new(), |sum, role| {
            sum.checked_add(&role.largest_request().checked_mul(role.count)?)
        })
    }

    /// The pods that must run of a part of `part` pods, of a gang that has `all`: the part's share of the
    /// minimum, rounded up.
    #[must_use]
    pub fn min_of_part(&self, part: u32, all: u64) -> u32 {
        let min = u64::from(self.min_available) * u64::from(part);
        let min = min.div_ceil(all.max(1)).min(u64::from(part));
        u32::try_from(min).unwrap_or(part)
    }

    /// The number of all its pods.
    #[inline]
    #[must_use]
    pub fn pods(&self) -> u64 {
        self.roles.iter().map(|role| u64::from(role.count)).sum()
    }
}

/// The constraints on clusters from a binding's `spec.placement` and kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ClusterPlacement {
    /// The `apiVersion/Kind` that a cluster must serve (`batch.volcano.sh/v1alpha1/Job`).
    pub api: String,
    /// Groups of clusters, tried in this order (`clusterAffinities`; one for
    /// `clusterAffinity`); empty for every cluster.
    pub groups: Vec<ClusterRule>,
    /// The cluster taints that are tolerated.
    pub tolerations: Vec<Toleration>,
    /// The most clusters (spread constraints by cluster, `maxGroups`).
    pub max_clusters: Option<u32>,
    /// The fewest clusters (`minGroups`).
    pub min_clusters: Option<u32>,
    /// The clusters that refuse its pods, each with the reason in words that follow the cluster's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_in: BTreeMap<ClusterName, String>,
    /// The clusters that have its data, if it names any (`muster.io/data-clusters`).
    pub data_clusters: Vec<ClusterName>,
    /// The filters that its queue's policy chooses.
    pub filters: Filters,
    /// The groups of clusters to spread over (spread constraints by region, zone, provider or label).
    #[serde(default)]
    pub spread: Vec<GroupSpread>,
    /// How its pods are shared out, if Karmada divides it.
    #[serde(default)]
    pub division: Division,
}

/// Why the controller keeps a job from being evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The reason.
    pub reason: Reason,
    /// The field, its value, and which values are valid.
    pub message: String,
}
