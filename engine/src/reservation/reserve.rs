//! Reservations: what frees is kept for the first jobs that lack it.
//!
//! A job that lacks headroom keeps its charge free on every queue of its path; one that has
//! headroom but lacks room keeps that headroom and the nodes where the least has to become
//! free. One gang's worth each. In each queue the first job that is blocked (EASY), or as many
//! as its policy asks for, or every one up to a bound (conservative backfill); of each class of
//! pools and each short queue at most K, those with the best claims ([`crate::reservation::window`]). Never for what the empty fleet
//! or a capability could not give.
//!
//! A job ahead of the holder is never stopped by it; one behind may use what is kept only if
//! it will surely have ended before the holder's start, or if enough is left besides. Where
//! the start is not known, nobody may. Starts come from declared or predicted ends, which err:
//! then the start moves, and nobody is stopped for it.
//!
//! A preemptor's reservation ([`reserve_for_taker`]) is of another kind: jobs are being
//! evicted for it, so it stays as it is and binds everybody (but those ahead in its own queue
//! where that is strict)
//! until they are gone and its holder was judged once more, by which it is released, or goes on
//! like any other. Were it any weaker, a victim that stands first again when it is gone would
//! take its room back, and be evicted again.

use crate::amounts::resources::Resources;
use crate::amounts::tally::Tally;
use crate::api::charge::{Pools, pools_of};
use crate::api::facts::{Demand, QueueOrdering, Share};
use crate::api::ids::{JobKey, PoolClass, QueueName, Time};
use crate::api::job::QueueOrder;
use crate::capacity::ReservedNodes;
use crate::cycle::evaluate::{Block, Gate, Request};
use crate::jobs::job::PendingEntry;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::infeasible;
use crate::pending::shapes::ShapeId;
use crate::placement::empty;
use crate::quota::Withheld;
use crate::reservation::expected_release;
use crate::reservation::plan;
use crate::reservation::store::{Reservation, ReservationSlot, ReservedNode};
use crate::reservation::window;
use crate::state::{Engine, Inputs};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Keeps for a blocked job what it lacks, if it is one to be kept for.
pub(crate) fn reserve_for(engine: &mut Engine, request: Request<'_>, block: &Block) {
    let holds = engine.reservations.of(&request.rank.key);
    if holds.is_some_and(|kept| !kept.awaits.is_empty()) {
        return;
    }
    if holds.is_some_and(Reservation::taking) {
        // All are gone, and still it cannot go: it is a job like any other again.
        drop_reservation_of(engine, &request.rank.key);
    }
    let front = window::front(engine.inputs(), request.queue).jobs;
    // What cannot go as things are does not stand in front any more: others still do.
    if !matches!(block.gate, Gate::Never | Gate::Limit) {
        drop_behind(engine, request.queue, &front);
    }
    // What stops the first of a group stops the others: they are kept for by its verdict.
    let alike = alike(engine.inputs(), request, &front);
    for rank in &alike {
        let shape = shape_of(engine.inputs(), &rank.key);
        let outdone = shape
            .is_some_and(|shape| window::is_outdone(engine.inputs(), request.queue, rank, shape));
        if matches!(block.gate, Gate::Room) && outdone {
            drop_reservation_of(engine, &rank.key);
            continue;
        }
        let planned = reservation(engine.inputs(), Request { rank, ..request }, block);
        match planned {
            Some(planned) => {
                note_scopes(engine, rank, &planned);
                if window::make_way(engine, &planned) {
                    set_reservation(engine, planned);
                } else {
                    drop_reservation_of(engine, &rank.key);
                }
            }
            None => {
                drop_reservation_of(engine, &rank.key);
                note_hopeless(engine, request.queue, rank);
            }
        }
    }
}

/// Nothing can be kept for a job: nor for any that wants the same, if it stands behind all
/// who keep nodes.
fn note_hopeless(engine: &mut Engine, queue: &QueueName, rank: &QueueOrder) {
    let growths = engine.pending.freed.count();
    engine.reservations.note_hopeless(&rank.key, growths);
    let shape = shape_of(engine.inputs(), &rank.key);
    if let Some(shape) = shape.filter(|_| is_behind(engine.inputs(), queue, rank)) {
        engine.pending.shapes.note_hopeless(shape, growths);
    }
}

