//! What a blocked job reserves.
//!
//! A job that lacks headroom reserves its charge on every queue of its path, and nodes too as soon as these become
//! free no sooner than the headroom: else it would wait for one after the other. A job that has headroom
//! and lacks capacity reserves that headroom and the nodes where the least has to become free. One
//! gang's worth each, and never what the empty fleet or a capability could not give.

use crate::amounts::totals::ResourceTotals;
use crate::api::charge::Pools;
use crate::api::job::QueueOrder;
use crate::api::slot::ReservationSlot;
use crate::backfill::plan::ReservationPlan;
use crate::backfill::{bounded, expected_release, expected_start, feasible, plan, withheld};
use crate::overlay::Overlay;
use crate::placement::request::{Block, Gate, Request};
use crate::quota::Shortfall;
use crate::reservation::store::{ExpectedRelease, Reservation, ReservedNode};
use crate::state::Inputs;
use facts::{Demand, PoolClass, QueueName, Resources, Share, Time};
use std::collections::{BTreeMap, BTreeSet};

/// True if a job is behind all owners of reserved nodes.
pub(crate) fn is_behind(inputs: Inputs<'_>, queue: &QueueName, rank: &QueueOrder) -> bool {
    let last = feasible::last_holder(inputs);
    last.is_none_or(|last| feasible::stands_before(inputs, last, queue, rank))
}

/// True if the owner of a reservation lacks headroom, or a bound on pools leaves it too little, which was not so when
/// it was planned: it starts as late as that is free, and shorter jobs may go before.
pub(crate) fn lacks_headroom_now(inputs: Inputs<'_>, kept: &Reservation) -> bool {
    if kept.lacked_headroom() || kept.taking() {
        return false;
    }
    let usage = Overlay::default();
    let (quota, queue) = (&inputs.quota, &kept.queue);
    let lacks_total = quota.check_total(queue, &kept.charge, &usage).is_err();
    let knew_of_bound = kept.waits_for_bound() || !quota.bounds_pools(queue);
    lacks_total
        || !knew_of_bound && {
            let pools = pools_on(&kept.nodes);
            quota.check_pools(queue, &pools, &usage).is_err()
        }
}

/// The jobs in the reservation window with the shape of the request, for which no job is being evicted.
pub(crate) fn alike(
    inputs: Inputs<'_>,
    request: Request<'_>,
    front: &BTreeSet<QueueOrder>,
) -> Vec<QueueOrder> {
    let has_the_same_shape = |rank: &&QueueOrder| {
        let line = |key| inputs.jobs.line_of(key);
        match (line(&rank.key), line(&request.rank.key)) {
            (Some(one), Some(other)) => one.shape == other.shape,
            _ => false,
        }
    };
    let alike = front.iter().filter(has_the_same_shape);
    alike
        .filter(|rank| !withheld::has_pending_evictions(inputs, &rank.key))
        .cloned()
        .collect()
}

pub(crate) fn nodes_of(inputs: Inputs<'_>, demand: &Demand, shares: &[Share]) -> Vec<ReservedNode> {
    let mut nodes = Vec::new();
    for share in shares {
        let mut taken: BTreeMap<_, ResourceTotals> = BTreeMap::new();
        for slot in &share.slots {
            let role = demand.roles.iter().find(|role| role.name == slot.role);
            let sum = taken.entry(slot.node.clone()).or_default();
            if let Some(role) = role {
                sum.add(role.request_in(&share.cluster), i64::from(slot.count));
            }
        }
        let known = inputs.capacity.cluster(&share.cluster);
        nodes.extend(taken.into_iter().filter_map(|(name, sum)| {
            let node = known?.nodes().get(&name)?;
            Some(ReservedNode {
                cluster: share.cluster.clone(),
                node: name,
                class: node.fact.class.clone(),
                resources: sum.to_resources(),
            })
        }));
    }
    nodes
}

