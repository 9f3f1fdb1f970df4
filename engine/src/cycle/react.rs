//! What a change wakes: which pending classes, reservations and queues are worth another evaluation.
//!
//! This is the whole policy of waking: one [`Change`] for each thing that can become different, and
//! one `match` that says what it wakes. A change that is missing here is a job that waits for ever; a
//! change that wakes too much costs time only. Stores are changed first, then `react` is called.

use crate::api::slot::ReservationSlot;
use crate::backfill::{reservation, window, withheld};
use crate::cycle::replan::{ends_moved, owners_met_by_admission, replan_after, replan_beside};
use crate::cycle::unreservable::owners_moved_back;
use crate::cycle::wake::{
    activate, contest, headroom_freed, headroom_used, mark_all_dirty, mark_windows_dirty,
    nodes_freed, nodes_unreserved, recheck,
};
use crate::cycle::{fleet, replan};
use crate::jobs::elastic::least_total;
use crate::jobs::job::PendingEntry;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::shapes::ShapeId;
use crate::quota::{ChargeOwner, Limited};
use crate::reservation::store::Reservation;
use crate::state::Engine;
use facts::{ClusterName, JobKey, NodeName, QueueName, QueueOrdering, Resources};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// What became different.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    /// Nodes, or pods on them: what the capacity store has noted since the last time.
    Capacity,
    /// A pod that was not assumed there uses more of a node of which some is reserved.
    ReservedNodeTaken(&'a ClusterName, &'a NodeName),
    /// Facts of these clusters: usable, selected, priced or sized otherwise.
    Fleet(&'a [ClusterName]),
    /// A queue's own fact, its parent or its state.
    Queue(&'a QueueName),
    /// A queue's policy.
    Policy(&'a QueueName),
    /// What a queue holds is not counted against these queues any more.
    QueueMovedFrom(&'a [QueueName]),
    /// A priority class came, went or has another value.
    PriorityClass,
    /// The priority of a job.
    Priority(&'a JobKey),
    /// What is charged to a queue; whether quota became free.
    Usage { queue: &'a QueueName, freed: bool },
    /// A job is counted in another state in a queue: others may use less of what is guaranteed to it.
    Counted(&'a QueueName),
    /// Which jobs may be preempted, or at what cost.
    Victims,
    /// A job joined the pending jobs of a queue.
    Queued(&'a PendingEntry),
    /// Users of a queue have other shares, and its order is by users.
    UsersMoved(&'a QueueName),
    /// More than before, or one more job, is charged to an owner in a queue.
    OwnerCharged {
        queue: &'a QueueName,
        owner: ChargeOwner<'a>,
    },
    /// A job was admitted from a queue; whether nodes had been reserved for it.
    Admitted {
        key: &'a JobKey,
        queue: &'a QueueName,
        had_nodes: bool,
    },
    /// A reservation was dropped.
    ReservationDropped(&'a Reservation),
    /// A reservation was set for a job, in place of the one before.
    ReservationSet {
        key: &'a JobKey,
        before: Option<&'a Reservation>,
    },
    /// Nodes that were kept as spare ones are not any more, or are kept for other jobs.
    Spares,
    /// All victims of these preemptors are gone.
    EvictionsDone(&'a [JobKey]),
    /// These jobs run on, and are expected to end at another time than before.
    EndsMoved(&'a BTreeSet<JobKey>),
    /// The clock moved: preemptors whose back-off has ended look again.
    Time,
}

/// Wakes what may go on because of `change`.
pub(crate) fn react(engine: &mut Engine, change: Change<'_>) {
    match change {
        Change::Capacity => capacity_changed(engine),
        Change::ReservedNodeTaken(cluster, node) => {
            let owners = engine.reservations.with_nodes();
            let met = owners.filter(|kept| kept.is_on(cluster, node));
            let met: Vec<JobKey> = met.map(|kept| kept.rank.key.clone()).collect();
            met.iter().for_each(|owner| recheck(engine, owner));
        }
        Change::Fleet(clusters) => {
            // A cluster that may not take them says why in its own words.
            let fleet = RequeueCondition::Fleet;
            engine.pending.queues.forget_reasons(&fleet);
            fleet::clusters_changed(engine, clusters);
        }
        Change::Queue(name) => queue_changed(engine, name),
        Change::Policy(name) => {
            engine.pending.shapes.all_feasible();
            queue_changed(engine, name);
        }
        Change::QueueMovedFrom(queues) => {
            queues
                .iter()
                .for_each(|queue| headroom_freed(engine, queue));
        }
        Change::PriorityClass => {
            engine.pending.backoff.hurry();
            mark_all_dirty(engine);
        }
        Change::Priority(key) => recheck(engine, key),
        Change::Usage { queue, freed: true } => quota_freed(engine, queue),
        Change::Usage {
            queue,
            freed: false,
        } => quota_used(engine, queue, true),
        Change::Counted(queue) => quota_used(engine, queue, false),
        Change::Victims => engine.pending.backoff.moved(),
        Change::Queued(entry) => behind_preemptor(engine, entry),
        Change::UsersMoved(queue) => users_moved(engine, queue),
        Change::OwnerCharged { queue, owner } => owner_charged(engine, queue, owner),
        Change::Admitted {
            key,
            queue,
            had_nodes,
        } => {
            capacity_changed(engine);
            owners_met_by_admission(engine, key, had_nodes);
            window_moved(engine, queue);
        }
        Change::ReservationDropped(dropped) => reservation_dropped(engine, dropped),
        Change::ReservationSet { key, before } => reservation_set(engine, key, before),
        Change::Spares => spares_changed(engine),
        Change::EvictionsDone(preemptors) => {
            for key in preemptors {
                recheck(engine, key);
                engine.changed.jobs.insert(key.clone());
            }
        }
        Change::EndsMoved(jobs) => ends_moved(engine, jobs),
        Change::Time => {
            for key in engine.pending.backoff.due(engine.now) {
                activate(engine, &key);
            }
        }
    }
}

fn capacity_changed(engine: &mut Engine) {
    replan::charges_changed(engine);
    let touched = engine.capacity.take_touched();
    if !touched.is_empty() {
        fleet::nodes_changed(engine, touched);
    }
    let freed = engine.capacity.take_grown();
    if !freed.is_empty() {
        engine.jobs.retry_scale_up();
        engine.pending.backoff.moved();
        nodes_freed(engine, freed);
    }
}

/// Wakes the jobs that exceed bounds which have changed.
pub(crate) fn bounds_changed(engine: &mut Engine) {
    for queue in engine.quota.take_changed_bounds() {
        engine
            .pending
            .queues
            .wake(&RequeueCondition::Bounds(queue.clone()));
        headroom_freed(engine, &queue);
        // A reservation may have become one with which its owner could not be admitted any more.
        let holders = engine.reservations.holders_in(&queue);
        let holders: Vec<JobKey> = holders.map(|rank| rank.key.clone()).collect();
        holders.iter().for_each(|holder| recheck(engine, holder));
        engine.changed.queues.insert(queue);
    }
}

fn queue_changed(engine: &mut Engine, name: &QueueName) {
    engine.changed.queues.insert(name.clone());
    engine.jobs.retry_scale_up();
    engine.pending.backoff.hurry();
    mark_all_dirty(engine);
    // What was reserved ahead of a job may not be ahead of it any more.
    engine.pending.retry_all_reservations();
    let quota = RequeueCondition::Quota(name.clone());
    engine.pending.queues.wake(&quota);
    bounds_changed(engine);
    // The jobs of the queue, and those of every queue below it, have other bounds now.
    let queues = engine.pending.queues.pending_queues();
    let below: Vec<QueueName> = queues
        .map(|(queue, _)| queue.clone())
        .filter(|queue| engine.quota.is_within(queue, name))
        .collect();
    engine.jobs.unsynced_mut().note_bounds_of(below);
}

/// Wakes what waits for quota of a queue or of one above it.
fn quota_freed(engine: &mut Engine, queue: &QueueName) {
    for name in engine.quota.path(queue) {
        engine.jobs.retry_scale_up();
        headroom_freed(engine, &name);
        // What was expected to become free has: as much more is reserved from now on.
        let is_below = |queue: &QueueName| engine.quota.is_within(queue, &name);
        for holder in engine.reservations.counting_on(&name, is_below) {
            recheck(engine, &holder);
        }
        note_queue_changed(engine, name);
    }
}

/// Parks what was woken by quota that is used now, and has owners evaluated that have too little of it from now on. If
/// it was charged, so are those that had too little before: more has to be given back to them.
fn quota_used(engine: &mut Engine, queue: &QueueName, charged: bool) {
    let path = engine.quota.path(queue);
    for name in &path {
        headroom_used(engine, name);
        note_queue_changed(engine, name.clone());
    }
    let waits_for =
        |slot: &ReservationSlot| matches!(slot, ReservationSlot::Headroom(of) if path.contains(of));
    let lacks = |kept: &&Reservation| {
        charged && kept.scopes.iter().any(waits_for)
            || reservation::lacks_headroom_now(engine.inputs(), kept)
    };
    let short = engine.reservations.iter().filter(lacks);
    let short: Vec<JobKey> = short.map(|kept| kept.rank.key.clone()).collect();
    short.iter().for_each(|owner| recheck(engine, owner));
    if charged {
        queue_moved_back(engine, queue, &path);
    }
}

fn note_queue_changed(engine: &mut Engine, name: QueueName) {
    if name.as_str() != crate::quota::ROOT {
        engine.changed.queues.insert(name);
    }
}

/// Where the first job of a class waits for its victims, a job that joins the class may preempt too.
fn behind_preemptor(engine: &mut Engine, entry: &PendingEntry) {
    let pending_queue = engine.pending.queues.pending_queue(&entry.queue);
    let first = pending_queue.and_then(|pending_queue| pending_queue.class(entry.shape).next());
    if first.is_some_and(|first| withheld::has_pending_evictions(engine.inputs(), &first.key)) {
        engine.pending.queues.activate(&entry.queue, entry.shape);
    }
}

/// More is charged to a queue, by an admission, an adoption, growth or pods. That moves it and those above it back in
/// the order, with the owners of reservations below them: jobs that such a reservation stopped may come before its
/// owner now. Other moves in the order wake them when the queues are ranked
/// ([`crate::cycle::unreservable`]).
fn queue_moved_back(engine: &mut Engine, queue: &QueueName, path: &[QueueName]) {
    // The first below the root: the root itself moves nowhere.
    let Some(top) = path.get(1) else {
        return;
    };
    let is_below = |kept: &&Reservation| engine.quota.is_within(&kept.queue, top);
    if engine.reservations.iter().any(|kept| is_below(&kept)) {
        engine
            .pending
            .queues
            .wake_others(&RequeueCondition::Reservation, queue);
    }
}

/// A job that has entered the window and holds no reservation is evaluated, though nothing that it
/// waits for has changed: it may get one from now on.
fn window_moved(engine: &mut Engine, queue: &QueueName) {
    for rank in window::of_queue(engine.inputs(), queue).into_jobs() {
        if engine.reservations.of(&rank.key).is_none() {
            activate(engine, &rank.key);
        }
    }
}

/// Jobs of a queue come in another order. What is reserved for one of them does not bind those that are before it now,
/// and other jobs may be in the window.
fn users_moved(engine: &mut Engine, queue: &QueueName) {
    let owners = engine.reservations.holders_in(queue);
    let owners: Vec<JobKey> = owners.map(|rank| rank.key.clone()).collect();
    if !owners.is_empty() {
        owners_moved_back(engine, &owners);
        let reservation = RequeueCondition::Reservation;
        engine.pending.queues.wake(&reservation);
        owners.iter().for_each(|owner| recheck(engine, owner));
    }
    window_moved(engine, queue);
}

/// A limit may leave a queue or an owner no further job, or an owner less than it needs: jobs of those that are ahead
/// of others, or hold what others could use, are evaluated again, and are so no more if the limit blocks them.
fn owner_charged(engine: &mut Engine, queue: &QueueName, owner: ChargeOwner<'_>) {
    let (quota, shapes) = (&engine.quota, &engine.pending.shapes);
    let is_limited = quota.limited_owners(queue) != Limited::NONE;
    let of_owner = is_limited.then(|| shapes.of_owner(owner));
    let of_owner = of_owner.unwrap_or_default();
    let least = |shape: &ShapeId| shapes.get(*shape).map(|shape| least_total(shape));
    let requests: Vec<Cow<'_, Resources>> = of_owner.iter().filter_map(least).collect();
    let mut met = BTreeSet::new();
    for name in quota.queues_at_job_limit(queue) {
        met.extend(ahead_in(engine, name).map(|shape| (name.clone(), shape)));
    }
    for name in quota.queues_at_owner_limit(queue, owner, &requests) {
        let ahead = ahead_in(engine, name).filter(|shape| of_owner.contains(shape));
        met.extend(ahead.map(|shape| (name.clone(), shape)));
    }
    for (queue, shape) in met {
        engine.pending.queues.recheck(&queue, shape);
    }
}

/// The classes with jobs that are ahead of others of a queue, or hold what others could use.
fn ahead_in<'a>(engine: &'a Engine, queue: &'a QueueName) -> impl Iterator<Item = ShapeId> + 'a {
    let strict = engine.quota.ordering(queue) == QueueOrdering::StrictFifo;
    let pending_queue = engine.pending.queues.pending_queue(queue);
    let head = pending_queue.filter(|_| strict);
    let head = head.and_then(|pending_queue| pending_queue.first_that_may_go());
    let ahead = engine.reservations.holders_in(queue).chain(head);
    let ahead = ahead.filter_map(|rank| withheld::shape_of(engine.inputs(), &rank.key));
    let window = engine.pending.queues.window(queue).into_iter().flatten();
    ahead.chain(window.copied())
}

fn reservation_dropped(engine: &mut Engine, dropped: &Reservation) {
    nodes_unreserved(engine, dropped);
    replan_after(engine, dropped);
    if window::outranked_another(engine.inputs(), dropped) {
        mark_windows_dirty(engine);
    }
    slots_left(engine, dropped, &BTreeSet::new());
    engine.changed.jobs.insert(dropped.rank.key.clone());
    engine.pending.queues.wake(&RequeueCondition::Reservation);
}

/// Asks those that wait for slots that a reservation has left: all but `kept`, and those that it connected with others.
fn slots_left(engine: &mut Engine, before: &Reservation, kept: &BTreeSet<ReservationSlot>) {
    let left: BTreeSet<ReservationSlot> = before.scopes.difference(kept).cloned().collect();
    for slot in &left {
        if matches!(slot, ReservationSlot::Headroom(_)) {
            let slot = RequeueCondition::Slot(slot.clone());
            engine.pending.queues.recheck_waiting(&slot);
        }
    }
    if !left.is_empty() {
        contest(engine, &left);
    }
}

/// A reservation takes other slots than before. A job that waits for a class may have a claim to it now, if one that is
/// before it has its turn later, since it needs a slot of another class.
fn slots_taken(engine: &mut Engine, planned: &Reservation) {
    let connected = engine.reservations.connected(&planned.scopes);
    let of_class = |slot: &&ReservationSlot| matches!(slot, ReservationSlot::Class(_));
    if connected.iter().filter(of_class).count() > 1 {
        contest(engine, &planned.scopes);
    }
}

fn reservation_set(engine: &mut Engine, key: &JobKey, before: Option<&Reservation>) {
    engine.changed.jobs.insert(key.clone());
    let Some(planned) = engine.reservations.of(key).cloned() else {
        return;
    };
    if before.is_none_or(|before| before.scopes != planned.scopes) {
        // A job that lost a slot to another reservation may have a better claim than this one.
        mark_windows_dirty(engine);
        slots_taken(engine, &planned);
    }
    if planned.preemptor {
        // A search for victims counts what preemptors will use.
        engine.pending.backoff.moved();
    }
    if let Some(before) = before {
        slots_left(engine, before, &planned.scopes);
        // What was reserved before is not any more, and the job may start later.
        nodes_unreserved(engine, before);
        if before.nodes != planned.nodes {
            replan_after(engine, before);
        }
        engine.pending.shapes.timed_feasible();
    }
    // What it will use of a guarantee is not kept free for that besides: that may leave more to others.
    if before.is_some() || engine.quota.is_guaranteed_any(&planned.queue) {
        engine.pending.queues.wake(&RequeueCondition::Reservation);
    }
    // A job behind it may have reserved its nodes until the start that it had.
    let as_late = |before: &Reservation| match (before.start, planned.start) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(before), Some(start)) => before <= start,
    };
    let as_it_was = |before: &Reservation| {
        before.nodes == planned.nodes && before.preemptor == planned.preemptor && as_late(before)
    };
    if !before.is_some_and(as_it_was) {
        replan_beside(engine, &planned);
        let clusters = planned.nodes.iter().map(|node| &node.cluster);
        engine.pending.note_taken_in(clusters);
    }
}

/// What was kept as a spare is as good as freed, and reservations may be on other nodes.
fn spares_changed(engine: &mut Engine) {
    engine.jobs.retry_scale_up();
    engine.pending.backoff.moved();
    engine.pending.queues.wake(&RequeueCondition::Reservation);
    let owners = engine.reservations.with_nodes();
    let owners: Vec<JobKey> = owners.map(|owner| owner.rank.key.clone()).collect();
    for owner in owners {
        recheck(engine, &owner);
    }
}