/// What a reservation for this shape would count as, as far as nothing is known of one: the
/// classes that it would use of the empty fleet.
pub(crate) fn guess_scopes(engine: &mut Engine, id: ShapeId) {
    let Some(shape) = engine
        .pending
        .shapes
        .get(id)
        .filter(|_| engine.pending.shapes.scopes(id).is_none())
    else {
        return;
    };
    let shares = empty::when_empty(engine.inputs(), shape, &BTreeSet::new()).unwrap_or_default();
    let charges = shares.iter().flat_map(|share| &share.charge);
    let with_devices = |charge: &Resources| {
        let mut resources = charge.iter();
        resources.any(|(name, amount)| name.is_device() && amount.0 > 0)
    };
    let all: Vec<(&PoolClass, bool)> = charges
        .map(|(class, charge)| (class, with_devices(charge)))
        .collect();
    let any = all.iter().any(|(_, devices)| *devices);
    let counted = all.into_iter().filter(|(_, devices)| *devices == any);
    let scopes = counted.map(|(class, _)| ReservationSlot::Class(class.clone()));
    let scopes: BTreeSet<ReservationSlot> = scopes.collect();
    engine.pending.shapes.note_scopes(id, &scopes);
}

fn note_scopes(engine: &mut Engine, rank: &QueueOrder, planned: &Reservation) {
    let shape = shape_of(engine.inputs(), &rank.key);
    if let Some(shape) = shape.filter(|_| !planned.nodes.is_empty()) {
        engine.pending.shapes.note_scopes(shape, &planned.scopes);
    }
}

/// Keeps for a job exactly what `shares` would take, while `victims` are evicted or
/// shrunk for it, and until it was judged once after that. Who is gone already is left out.
pub(crate) fn reserve_for_taker(
    engine: &mut Engine,
    key: &JobKey,
    shares: &[Share],
    victims: BTreeSet<JobKey>,
) {
    let Some(job) = engine.jobs.get(key) else {
        return;
    };
    let (Some(line), Some(demand)) = (&job.derived.line, &job.demand) else {
        return;
    };
    let mut victims = victims;
    victims.retain(|victim| engine.jobs.charge_of(victim).is_some());
    let pools = pools_of(shares);
    let mut charge = Tally::default();
    pools.values().for_each(|part| charge.add(part, 1));
    let planned = Reservation {
        queue: line.queue.clone(),
        rank: line.rank.clone(),
        // Its number is bounded by what there is to take, not by K.
        scopes: BTreeSet::new(),
        charge: charge.to_resources(),
        nodes: nodes_of(engine.inputs(), demand, shares),
        pools: listed(pools),
        start: None,
        preemptor: true,
        relief: Vec::new(),
        awaits: victims,
    };
    set_reservation(engine, planned);
}

/// What was evicted of a job, or shrunk, is gone: those who waited for nobody else are
/// judged again.
pub(crate) fn victim_gone(engine: &mut Engine, victim: &JobKey) {
    let ready = engine.reservations.settle(victim);
    for holder in &ready {
        rouse_job(engine, holder);
        engine.changed.jobs.insert(holder.clone());
    }
}

/// Has the group of a waiting job judged once more, whatever is known of the room for what it
/// wants: what it keeps or could keep may be another, which says nothing of others who want
/// the same.
pub(crate) fn rouse_job(engine: &mut Engine, key: &JobKey) {
    if let Some(line) = line_now(engine.inputs(), key) {
        engine.pending.queues.call(&line.queue, line.shape);
    }
}

/// Wakes the group of a waiting job that may keep or take something now, whatever room
/// there is.
pub(crate) fn ask_again(engine: &mut Engine, key: &JobKey) {
    if let Some(line) = line_now(engine.inputs(), key) {
        engine.pending.queues.rouse(&line.queue, line.shape);
    }
}

