//! Which infeasible shapes may find capacity again, and which jobs that concerns.
//!
//! A shape stays infeasible until a node with freed capacity takes at least one of its pods, or until
//! reservations that withheld its nodes are dropped. A completion costs what it may have made
//! feasible, not what is pending.

use crate::amounts::hashed::HashedSet;
use crate::amounts::resources::ResourceName;
use crate::api::demand::{Role, Split};
use crate::api::ids::{ClusterName, NodeName, QueueName};
use crate::api::job::QueueOrder;
use crate::backfill::{plan, withheld};
use crate::capacity::NodeInfo;
use crate::pending::infeasible::Infeasible;
use crate::pending::shapes::{RequestShape, ShapeId, Shapes};
use crate::placement::request::Request;
use crate::quota::QueueId;
use crate::reservation::store::Reservation;
use crate::state::Inputs;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Which shapes are feasible, and what makes others infeasible.
pub(crate) struct FeasibleShapes<'a> {
    shapes: &'a Shapes,
    /// The shapes of active classes that may fit, each with the queues of these classes.
    pub(crate) feasible: BTreeMap<ShapeId, &'a HashedSet<QueueId>>,
    /// The last in order of the reservations that make a shape infeasible, preemptors left out.
    pub(crate) last: Option<&'a Reservation>,
}

impl<'a> FeasibleShapes<'a> {
    /// Whether an active class of a queue has a feasible shape.
    pub(crate) fn are_in(&self, queue: QueueId) -> bool {
        self.feasible.values().any(|queues| queues.contains(&queue))
    }

    /// Whether the shape of an active class is feasible.
    pub(crate) fn contains(&self, shape: ShapeId) -> bool {
        self.infeasible(shape).is_none()
    }

    /// Why the shape of an active class is infeasible, if it is.
    fn infeasible(&self, shape: ShapeId) -> Option<&'a Infeasible> {
        let infeasible = self.shapes.infeasible(shape);
        infeasible.filter(|_| !self.feasible.contains_key(&shape))
    }
}

/// Whether less has to become free where nodes were freed than on the nodes that are reserved for a
/// job of a queue and a shape.
pub(crate) fn nodes_are_nearer(inputs: Inputs<'_>, queue: &QueueName, shape: ShapeId) -> bool {
    let owners = inputs.reservations.holders_in(queue);
    let owners = owners.filter(|rank| withheld::shape_of(inputs, &rank.key) == Some(shape));
    let mut reserved = owners.filter_map(|rank| inputs.reservations.of(&rank.key));
    reserved.any(|reserved| {
        let mut clusters = inputs.pending.freed().clusters();
        clusters.any(|cluster| plan::lacks_less(inputs, reserved, cluster))
    })
}

/// Infeasible shapes that may fit on nodes that were freed since.
pub(crate) fn became_feasible(inputs: Inputs<'_>) -> BTreeSet<ShapeId> {
    let freed = inputs.pending.freed();
    let nodes = freed.by_cluster().flat_map(|(cluster, nodes)| {
        let room = inputs.capacity.cluster(cluster);
        nodes.filter_map(move |node| room?.nodes().get(node))
    });
    let nodes: Vec<&NodeInfo> = nodes.collect();
    if nodes.is_empty() {
        return BTreeSet::new();
    }
    let most = |name: &ResourceName| {
        let free = nodes.iter().map(|node| inputs.capacity.free_of(node, name));
        free.max().unwrap_or_default()
    };
    let infeasible_shapes = inputs.pending.shapes.infeasible_shapes();
    // A shape is listed once for each of its roles.
    let mut might: BTreeSet<ShapeId> = infeasible_shapes.might_be_on(most).collect();
    might.retain(|id| {
        let why = inputs.pending.shapes.infeasible(*id);
        why.is_some_and(|why| is_freed_for(inputs, *id, why))
    });
    might
}

/// Which shapes of active classes may fit now.
pub(crate) fn feasible<'a>(inputs: Inputs<'a>) -> FeasibleShapes<'a> {
    let infeasible_shapes = inputs.pending.shapes.infeasible_shapes();
    let might = infeasible_shapes.feasible().chain(became_feasible(inputs));
    let active = might.filter_map(|shape| Some((shape, inputs.pending.queues.active_in(shape)?)));
    let holders = inputs.reservations.with_nodes();
    let holders = holders.filter(|reserved| infeasible_shapes.are_stopped_by(&reserved.rank.key));
    FeasibleShapes {
        shapes: &inputs.pending.shapes,
        feasible: active.collect(),
        last: last_of(inputs, holders),
    }
}

/// Shapes that count as infeasible although they may fit, or the other way round.
pub(crate) fn wrongly_feasible(inputs: Inputs<'_>, feasible: &FeasibleShapes<'_>) -> Vec<String> {
    let wrong = inputs.pending.queues.active().filter(|shape| {
        let infeasible = inputs.pending.shapes.infeasible(*shape);
        let might = infeasible.is_none_or(|why| is_freed_for(inputs, *shape, why));
        might != feasible.feasible.contains_key(shape)
    });
    wrong
        .map(|shape| {
            format!("shape {shape:?}: feasible and taken for infeasible, or the other way round")
        })
        .collect()
}

