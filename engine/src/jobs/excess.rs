//! What a released job runs beyond its admission: somebody overrode what its members get
//! after it was charged.
//!
//! The excess is charged beside the shares for as long as it is observed, also beyond capability, so
//! that nothing else is released into what its pods use. It is not part of the admission: nothing
//! is planned, grown or recorded by it.

use crate::amounts::resources::Resources;
use crate::api::charge::Pools;
use crate::api::facts::Share;
use crate::api::ids::{ClusterName, PoolClass};
use crate::capacity::leading;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// By cluster, what is asked for beyond the admission.
pub(crate) type Excess = BTreeMap<ClusterName, Resources>;

/// The class that is charged in a cluster where nothing was admitted.
const NOT_ADMITTED: &str = "not-admitted";

/// Adds `excess` to what is charged, in the class of each share that has most of what the excess
/// is best known by: on which nodes its pods go is the member's choice.
pub(crate) fn charge(pools: &mut Pools, excess: &Excess, shares: &[Share]) {
    for (cluster, resources) in excess {
        let leading = leading(resources);
        let classes = shares.iter().filter(|share| share.cluster == *cluster);
        let class = classes
            .flat_map(|share| &share.charge)
            .max_by_key(|(class, charge)| {
                let has = leading.map(|name| charge.amount_of(name));
                (has, Reverse((*class).clone()))
            })
            .map_or_else(|| PoolClass::from(NOT_ADMITTED), |(class, _)| class.clone());
        let entry = pools.entry((cluster.clone(), class)).or_default();
        // What cannot be counted together is charged as the larger.
        *entry = entry
            .checked_add(resources)
            .unwrap_or_else(|| Resources::max(entry, resources));
    }
}