pub(crate) fn reservation(
    inputs: Inputs<'_>,
    request: Request<'_>,
    block: &Block,
) -> Option<Reservation> {
    match &block.gate {
        Gate::Never | Gate::Limit => None,
        // Its reservation stays while those ahead block it.
        Gate::Reserved => inputs.reservations.of(&request.rank.key).cloned(),
        Gate::Quota(short, pools) => {
            // A bound on some pools leaves nodes of other classes to wait for.
            let elsewhere = pools
                .as_ref()
                .and_then(|_| plan::target_elsewhere(inputs, request, short));
            Some(match elsewhere {
                Some((target, true)) => reservation_on(inputs, request, target),
                Some((target, false)) => {
                    let mut reserved = reservation_on(inputs, request, target);
                    let headroom = ReservationSlot::Headroom(short.queue.clone());
                    reserved.scopes.insert(headroom);
                    reserved
                }
                None => reservation_of_headroom(inputs, request, short, pools.as_ref()),
            })
        }
        Gate::Room => {
            let target = plan::target(inputs, request)?;
            let pools = pools_on(&target.nodes);
            let short = target
                .start
                .and_then(|free| bounded::short_at(inputs, request.queue, &pools, free));
            Some(match short {
                // Its nodes are free before: it waits for what is charged on others of their class.
                Some(short) => reservation_of_headroom(inputs, request, &short, Some(&pools)),
                None => reservation_on(inputs, request, target),
            })
        }
    }
}

/// The reservation of headroom, and of nodes that become free no sooner than that.
fn reservation_of_headroom(
    inputs: Inputs<'_>,
    request: Request<'_>,
    short: &Shortfall,
    pools: Option<&Pools>,
) -> Reservation {
    let mut scopes = BTreeSet::from([ReservationSlot::Headroom(short.queue.clone())]);
    let (headroom, releases) = expected_release::headroom_from(inputs, request.queue, short);
    let nodes = nodes_beside_headroom(inputs, request, headroom);
    scopes.extend(slots_of_owner(inputs, request, &nodes));
    let pools = match pools {
        Some(pools) if nodes.is_empty() => pools.clone(),
        _ => pools_on(&nodes),
    };
    let start = headroom.and_then(|headroom| {
        let on_nodes = expected_start::start_on(inputs, &nodes)?;
        Some(headroom.max(on_nodes))
    });
    Reservation {
        queue: request.queue.clone(),
        rank: request.rank.clone(),
        releases,
        scopes,
        charge: request.shape.total.clone(),
        pools: listed(pools),
        nodes,
        start,
        preemptor: false,
        pending_evictions: BTreeSet::new(),
    }
}

/// The nodes that are reserved for a job which lacks headroom until `headroom`. Those that become free before that
/// would only be idle, so none are reserved yet; none either where it is not known when headroom becomes free. What was
/// reserved before stays.
fn nodes_beside_headroom(
    inputs: Inputs<'_>,
    request: Request<'_>,
    headroom: Option<Time>,
) -> Vec<ReservedNode> {
    let kept = nodes_of_owner(inputs, request);
    let Some(headroom) = headroom else {
        return kept;
    };
    let Some(target) = plan::target(inputs, request) else {
        return kept;
    };
    let is_as_late = target.start.is_none_or(|start| headroom <= start);
    match is_as_late || !kept.is_empty() {
        true => target.nodes,
        false => Vec::new(),
    }
}

/// The reservation of planned nodes.
pub(crate) fn reservation_on(
    inputs: Inputs<'_>,
    request: Request<'_>,
    target: ReservationPlan,
) -> Reservation {
    let scopes = slots_of_owner(inputs, request, &target.nodes);
    let pools = pools_on(&target.nodes);
    // A bound on pools that is short is given back by ends on other nodes, too.
    let nothing = Overlay::default();
    let short = inputs.quota.check_pools(request.queue, &pools, &nothing);
    let releases = match target.start.filter(|_| short.is_err()) {
        Some(start) => expected_release::releases_until(inputs, request.queue, start),
        None => expected_release::releases(inputs, request.queue, &target.nodes),
    };
    Reservation {
        queue: request.queue.clone(),
        rank: request.rank.clone(),
        releases,
        scopes,
        charge: request.shape.total.clone(),
        pools: listed(pools),
        nodes: target.nodes,
        start: target.start,
        preemptor: false,
        pending_evictions: BTreeSet::new(),
    }
}

