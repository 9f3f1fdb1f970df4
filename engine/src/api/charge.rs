//! What is charged, by pool: a class of nodes in a cluster.

use crate::amounts::resources::Resources;
use crate::api::facts::Share;
use crate::api::ids::{ClusterName, PoolClass};
use std::collections::BTreeMap;

/// What is charged, by cluster and class.
pub(crate) type Pools = BTreeMap<(ClusterName, PoolClass), Resources>;

/// What is charged for `shares`, by pool.
pub(crate) fn pools_of(shares: &[Share]) -> Pools {
    let mut pools = Pools::new();
    for share in shares {
        for (class, resources) in &share.charge {
            let pool = (share.cluster.clone(), class.clone());
            let entry = pools.entry(pool).or_default();
            // Parts that cannot be counted together are charged as the larger of them.
            *entry = entry
                .checked_add(resources)
                .unwrap_or_else(|| Resources::max(entry, resources));
        }
    }
    pools
}
