//! Charges by pool: a class of nodes in a cluster.

use crate::amounts::resources::Resources;
use crate::api::facts::Share;
use crate::api::ids::{ClusterName, PoolClass};
use std::collections::BTreeMap;

/// Charges by cluster and class.
pub(crate) type Pools = BTreeMap<(ClusterName, PoolClass), Resources>;

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