/// Who has come to stand at the front of a queue and keeps nothing yet is asked, though
/// nothing that it waits for has changed: from now on something may be kept for it.
pub(crate) fn rouse_front(engine: &mut Engine, queue: &QueueName) {
    for rank in window::front(engine.inputs(), queue).jobs {
        if engine.reservations.of(&rank.key).is_none() {
            ask_again(engine, &rank.key);
        }
    }
}

/// Whoever stood at the front before and does not any more keeps nothing.
fn drop_behind(engine: &mut Engine, queue: &QueueName, front: &BTreeSet<QueueOrder>) {
    let behind: Vec<JobKey> = engine
        .reservations
        .holders_in(queue)
        .filter(|rank| !front.contains(rank))
        .map(|rank| rank.key.clone())
        .filter(|key| !awaits_eviction(engine.inputs(), key))
        .collect();
    for key in behind {
        drop_reservation_of(engine, &key);
    }
}

/// Gives up what is kept for a job.
pub(crate) fn drop_reservation_of(engine: &mut Engine, key: &JobKey) {
    if let Some(kept) = engine.reservations.remove(key) {
        engine.jobs.retry_scale_up();
        engine.reservations.hope();
        infeasible::note_unkept(engine, &kept);
        if window::outdid(engine.inputs(), &kept) {
            engine.pending.heads.ask_fronts();
        }
        for refused in engine.reservations.take_refused(&kept.scopes) {
            rouse_job(engine, &refused);
        }
        engine.changed.jobs.insert(kept.rank.key);
        engine.pending.queues.wake(&RequeueCondition::Reservation);
    }
}

fn set_reservation(engine: &mut Engine, mut planned: Reservation) {
    let known = engine.reservations.of(&planned.rank.key);
    let past = |start: &Time| *start <= engine.now;
    let due = planned.start.as_ref().is_some_and(past);
    if let Some(start) = known.and_then(|kept| kept.start).filter(past)
        && due
    {
        // Both mean that its ends are due: nothing has changed.
        planned.start = Some(start);
    }
    if known == Some(&planned) {
        return;
    }
    engine.changed.jobs.insert(planned.rank.key.clone());
    if known.is_none_or(|known| known.scopes != planned.scopes) {
        // Whoever was outdone by another before may have a better claim than this one.
        engine.pending.heads.ask_fronts();
    }
    let as_it_was =
        |known: &Reservation| known.nodes == planned.nodes && known.preemptor == planned.preemptor;
    let elsewhere = !known.is_some_and(as_it_was);
    if let Some(known) = known.cloned() {
        // What it kept before it keeps no more, and it may start later.
        engine.reservations.hope();
        infeasible::note_unkept(engine, &known);
        engine.pending.shapes.open_timed();
        engine.pending.queues.wake(&RequeueCondition::Reservation);
    }
    if elsewhere {
        window::replan_beside(engine, &planned);
    }
    engine.reservations.set(planned);
}

/// Holders ahead of the request whose reservations it has to leave alone, in order.
pub(crate) fn reservations_ahead<'a>(inputs: Inputs<'a>, request: Request<'_>) -> Vec<&'a JobKey> {
    let mut ahead: Vec<&Reservation> = inputs
        .reservations
        .iter()
        .filter(|kept| binds(inputs, kept, request))
        .collect();
    ahead.sort_by(|a, b| {
        inputs
            .quota
            .compare((&a.queue, &a.rank), (&b.queue, &b.rank))
    });
    ahead.into_iter().map(|kept| &kept.rank.key).collect()
}

/// Whether an request has to leave a reservation alone.
pub(crate) fn binds(inputs: Inputs<'_>, kept: &Reservation, request: Request<'_>) -> bool {
    if kept.taking() {
        // Also those who would come first as things are: what is freed for it is for it.
        // In a strict queue the holder could not go before those ahead of it, so they may.
        let strict = inputs.quota.ordering(request.queue) == QueueOrdering::StrictFifo;
        let ahead = kept.queue == *request.queue && *request.rank < kept.rank;
        return kept.rank.key != request.rank.key && !(strict && ahead);
    }
    let own = inputs.reservations.of(&request.rank.key);
    if own.is_some_and(Reservation::is_served) {
        // What was freed for it is not kept for anybody who lacked something later. Until
        // then it goes nowhere else either: what others keep is theirs.
        return false;
    }
    let holder = (&kept.queue, &kept.rank);
    let behind = inputs.quota.compare(holder, (request.queue, request.rank)) == Ordering::Less;
    let gone_before = match (kept.start, request.shape.duration) {
        (Some(start), Some(duration)) => inputs.now.after(duration) <= start,
        _ => false,
    };
    behind && !gone_before
}

