//! Which infeasible shapes a freed node may take: each is offered once, to all that it takes a pod of, and what is
//! offered is checked against what is free now.

use crate::capacity::{Capacity, NodeInfo, leading};
use crate::pending::infeasible::{FreedNode, Infeasible};
use crate::pending::infeasible_shapes::{LeadingRequest, requests};
use crate::pending::offers::Offer;
use crate::pending::shapes::{RequestShape, ShapeId};
use crate::state::Inputs;
use facts::{ClusterName, NodeName, ResourceName, Role};
use std::collections::BTreeSet;

/// Returns what a freed node has free now, of each resource of which it has any.
pub(crate) fn free_on(
    inputs: Inputs<'_>,
    (cluster, node): &FreedNode,
) -> Vec<(ResourceName, i128)> {
    let free = info_of(&inputs.capacity, cluster, node).map(|node| inputs.capacity.free_on(node));
    let free = free.unwrap_or_default();
    let some = free.iter().filter(|(_, amount)| *amount > 0);
    some.map(|(name, amount)| (name.clone(), amount)).collect()
}

/// How much a freed node has free now of a resource.
pub(crate) fn free_of(capacity: &Capacity, name: &ResourceName, node: &FreedNode) -> i128 {
    let node = info_of(capacity, &node.0, &node.1);
    node.map_or(0, |node| capacity.free_of(node, name))
}

/// The infeasible shapes without an offer of which a freed node takes a pod now.
pub(crate) fn offers_of(inputs: Inputs<'_>, freed: &FreedNode) -> Vec<(ShapeId, Offer)> {
    let (cluster, name) = freed;
    let Some(node) = info_of(&inputs.capacity, cluster, name) else {
        return Vec::new();
    };
    let free = |name: &ResourceName| inputs.capacity.free_of(node, name);
    let shapes = inputs.pending.shapes.infeasible_shapes().might_be_on(free);
    let offers = shapes.filter_map(|id| {
        let why = inputs.pending.shapes.infeasible(id)?;
        let at = inputs.pending.shapes.infeasible_at(id);
        let is_since = inputs.pending.freed().is_since(freed, at, why);
        let offer = || offer_on(inputs, id, why, (cluster, name));
        Some((id, is_since.then(offer)??))
    });
    offers.collect()
}

/// A freed node that takes a pod of an infeasible shape now, if there is one.
pub(crate) fn offer_now(inputs: Inputs<'_>, id: ShapeId) -> Option<Offer> {
    let why = inputs.pending.shapes.infeasible(id)?;
    let offered = inputs.pending.shapes.infeasible_shapes().offers().of(id);
    let as_offered =
        offered.and_then(|offer| offer_on(inputs, id, why, (&offer.cluster, &offer.node)));
    as_offered.or_else(|| {
        let at = inputs.pending.shapes.infeasible_at(id);
        let mut freed = inputs.pending.freed().since(at, why);
        freed.find_map(|at| offer_on(inputs, id, why, at))
    })
}

/// A node that takes a pod of an infeasible shape now.
fn offer_on(
    inputs: Inputs<'_>,
    id: ShapeId,
    why: &Infeasible,
    (cluster, node): (&ClusterName, &NodeName),
) -> Option<Offer> {
    let shape = inputs.pending.shapes.get(id)?;
    if !might_hold(inputs, shape, cluster) {
        return None;
    }
    let leading = pod_on(inputs, shape, cluster, node, why)?;
    Some(Offer {
        cluster: cluster.clone(),
        node: node.clone(),
        leading: leading.map(|(name, amount)| (name.clone(), amount)),
    })
}

fn info_of<'a>(
    capacity: &'a Capacity,
    cluster: &ClusterName,
    node: &NodeName,
) -> Option<&'a NodeInfo> {
    capacity.cluster(cluster)?.nodes().get(node)
}

/// Returns true if a cluster might take a gang, with others if it may be divided, as far as is known without nodes.
fn might_hold(inputs: Inputs<'_>, shape: &RequestShape, cluster: &ClusterName) -> bool {
    let (capacity, mut roles) = (&inputs.capacity, shape.demand.roles.iter());
    // It may start with fewer pods.
    if shape.demand.elastic {
        return true;
    }
    match shape.demand.is_divisible() {
        true => roles.all(|role| capacity.all_might_hold(role)),
        false => roles.all(|role| capacity.might_hold(cluster, role)),
    }
}

/// The infeasible shapes of which it is not known that the empty fleet has enough for all pods.
pub(crate) fn may_exceed_fleet(inputs: Inputs<'_>) -> BTreeSet<ShapeId> {
    let is_enough = |name: &ResourceName, each: LeadingRequest, count: u32| {
        let LeadingRequest { amount, divisible } = each;
        let capacity = &inputs.capacity;
        capacity.is_large_enough((name, amount), count, divisible)
    };
    let shapes = &inputs.pending.shapes;
    let offered = shapes.infeasible_shapes().offers().shapes();
    let exceeding = offered.filter(|id| {
        let requests = shapes
            .get(*id)
            .into_iter()
            .flat_map(|shape| requests(shape));
        let mut requests = requests.flatten();
        requests.any(|(name, each, count)| !is_enough(name, each, count))
    });
    let short = shapes.infeasible_shapes().short(is_enough);
    exceeding.chain(short).collect()
}

/// Returns true if a node could take one pod of the shape now.
pub(crate) fn takes_one(
    inputs: Inputs<'_>,
    shape: &RequestShape,
    cluster: &ClusterName,
    node: &NodeName,
    why: &Infeasible,
) -> bool {
    pod_on(inputs, shape, cluster, node, why).is_some()
}

/// Returns what a pod of the shape of which a node could take one now requests of its leading resource; nothing within
/// if it requests none.
fn pod_on<'a>(
    inputs: Inputs<'_>,
    shape: &'a RequestShape,
    cluster: &ClusterName,
    name: &NodeName,
    why: &Infeasible,
) -> Option<Option<(&'a ResourceName, i64)>> {
    let node = info_of(&inputs.capacity, cluster, name)?;
    let reserved = match why {
        Infeasible::NoRoom => None,
        Infeasible::Withheld(holders) => inputs.reservations.kept_for(holders, cluster, name),
    };
    let mut roles = shape.demand.roles.iter().filter(|role| role.count > 0);
    let takes = |role: &&Role| inputs.capacity.takes_one(node, role, reserved.as_ref());
    // Capacity never blocks a shape that requests nothing.
    if roles.clone().next().is_none() {
        return Some(None);
    }
    roles.find(takes).map(|role| {
        let name = leading(&role.request)?;
        Some((name, role.request.amount_of(name).0))
    })
}