/// The nodes reserved for a job that are still usable.
pub(crate) fn nodes_of_owner(inputs: Inputs<'_>, request: Request<'_>) -> Vec<ReservedNode> {
    let reserved = inputs.reservations.of(&request.rank.key);
    let nodes = reserved.into_iter().flat_map(|reserved| &reserved.nodes);
    let there = |reserved: &&ReservedNode| {
        let known = inputs.capacity.cluster(&reserved.cluster);
        let node = known.and_then(|known| known.nodes().get(&reserved.node));
        node.is_some_and(|node| node.fact.usable)
    };
    nodes.filter(there).cloned().collect()
}

/// The part of `charge` beyond what these releases give back; nothing is below zero.
pub(crate) fn not_given_back<'a>(
    charge: &Resources,
    releases: impl Iterator<Item = &'a ExpectedRelease>,
) -> ResourceTotals {
    let mut given = ResourceTotals::default();
    releases.for_each(|release| given.add(&release.resources, 1));
    let mut rest = ResourceTotals::default();
    for (name, amount) in charge.iter() {
        rest.add_amount(name, (i128::from(amount.0) - given.get(name)).max(0));
    }
    rest
}

pub(crate) fn listed(pools: Pools) -> Vec<(crate::ClusterName, PoolClass, Resources)> {
    let pools = pools.into_iter();
    pools
        .map(|((cluster, class), resources)| (cluster, class, resources))
        .collect()
}

/// Returns what is reserved on nodes, by pool.
pub(crate) fn pools_on(nodes: &[ReservedNode]) -> Pools {
    let mut pools: BTreeMap<_, ResourceTotals> = BTreeMap::new();
    for reserved in nodes {
        let pool = (reserved.cluster.clone(), reserved.class.clone());
        pools.entry(pool).or_default().add(&reserved.resources, 1);
    }
    let pools = pools.into_iter();
    pools
        .map(|(pool, totals)| (pool, totals.to_resources()))
        .collect()
}

/// The slots that the owner of these nodes takes: those of its shape, whatever the classes of the nodes are. Where the
/// empty fleet could not take its shape, they are those of the nodes.
fn slots_of_owner(
    inputs: Inputs<'_>,
    request: Request<'_>,
    nodes: &[ReservedNode],
) -> BTreeSet<ReservationSlot> {
    if nodes.is_empty() {
        return BTreeSet::new();
    }
    let shape = withheld::shape_of(inputs, &request.rank.key);
    let slots = shape.and_then(|shape| inputs.pending.shapes.scopes(shape));
    match slots.filter(|slots| !slots.is_empty()) {
        Some(slots) => slots.clone(),
        None => classes_counted(nodes)
            .into_iter()
            .map(ReservationSlot::Class)
            .collect(),
    }
}

/// The classes whose reservations it counts as: those it uses devices of, else all.
pub(crate) fn classes_counted(nodes: &[ReservedNode]) -> BTreeSet<PoolClass> {
    let has_devices = |reserved: &&ReservedNode| {
        let mut resources = reserved.resources.iter();
        resources.any(|(name, amount)| name.is_device() && amount.0 > 0)
    };
    let with_devices: BTreeSet<PoolClass> = nodes
        .iter()
        .filter(has_devices)
        .map(|reserved| reserved.class.clone())
        .collect();
    if with_devices.is_empty() {
        return nodes
            .iter()
            .map(|reserved| reserved.class.clone())
            .collect();
    }
    with_devices
}