/// What the reservations of `holders` keep of the nodes.
pub(crate) fn nodes_kept(inputs: Inputs<'_>, holders: &[&JobKey]) -> ReservedNodes {
    let mut nodes = ReservedNodes::new();
    for kept in holders.iter().filter_map(|key| inputs.reservations.of(key)) {
        for node in &kept.nodes {
            let cluster = nodes.entry(node.cluster.clone()).or_default();
            let tally = cluster.entry(node.node.clone()).or_default();
            tally.add(&node.resources, 1);
        }
    }
    nodes
}

/// What the reservations of `holders` keep of the headroom.
pub(crate) fn headroom_kept(inputs: Inputs<'_>, holders: &[&JobKey]) -> Withheld {
    let mut all = Withheld::default();
    for kept in holders.iter().filter_map(|key| inputs.reservations.of(key)) {
        for queue in inputs.quota.path(&kept.queue) {
            let relief = kept.relief.iter().filter(|relief| relief.queue == queue);
            let relief = relief.filter(|relief| expected_release::is_to_come(inputs, relief));
            let mut given = Tally::default();
            relief.clone().for_each(|r| given.add(&r.resources, 1));
            let headroom = all.headroom.entry(queue.clone()).or_default();
            headroom.add_tally(&beyond(&kept.charge, &given), 1);
            let pools = all.pools.entry(queue.clone()).or_default();
            for (cluster, class, resources) in &kept.pools {
                let mut given = Tally::default();
                let here = relief.clone();
                here.filter(|r| r.cluster == *cluster && r.class == *class)
                    .for_each(|r| given.add(&r.resources, 1));
                let pool = (cluster.clone(), class.clone());
                let kept = pools.entry(pool).or_default();
                kept.add_tally(&beyond(resources, &given), 1);
            }
        }
    }
    all
}

/// Whether a job stands behind all who keep nodes.
pub(crate) fn is_behind(inputs: Inputs<'_>, queue: &QueueName, rank: &QueueOrder) -> bool {
    let last = infeasible::last_holder(inputs);
    last.is_none_or(|last| infeasible::stands_before(inputs, last, queue, rank))
}

/// Those of the front who want the same as the request and are not waited for already.
fn alike(
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
        .filter(|rank| !awaits_eviction(inputs, &rank.key))
        .cloned()
        .collect()
}

/// Whether jobs are being evicted for this one.
pub(crate) fn awaits_eviction(inputs: Inputs<'_>, key: &JobKey) -> bool {
    inputs.reservations.has_takers() && inputs.reservations.of(key).is_some_and(Reservation::taking)
}

/// Where a waiting job stands in line.
pub(crate) fn line_now(inputs: Inputs<'_>, key: &JobKey) -> Option<PendingEntry> {
    inputs.jobs.get(key)?.derived.line.clone()
}

/// What a waiting job wants.
pub(crate) fn shape_of(inputs: Inputs<'_>, key: &JobKey) -> Option<ShapeId> {
    Some(inputs.jobs.line_of(key)?.shape)
}