/// True if no job with an infeasible shape can obtain a reservation: its slots are taken, or none is
/// possible.
pub(crate) fn is_settled(inputs: Inputs<'_>, feasible: &FeasibleShapes<'_>) -> bool {
    let most = inputs.config.reservations_per_class.max(1);
    let full = |shape: &ShapeId| {
        if inputs.pending.shapes.is_unreservable(*shape) {
            return true;
        }
        let scopes = inputs.pending.shapes.scopes(*shape).into_iter().flatten();
        let mut scopes = scopes.peekable();
        scopes.peek().is_some() && scopes.any(|scope| inputs.reservations.count(scope) >= most)
    };
    let mut in_window = inputs.pending.queues.in_window();
    in_window.all(|shape| {
        inputs.pending.queues.active_in(shape).is_none() || feasible.contains(shape) || full(&shape)
    })
}

/// Whether the shape of a pending job is feasible for it.
pub(crate) fn may_find_room(
    inputs: Inputs<'_>,
    feasible: &FeasibleShapes<'_>,
    queue: &QueueName,
    rank: &QueueOrder,
    shape: ShapeId,
) -> bool {
    match feasible.infeasible(shape) {
        None => true,
        Some(Infeasible::NoRoom) => false,
        // The owner of a reservation is never bound by all of them.
        Some(Infeasible::Withheld(_)) if inputs.reservations.of(&rank.key).is_some() => true,
        Some(Infeasible::Withheld(holders)) => {
            !inputs.pending.shapes.get(shape).is_some_and(|shape| {
                let request = Request {
                    queue,
                    rank,
                    shape,
                    verbose: false,
                };
                let mut reserved = holders.iter().filter_map(|key| inputs.reservations.of(key));
                reserved.all(|reserved| withheld::binds(inputs, reserved, request))
            })
        }
    }
}

/// Whether the owner of a reservation is before a pending job in order.
pub(crate) fn stands_before(
    inputs: Inputs<'_>,
    holder: &Reservation,
    queue: &QueueName,
    rank: &QueueOrder,
) -> bool {
    inputs
        .quota
        .compare((&holder.queue, &holder.rank), (queue, rank))
        == Ordering::Less
}

/// The last in order of the reservations with nodes, preemptors left out.
pub(crate) fn last_holder<'a>(inputs: Inputs<'a>) -> Option<&'a Reservation> {
    last_of(inputs, inputs.reservations.with_nodes())
}

/// The last in order of these reservations, preemptors left out.
pub(crate) fn last_of<'a>(
    inputs: Inputs<'_>,
    holders: impl Iterator<Item = &'a Reservation>,
) -> Option<&'a Reservation> {
    let holders = holders.filter(|reserved| !reserved.taking());
    holders.max_by(|a, b| {
        inputs
            .quota
            .compare((&a.queue, &a.rank), (&b.queue, &b.rank))
    })
}

/// Whether a pod of an infeasible shape may fit on a node that was freed since.
fn is_freed_for(inputs: Inputs<'_>, id: ShapeId, why: &Infeasible) -> bool {
    let Some(shape) = inputs.pending.shapes.get(id) else {
        return true;
    };
    let mut freed = inputs
        .pending
        .freed()
        .since(inputs.pending.shapes.infeasible_at(id), why);
    freed.any(|(cluster, node)| {
        might_hold(inputs, shape, cluster) && takes_one(inputs, shape, cluster, node, why)
    })
}

/// Whether a cluster might take a gang that cannot be divided, as far as is known without its nodes.
fn might_hold(inputs: Inputs<'_>, shape: &RequestShape, cluster: &ClusterName) -> bool {
    let demand = &shape.demand;
    let divisible = demand.natively_divisible || demand.elastic || demand.split != Split::Never;
    let mut roles = demand.roles.iter();
    divisible || roles.all(|role| inputs.capacity.might_hold(cluster, role))
}

/// Whether a node could take one pod of the shape now.
pub(crate) fn takes_one(
    inputs: Inputs<'_>,
    shape: &RequestShape,
    cluster: &ClusterName,
    name: &NodeName,
    why: &Infeasible,
) -> bool {
    let room = inputs.capacity.cluster(cluster);
    let Some(node) = room.and_then(|room| room.nodes().get(name)) else {
        return false;
    };
    let reserved = match why {
        Infeasible::NoRoom => None,
        Infeasible::Withheld(holders) => inputs.reservations.kept_for(holders, cluster, name),
    };
    let mut roles = shape.demand.roles.iter().filter(|role| role.count > 0);
    let takes = |role: &Role| inputs.capacity.takes_one(node, role, reserved.as_ref());
    // Capacity never blocks a shape that requests nothing.
    roles.clone().next().is_none() || roles.any(takes)
}
