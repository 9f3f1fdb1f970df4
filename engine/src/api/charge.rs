//! Charges by pool: a class of nodes in a cluster.

use facts::{ClusterName, PoolBound, PoolClass, ResourceName, Resources, Share};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Charges by cluster and class.
pub(crate) type Pools = BTreeMap<(ClusterName, PoolClass), Resources>;

/// Which pools are counted together. The default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolSelector {
    /// Their class; `None` for all.
    pub(crate) class: Option<PoolClass>,
    /// Their clusters; `None` for all.
    pub(crate) clusters: Option<BTreeSet<ClusterName>>,
}

impl PoolSelector {
    /// Returns true if what is charged in a pool counts.
    pub(crate) fn counts(&self, cluster: &ClusterName, class: &PoolClass) -> bool {
        let of_class = self.class.as_ref().is_none_or(|of| of == class);
        let named = self.clusters.as_ref();
        of_class && named.is_none_or(|named| named.contains(cluster))
    }
}

impl From<&PoolBound> for PoolSelector {
    fn from(bound: &PoolBound) -> Self {
        Self {
            class: Some(bound.class.clone()),
            clusters: bound.clusters.clone(),
        }
    }
}

impl fmt::Display for PoolSelector {
    /// `gpu`, or `gpu in a, b`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(class) = &self.class else {
            return f.write_str("all");
        };
        write!(f, "{class}")?;
        for (index, cluster) in self.clusters.iter().flatten().enumerate() {
            let before = if index == 0 { " in " } else { ", " };
            write!(f, "{before}{cluster}")?;
        }
        Ok(())
    }
}

/// How much may be charged of a resource in some of the pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolLimit {
    pub(crate) pools: PoolSelector,
    pub(crate) resource: ResourceName,
    pub(crate) left: i128,
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