fn nodes_of(inputs: Inputs<'_>, demand: &Demand, shares: &[Share]) -> Vec<ReservedNode> {
    let mut nodes = Vec::new();
    for share in shares {
        let mut taken: BTreeMap<_, Tally> = BTreeMap::new();
        for slot in &share.slots {
            let role = demand.roles.iter().find(|role| role.name == slot.role);
            let sum = taken.entry(slot.node.clone()).or_default();
            if let Some(role) = role {
                sum.add(&role.request, i64::from(slot.count));
            }
        }
        let room = inputs.capacity.room.cluster(&share.cluster);
        nodes.extend(taken.into_iter().filter_map(|(name, sum)| {
            let node = room?.nodes().get(&name)?;
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

fn reservation(inputs: Inputs<'_>, request: Request<'_>, block: &Block) -> Option<Reservation> {
    let (scopes, pools, nodes, (start, relief)) = match &block.gate {
        Gate::Never | Gate::Limit => return None,
        // What it could use stays kept while it is stopped by those ahead of it.
        Gate::Reserved => return inputs.reservations.of(&request.rank.key).cloned(),
        Gate::Quota(short, pools) => {
            let mut scopes = BTreeSet::from([ReservationSlot::Headroom(short.queue.clone())]);
            // So do the nodes that were kept before it came to lack headroom.
            let nodes = nodes_of_holder(inputs, request);
            scopes.extend(
                classes_counted(&nodes)
                    .into_iter()
                    .map(ReservationSlot::Class),
            );
            let pools = match pools {
                Some(pools) => pools.clone(),
                None => pools_on(&nodes),
            };
            (
                scopes,
                pools,
                nodes,
                expected_release::headroom_from(inputs, request.queue, short),
            )
        }
        Gate::Room => {
            let target = plan::target(inputs, request)?;
            let classes = classes_counted(&target.nodes);
            let scopes = classes.into_iter().map(ReservationSlot::Class).collect();
            let relief = expected_release::relief(inputs, request.queue, &target.nodes);
            (
                scopes,
                pools_on(&target.nodes),
                target.nodes,
                (target.start, relief),
            )
        }
    };
    Some(Reservation {
        queue: request.queue.clone(),
        rank: request.rank.clone(),
        relief,
        scopes,
        charge: request.shape.total.clone(),
        pools: listed(pools),
        nodes,
        start,
        preemptor: false,
        awaits: BTreeSet::new(),
    })
}

/// The nodes kept for a job, as far as they are there.
fn nodes_of_holder(inputs: Inputs<'_>, request: Request<'_>) -> Vec<ReservedNode> {
    let kept = inputs.reservations.of(&request.rank.key);
    let nodes = kept.into_iter().flat_map(|kept| &kept.nodes);
    let there = |kept: &&ReservedNode| {
        let room = inputs.capacity.room.cluster(&kept.cluster);
        let node = room.and_then(|room| room.nodes().get(&kept.node));
        node.is_some_and(|node| node.fact.usable)
    };
    nodes.filter(there).cloned().collect()
}

/// What of `charge` is beyond what is given back, nothing below zero.
fn beyond(charge: &Resources, given: &Tally) -> Tally {
    let mut rest = Tally::default();
    for (name, amount) in charge.iter() {
        rest.add_amount(name, (i128::from(amount.0) - given.get(name)).max(0));
    }
    rest
}

fn listed(pools: Pools) -> Vec<(crate::ClusterName, PoolClass, Resources)> {
    let pools = pools.into_iter();
    pools
        .map(|((cluster, class), resources)| (cluster, class, resources))
        .collect()
}

/// What is kept on nodes, by pool.
fn pools_on(nodes: &[ReservedNode]) -> Pools {
    let mut pools: BTreeMap<_, Tally> = BTreeMap::new();
    for kept in nodes {
        let pool = (kept.cluster.clone(), kept.class.clone());
        pools.entry(pool).or_default().add(&kept.resources, 1);
    }
    let pools = pools.into_iter();
    pools
        .map(|(pool, tally)| (pool, tally.to_resources()))
        .collect()
}

/// The classes whose reservations it counts as: those it uses devices of, else all.
fn classes_counted(nodes: &[ReservedNode]) -> BTreeSet<PoolClass> {
    let has_devices = |kept: &&ReservedNode| {
        let mut resources = kept.resources.iter();
        resources.any(|(name, amount)| name.is_device() && amount.0 > 0)
    };
    let with_devices: BTreeSet<PoolClass> = nodes
        .iter()
        .filter(has_devices)
        .map(|kept| kept.class.clone())
        .collect();
    if with_devices.is_empty() {
        return nodes.iter().map(|kept| kept.class.clone()).collect();
    }
    with_devices
}
