//! Excess: what an admitted job runs beyond its admission, after an override in the members.
//!
//! It is charged beside the shares while it is observed, even beyond capability, so that no other
//! job is admitted to the capacity that its pods use. It is not part of the admission and appears
//! in no plan and no record.

use crate::api::charge::{Pools, add_charge};
use crate::capacity::leading;
use facts::{ClusterName, PoolClass, Resources, Share};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The resources beyond the admission, by cluster.
pub(crate) type Excess = BTreeMap<ClusterName, Resources>;

/// The class that is charged where the class of what runs is not known.
pub(crate) const NOT_ADMITTED: &str = "not-admitted";

/// Adds `excess` to `pools`, in the leading class of each cluster: the member chooses the nodes of
/// these pods.
pub(crate) fn charge(pools: &mut Pools, excess: &Excess, shares: &[Share]) {
    for (cluster, resources) in excess {
        let shares = shares.iter().filter(|share| share.cluster == *cluster);
        let class = leading_class(shares.flat_map(|share| &share.charge), resources);
        let class = class.unwrap_or_else(|| PoolClass::from(NOT_ADMITTED));
        add_charge(pools, cluster, &class, resources);
    }
}

/// The class with the largest charge of the leading resource of `request`, the first by name of
/// equal ones.
pub(super) fn leading_class<'a>(
    charges: impl IntoIterator<Item = (&'a PoolClass, &'a Resources)>,
    request: &Resources,
) -> Option<PoolClass> {
    let leading = leading(request);
    let amount = |charge: &Resources| leading.map(|name| charge.amount_of(name));
    let charges = charges.into_iter();
    let most = charges.max_by_key(|(class, charge)| (amount(charge), Reverse(*class)));
    most.map(|(class, _)| class.clone())
}
