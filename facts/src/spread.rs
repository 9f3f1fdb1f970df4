//! What a propagation policy wishes for a job over several clusters: groups of clusters to spread over, and how its
//! pods are shared out among clusters.

use crate::matching::ClusterRule;
use crate::objects::ClusterFact;
use serde::{Deserialize, Serialize};
use std::fmt;

/// By what clusters are grouped. Single clusters are not meant: see `ClusterPlacement::min_clusters`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GroupBy {
    /// The cluster's provider.
    Provider,
    /// The cluster's region.
    Region,
    /// The cluster's zones: it belongs to the group of each.
    Zone,
    /// The value of a label of the cluster.
    Label(String),
}

impl GroupBy {
    /// The groups that `cluster` belongs to; none if it lacks what clusters are grouped by.
    #[must_use]
    pub fn groups<'a>(&self, cluster: &'a ClusterFact) -> Vec<&'a str> {
        let one = |value: &'a str| (!value.is_empty()).then_some(value).into_iter().collect();
        match self {
            Self::Provider => one(&cluster.provider),
            Self::Region => one(&cluster.region),
            Self::Zone => cluster.zones.iter().map(String::as_str).collect(),
            Self::Label(key) => one(cluster.labels.get(key).map_or("", String::as_str)),
        }
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider => formatter.write_str("provider"),
            Self::Region => formatter.write_str("region"),
            Self::Zone => formatter.write_str("zone"),
            Self::Label(key) => write!(formatter, "label {key}"),
        }
    }
}

/// How many groups of clusters a job may use (a spread constraint of Karmada).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupSpread {
    /// By what clusters are grouped.
    pub by: GroupBy,
    /// The fewest groups.
    pub min: u32,
    /// The most groups.
    pub max: Option<u32>,
}

/// How the pods of a job that Karmada divides are shared out. It is a wish: where clusters have too little capacity
/// for it, or bounds are exceeded, the job goes where it fits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Division {
    /// Over the fewest clusters.
    #[default]
    Fewest,
    /// By the capacity that clusters have for it (`dynamicWeight: AvailableReplicas`).
    ByCapacity,
    /// By the weights of clusters (`staticWeightList`); all weigh the same if none has a weight.
    ByWeight(Vec<ClusterWeight>),
}

/// The weight of the clusters that a rule selects. A cluster has the highest of its weights.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterWeight {
    /// The clusters.
    pub clusters: ClusterRule,
    /// Their weight.
    pub weight: u64,
}
