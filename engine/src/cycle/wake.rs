//! How pending classes and queues are woken: the steps that `react` chooses from.
//!
//! To *activate* a class has it evaluated if its shape is feasible; to *recheck* it has it evaluated
//! once whatever is known of its shape; a *dirty* queue is asked for its head again. Nothing here
//! decides what a change wakes.

use crate::amounts::totals::ResourceTotals;
use crate::api::slot::ReservationSlot;
use crate::backfill::{offers, plan, window, withheld};
use crate::cycle::replan;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::infeasible::{Infeasible, Nodes, listed};
use crate::pending::shapes::ShapeId;
use crate::quota::QueueId;
use crate::reservation::store::Reservation;
use crate::state::{Engine, Inputs};
use facts::{ClusterName, JobKey, PoolClass, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// The most classes that are woken before a search for the next head ends.
const WOKEN_AT_ONCE: usize = 1_024;

/// Has the class of a pending job evaluated once more, whatever is known of its shape: what it
/// reserves or could reserve may be different, which says nothing of other jobs of the shape.
pub(crate) fn recheck(engine: &mut Engine, key: &JobKey) {
    if let Some(line) = withheld::line_now(engine.inputs(), key) {
        engine.pending.queues.recheck(&line.queue, line.shape);
    }
}

/// Activates the class of a pending job.
pub(crate) fn activate(engine: &mut Engine, key: &JobKey) {
    if let Some(line) = withheld::line_now(engine.inputs(), key) {
        engine.pending.queues.activate(&line.queue, line.shape);
    }
}

/// Wakes the jobs that wait for headroom of a queue, of which there may be more.
pub(crate) fn headroom_freed(engine: &mut Engine, queue: &QueueName) {
    engine
        .pending
        .queues
        .wake(&RequeueCondition::Quota(queue.clone()));
    engine.pending.queues.note_headroom(queue);
    let queues = &engine.quota;
    engine
        .pending
        .queues
        .wake_for_guarantee(queue, |resource| queues.unused_guarantee(queue, resource));
    let entitled = engine.pending.backoff.entitled_in(queue, |resource| {
        queues.unused_deserved(queue, resource).unwrap_or(i128::MIN)
    });
    for key in entitled {
        activate(engine, &key);
    }
}

/// Has the jobs parked again that were woken by headroom of a queue of which there is less now.
pub(crate) fn headroom_used(engine: &mut Engine, queue: &QueueName) {
    engine.pending.queues.note_headroom(queue);
}

/// Wakes some of the classes that are to be woken, and parks some again that were woken for headroom which is used.
/// Returns how many there were, and whether none is left.
pub(crate) fn wake_some(engine: &mut Engine) -> (usize, bool) {
    let reservable = wake_reservable(engine, WOKEN_AT_ONCE);
    let (quota, shapes) = (&engine.quota, &engine.pending.shapes);
    let queues = &mut engine.pending.queues;
    let woken = queues.wake_some(
        WOKEN_AT_ONCE - reservable,
        |queue, class, resource| quota.headroom(queue, class, resource),
        |shape| shapes.infeasible(shape).is_some(),
    );
    (reservable + woken, !engine.pending.has_to_wake())
}

/// A reservation may have become possible for some jobs, at most so many: they are in the windows of their queues
/// again. What a parked class waits for need not have changed. Returns how many there were.
fn wake_reservable(engine: &mut Engine, most: usize) -> usize {
    let mut count = 0;
    while count < most
        && let Some(key) = engine.pending.take_reservable()
    {
        count += 1;
        let Some(line) = engine.jobs.line_of(&key) else {
            continue;
        };
        let (queue, shape) = (line.queue.clone(), line.shape);
        let is_outranked = window::is_outranked(engine.inputs(), &queue, &line.rank, shape);
        engine.pending.queues.note_changed(&queue);
        if !is_outranked {
            engine.pending.queues.wake_class(&queue, shape);
        }
    }
    count
}

/// Marks a queue dirty: its head may be another job now.
pub(crate) fn mark_dirty(engine: &mut Engine, queue: &QueueName) {
    // One without a number has no jobs.
    if let Some(id) = engine.quota.id(queue) {
        let path = engine.quota.path_of(id);
        engine.pending.heads.mark_dirty(id, path);
    }
}

/// Marks every queue with a reservation window dirty: its jobs may have a better claim now. They do not
/// wait for that; to find it out without asking all queues is the business of the cache.
pub(crate) fn mark_windows_dirty(engine: &mut Engine) {
    let queues = engine.pending.queues.with_window().cloned();
    for queue in queues.collect::<Vec<_>>() {
        mark_dirty(engine, &queue);
    }
}

/// Marks the queues of jobs dirty that have a reservation and this shape: what reservations withhold makes the
/// shape infeasible for others, and not for the owner of one.
pub(crate) fn mark_owners_dirty(engine: &mut Engine, shape: ShapeId) {
    let owners = engine.reservations.iter();
    let owners =
        owners.filter(|kept| withheld::shape_of(engine.inputs(), &kept.rank.key) == Some(shape));
    let queues: BTreeSet<QueueName> = owners.map(|kept| kept.queue.clone()).collect();
    for queue in queues {
        mark_dirty(engine, &queue);
    }
}

/// Marks every queue with pending jobs dirty.
pub(crate) fn mark_all_dirty(engine: &mut Engine) {
    let queues = engine
        .pending
        .queues
        .pending_queues()
        .map(|(queue, _)| queue.clone());
    for queue in queues.collect::<Vec<_>>() {
        mark_dirty(engine, &queue);
    }
}

/// Whether a queue holds what it deserves may have changed: the priority of its reservations then
/// changes too.
pub(crate) fn note_satisfied(engine: &mut Engine, id: QueueId) {
    let unsatisfied = engine.quota.is_below_deserved(id);
    if !engine.pending.heads.note_unsatisfied(id, unsatisfied) {
        return;
    }
    let name = engine.quota.name(id).clone();
    // Its reservations have a lower priority now: others may be of higher priority than they.
    if !unsatisfied && engine.reservations.holders_in(&name).next().is_some() {
        let holders = engine.reservations.holders_in(&name);
        let kept = holders.filter_map(|rank| engine.reservations.of(&rank.key));
        let slots: BTreeSet<ReservationSlot> =
            kept.flat_map(|kept| &kept.scopes).cloned().collect();
        contest(engine, &slots);
        mark_windows_dirty(engine);
    }
    if unsatisfied {
        engine.pending.queues.wake_window(&name);
    }
    let path = engine.quota.path_of(id);
    engine.pending.heads.mark_dirty(id, path);
}

/// Notes the classes among these slots, and those that reservations connect with them: what a job gets of one depends
/// on who has the others.
pub(crate) fn contest(engine: &mut Engine, slots: &BTreeSet<ReservationSlot>) {
    let connected = engine.reservations.connected(slots).into_iter();
    let classes = connected.filter(|slot| matches!(slot, ReservationSlot::Class(_)));
    classes.for_each(|class| engine.pending.note_contested(class));
}

/// Rechecks the parked classes that wait for a slot of a class of pools, where a job of theirs has a claim to it
/// now. To be called before a head is searched: what was free in between counts for nothing.
pub(crate) fn settle_contested(engine: &mut Engine) {
    for slot in engine.pending.take_contested() {
        for (queue, shape) in engine.pending.queues.waiting_for_slot(slot) {
            if has_claim(engine.inputs(), &queue, shape) {
                engine.pending.queues.recheck(&queue, shape);
            }
        }
    }
}

/// Returns true if the slots of the first job of a class that takes none of nodes are not known to be taken.
fn has_claim(inputs: Inputs<'_>, queue: &QueueName, shape: ShapeId) -> bool {
    let pending_queue = inputs.pending.queues.pending_queue(queue);
    let mut jobs = pending_queue.into_iter().flat_map(|of| of.class(shape));
    let first = jobs.find(|rank| {
        let reserved = inputs.reservations.of(&rank.key);
        reserved.is_none_or(|reserved| reserved.nodes.is_empty() && !reserved.taking())
    });
    first.is_some_and(|rank| !window::is_outranked(inputs, queue, rank, shape))
}

/// Notes nodes with freed capacity, and wakes the classes that may fit there now.
pub(crate) fn nodes_freed(engine: &mut Engine, freed: Nodes) {
    let shapes: BTreeSet<ShapeId> = engine.pending.queues.waiting_for_capacity().collect();
    let fits = |id: &ShapeId| {
        let shape = engine.pending.shapes.get(*id);
        shape.is_some_and(|shape| {
            listed(&freed).any(|(cluster, node)| {
                offers::takes_one(engine.inputs(), shape, cluster, node, &Infeasible::NoRoom)
            })
        })
    };
    let fitting: BTreeSet<ShapeId> = shapes.into_iter().filter(fits).collect();
    engine.pending.note_freed(&freed);
    for (owner, met) in owners_met(engine.inputs(), &freed) {
        match met {
            MetBy::OwnNodes => replan::reserved_freed(engine, &owner, &freed),
            MetBy::OwnAndOthers => recheck(engine, &owner),
            MetBy::Others => {
                if let Some(entry) = withheld::line_now(engine.inputs(), &owner) {
                    let queues = &mut engine.pending.queues;
                    queues.recheck_if_moving(&entry.queue, entry.shape);
                }
            }
        }
    }
    let queues = &mut engine.pending.queues;
    queues.wake_shapes(&RequeueCondition::Room, |shape| fitting.contains(&shape));
}

/// Which freed nodes matter to the owner of a reservation on nodes.
enum MetBy {
    /// Those that are reserved for it.
    OwnNodes,
    /// Those, and others that may be nearer to what it needs; or any, where it waits for a bound on its nodes: then it
    /// may start elsewhere.
    OwnAndOthers,
    /// Others that may be nearer to what it needs, if the jobs before it do not take them.
    Others,
}

fn owners_met(inputs: Inputs<'_>, freed: &Nodes) -> Vec<(JobKey, MetBy)> {
    let all: usize = freed.values().map(BTreeSet::len).sum();
    let owners = inputs.reservations.with_nodes();
    let met = owners.filter_map(|kept| {
        let own = kept
            .nodes
            .iter()
            .filter(|node| node.is_among(freed))
            .count();
        let mut clusters = freed.keys();
        let is_nearer =
            own < all && clusters.any(|cluster| plan::might_lack_less(inputs, kept, cluster));
        let met = match (own > 0, is_nearer) {
            _ if kept.waits_for_bound() => MetBy::OwnAndOthers,
            (true, false) => MetBy::OwnNodes,
            (true, true) => MetBy::OwnAndOthers,
            (false, true) => MetBy::Others,
            (false, false) => return None,
        };
        Some((kept.rank.key.clone(), met))
    });
    met.collect()
}

/// Nodes that are not reserved any more are as good as freed, and a search for victims left them.
pub(crate) fn nodes_unreserved(engine: &mut Engine, kept: &Reservation) {
    engine.jobs.retry_scale_up();
    engine.pending.backoff.moved();
    let nodes = kept.nodes.iter().map(|node| (&node.cluster, &node.node));
    engine.pending.note_unreserved(nodes);
}

/// Offers nodes that were freed to the infeasible shapes of which they take a pod, each once, and withdraws what is
/// offered to shapes that request more than any of these nodes has left.
pub(crate) fn offer_freed(engine: &mut Engine) {
    while let Some(node) = engine.pending.take_to_offer() {
        let free = offers::free_on(engine.inputs(), &node);
        let offers = offers::offers_of(engine.inputs(), &node);
        engine.pending.note_offered(&node, free, offers);
    }
    let (capacity, pending) = (&engine.capacity, &mut engine.pending);
    let short = pending.offered_too_little(|name, node| offers::free_of(capacity, name, node));
    for shape in short {
        // Another role of it may fit still.
        match offers::offer_now(engine.inputs(), shape) {
            Some(offer) => engine.pending.offer(shape, offer),
            None => engine.pending.withdraw(shape),
        }
    }
}

/// To be called when all feasible shapes were evaluated: shapes that freed nodes may have made
/// feasible, and that were not evaluated since, are feasible from now on.
pub(crate) fn settle_freed(engine: &mut Engine) {
    if engine.pending.freed().is_any() {
        offer_freed(engine);
        let inputs = engine.inputs();
        let offered = inputs.pending.shapes.infeasible_shapes().offers().shapes();
        let feasible = offered.filter(|shape| offers::offer_now(inputs, *shape).is_some());
        let feasible: BTreeSet<ShapeId> = feasible.collect();
        engine.pending.settle_freed(&feasible);
    }
}

/// Returns what the usable nodes of a cluster have together, by class; nothing where the cluster
/// is not usable.
pub(crate) fn cluster_total(
    inputs: Inputs<'_>,
    cluster: &ClusterName,
) -> BTreeMap<PoolClass, ResourceTotals> {
    let mut total: BTreeMap<PoolClass, ResourceTotals> = BTreeMap::new();
    let fact = inputs.capacity.cluster_fact(cluster);
    let usable = fact.is_some_and(|fact| fact.usable);
    let room = inputs.capacity.cluster(cluster).filter(|_| usable);
    let nodes = room.into_iter().flat_map(|room| room.nodes().values());
    for node in nodes.filter(|node| node.fact.usable) {
        let class = total.entry(node.fact.class.clone()).or_default();
        class.add(&node.fact.allocatable, 1);
    }
    total
}
