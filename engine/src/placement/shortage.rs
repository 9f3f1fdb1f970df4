//! Which resource of a cluster is too little for a role, and how much of it is free: for messages.
//!
//! Each resource is counted alone, node by node. The one of which the fewest pods would fit is short, if
//! those are fewer than needed. If none is, its resources are free on different nodes.

use crate::amounts::totals::clamp;
use crate::capacity::{NodeInfo, can_run_on, leading};
use crate::overlay::Overlay;
use crate::state::Inputs;
use facts::{Amount, ClusterName, ResourceName, Role};

/// A resource of which a cluster has too little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceShortage {
    pub(crate) resource: ResourceName,
    /// The most of it that is free on one node on which the pods may run.
    pub(crate) most: Amount,
}

/// Returns what a cluster has too little of for `wanted` pods of a role; `None` if no resource alone is short.
pub(crate) fn shortage(
    inputs: Inputs<'_>,
    cluster: &ClusterName,
    role: &Role,
    wanted: u32,
    overlay: &Overlay,
) -> Option<ResourceShortage> {
    let known = inputs.capacity.cluster(cluster)?;
    let nodes = known.nodes().values();
    let nodes: Vec<&NodeInfo> = nodes.filter(|node| can_run_on(role, node)).collect();
    let withheld = overlay.nodes_of(cluster);
    let free = |node: &NodeInfo, name: &ResourceName| {
        let free = match overlay.is_of_empty_fleet() {
            true => i128::from(node.fact.allocatable.amount_of(name).0),
            false => inputs.capacity.free_of(node, name),
        };
        let withheld = withheld.and_then(|nodes| nodes.get(&node.fact.name));
        (free - withheld.map_or(0, |withheld| withheld.get(name))).max(0)
    };
    let of = |(name, each): (&ResourceName, Amount)| {
        let free: Vec<i128> = nodes.iter().map(|node| free(node, name)).collect();
        let fits: i128 = free.iter().map(|free| free / i128::from(each.0)).sum();
        let most = free.into_iter().max().unwrap_or_default();
        (fits, most, name.clone())
    };
    let request = role.request_in(cluster);
    let asked = request.iter().filter(|(_, each)| each.0 > 0);
    let main = leading(request);
    let (fits, most, resource) = asked
        .map(of)
        .min_by_key(|(fits, _, name)| (*fits, main != Some(name)))?;
    (fits < i128::from(wanted)).then(|| ResourceShortage {
        resource,
        most: clamp(most),
    })
}
