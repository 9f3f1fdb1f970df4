//! Charges by pool: a class of nodes in a cluster.

use crate::amounts::resources::{ResourceName, Resources};
use crate::api::facts::Share;
use crate::api::ids::{ClusterName, PoolClass};
use std::collections::{BTreeMap, BTreeSet};

/// Charges by cluster and class.
pub(crate) type Pools = BTreeMap<(ClusterName, PoolClass), Resources>;

/// How much may be charged of a resource in some of the pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolLimit {
    /// The class of the pools; `None` for all.
    pub(crate) class: Option<PoolClass>,
    /// Their clusters; `None` for all.
    pub(crate) clusters: Option<BTreeSet<ClusterName>>,
    pub(crate) resource: ResourceName,
    pub(crate) left: i128,
}

impl PoolLimit {
    /// Whether what is charged in a pool counts.
    pub(crate) fn counts(&self, cluster: &ClusterName, class: &PoolClass) -> bool {
        let of_class = self.class.as_ref().is_none_or(|of| of == class);
        let named = self.clusters.as_ref();
        of_class && named.is_none_or(|named| named.contains(cluster))
    }
}

/// The charges of `shares` by pool.
pub(crate) fn pools_of(shares: &[Share]) -> Pools {
    let mut pools = Pools::new();
    for share in shares {
        for (class, resources) in &share.charge {
            add_charge(&mut pools, &share.cluster, class, resources);
        }
    }
    pools
}

/// Adds `resources` to the charge of a pool. If the sum overflows, the larger amounts count.
pub(crate) fn add_charge(
    pools: &mut Pools,
    cluster: &ClusterName,
    class: &PoolClass,
    resources: &Resources,
) {
    let pool = pools.entry((cluster.clone(), class.clone())).or_default();
    let sum = pool.checked_add(resources);
    *pool = sum.unwrap_or_else(|| Resources::max(pool, resources));
}
