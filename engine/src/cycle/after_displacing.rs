//! Whether a job keeps the reservation for which it displaces others.
//!
//! The jobs that are before it in the order of queues are planned without those others: they may take the nodes that it
//! counts on. Then its reservation would be dropped, the others would come back, and it would displace them again, in a
//! circle: so it displaces none. Jobs before it that have no reservation may get one, since those others kept their
//! nodes or their slots.

use crate::api::job::QueueOrder;
use crate::api::slot::ReservationSlot;
use crate::backfill::{plan, reservation, window, withheld};
use crate::cycle::displace::{giving_way, left_without};
use crate::cycle::replan::owners_after;
use crate::jobs::elastic;
use crate::pending::shapes::RequestShape;
use crate::placement::request::Request;
use crate::reservation::store::Reservation;
use crate::state::{Engine, Inputs};
use facts::{JobKey, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// So many jobs without a reservation are planned at most.
const TRIED: usize = 16;

type PlaceInOrder = (QueueName, QueueOrder);

/// Whether a planned reservation is possible still once others have lost a slot. Adds to `plans` how many were made.
pub(super) fn is_possible_after(
    engine: &mut Engine,
    planned: &Reservation,
    others: &BTreeMap<JobKey, ReservationSlot>,
    plan: impl Fn(&Engine) -> Option<Reservation>,
    plans: &mut usize,
) -> bool {
    let inputs = engine.inputs();
    let gone = others.keys().filter_map(|key| inputs.reservations.of(key));
    let gone: Vec<&Reservation> = gone.collect();
    if planned.nodes.is_empty() || gone.is_empty() {
        return true;
    }
    let met = owners_met(inputs, planned, &gone);
    let waiting = waiting(inputs, planned, &gone);
    if met.is_empty() && waiting.is_empty() {
        return true;
    }
    let stand = engine.reservations.clone();
    assume_displaced(engine, others);
    engine.reservations.set(planned.clone());
    let is_possible = !assume_planned(engine, planned, &met, waiting, plans) || {
        *plans += 1;
        plan(engine).is_some_and(|again| again.scopes == planned.scopes)
    };
    engine.reservations = stand;
    is_possible
}

/// The owners of reserved nodes before a planned reservation that may move once others are gone.
fn owners_met(
    inputs: Inputs<'_>,
    planned: &Reservation,
    gone: &[&Reservation],
) -> BTreeSet<JobKey> {
    let had_to_leave = |other: &Reservation, gone: &Reservation| {
        let request = withheld::request_of(inputs, other);
        request.is_some_and(|request| withheld::binds_from(inputs, gone, request, other.start))
    };
    let is_gone = |other: &Reservation| gone.iter().any(|gone| gone.rank == other.rank);
    let met = gone.iter().flat_map(|gone| {
        let owners = owners_after(inputs, gone);
        owners.filter(move |other| {
            is_before(inputs, (&other.queue, &other.rank), planned) && had_to_leave(other, gone)
        })
    });
    let met = met.filter(|other| !is_gone(other));
    met.map(|other| other.rank.key.clone()).collect()
}

/// The first jobs without a reservation before a planned one that may get one once others are gone, one of each shape:
/// those for which none was possible beside what these withhold, and those that wait for slots that these leave.
fn waiting(inputs: Inputs<'_>, planned: &Reservation, gone: &[&Reservation]) -> Vec<PlaceInOrder> {
    let unreservable = inputs.pending.unreservable().iter();
    let unreservable = unreservable.filter_map(|key| inputs.jobs.line_of(key));
    let bound = unreservable.filter(|line| {
        let shape = inputs.pending.shapes.get(line.shape);
        shape.is_some_and(|shape| {
            let request = Request {
                queue: &line.queue,
                rank: &line.rank,
                shape,
                verbose: false,
            };
            gone.iter()
                .any(|gone| withheld::binds(inputs, gone, request))
        })
    });
    let bound = bound.map(|line| (line.queue.clone(), line.rank.clone()));
    let left = gone.iter().flat_map(|gone| &gone.scopes);
    let left: BTreeSet<&ReservationSlot> = left
        .filter(|slot| !planned.scopes.contains(*slot))
        .collect();
    let queues = inputs.pending.queues.with_window();
    let queues = queues.filter(|_| !left.is_empty());
    let outranked = queues.flat_map(|queue| {
        let needs = |rank: &&QueueOrder| {
            let shape = withheld::shape_of(inputs, &rank.key);
            let slots = shape.and_then(|shape| inputs.pending.shapes.scopes(shape));
            slots.is_some_and(|slots| slots.iter().any(|slot| left.contains(slot)))
        };
        let jobs = window::of_queue(inputs, queue).jobs.into_iter();
        jobs.filter(needs).map(|rank| (queue.clone(), rank.clone()))
    });
    let all = bound.chain(outranked);
    let mut all: Vec<PlaceInOrder> = all
        .filter(|(queue, rank)| {
            inputs.reservations.of(&rank.key).is_none() && is_before(inputs, (queue, rank), planned)
        })
        .collect();
    all.sort_by(|a, b| inputs.quota.compare((&a.0, &a.1), (&b.0, &b.1)));
    let mut shapes = BTreeSet::new();
    all.retain(|(_, rank)| shapes.insert(withheld::shape_of(inputs, &rank.key)));
    all.truncate(TRIED);
    all
}

fn is_before(inputs: Inputs<'_>, place: (&QueueName, &QueueOrder), planned: &Reservation) -> bool {
    let order = inputs.quota.compare(place, (&planned.queue, &planned.rank));
    order.is_lt()
}

/// Assumes that the jobs before a planned reservation were planned one after the other, now that the owners `met` may
/// move and those `waiting` may get a reservation. Only what is reserved is changed, and nothing is woken: the caller
/// restores it. Returns whether anything is reserved elsewhere while the planned one has its slots.
fn assume_planned(
    engine: &mut Engine,
    planned: &Reservation,
    met: &BTreeSet<JobKey>,
    waiting: Vec<PlaceInOrder>,
    plans: &mut usize,
) -> bool {
    let inputs = engine.inputs();
    let owners = inputs.reservations.with_nodes();
    let owners = owners.filter(|kept| !kept.taking());
    let owners = owners.filter(|kept| is_before(inputs, (&kept.queue, &kept.rank), planned));
    let owners = owners.map(|kept| (kept.queue.clone(), kept.rank.clone()));
    let mut before: Vec<PlaceInOrder> = owners.chain(waiting).collect();
    before.sort_by(|a, b| inputs.quota.compare((&a.0, &a.1), (&b.0, &b.1)));
    let mut moves = false;
    for (queue, rank) in before {
        let kept = engine.reservations.of(&rank.key);
        // Where one moved, those behind it may have to leave it.
        if kept.is_some() && !moves && !met.contains(&rank.key) {
            continue;
        }
        *plans += 1;
        moves |= match kept.cloned() {
            Some(kept) => assume_moved(engine, kept),
            None => assume_reserved(engine, &queue, &rank),
        };
        if engine.reservations.of(&planned.rank.key).is_none() {
            // That one has more of a claim than the others that were displaced: it keeps the slots.
            return false;
        }
    }
    moves
}

/// Assumes that a reservation was planned again. Returns whether it moved.
fn assume_moved(engine: &mut Engine, kept: Reservation) -> bool {
    let inputs = engine.inputs();
    let request = withheld::request_of(inputs, &kept);
    let found = request.and_then(|request| at_least(request, |least| plan::target(inputs, least)));
    let Some(found) = found.filter(|found| found.nodes != kept.nodes) else {
        return false;
    };
    engine.reservations.set(Reservation {
        nodes: found.nodes,
        start: found.start,
        ..kept
    });
    true
}

/// Assumes that a job without a reservation got one, if one is possible. Returns whether it did.
fn assume_reserved(engine: &mut Engine, queue: &QueueName, rank: &QueueOrder) -> bool {
    let inputs = engine.inputs();
    let shape = withheld::shape_of(inputs, &rank.key);
    let shape: Option<&RequestShape> =
        shape.and_then(|shape| inputs.pending.shapes.get(shape).map(AsRef::as_ref));
    let reserved = shape.and_then(|shape| {
        let request = Request {
            queue,
            rank,
            shape,
            verbose: false,
        };
        at_least(request, |least| {
            let found = plan::target(inputs, least)?;
            Some(reservation::reservation_on(inputs, least, found))
        })
    });
    let Some(reserved) = reserved else {
        return false;
    };
    let Ok(others) = giving_way(inputs, &reserved) else {
        return false;
    };
    assume_displaced(engine, &others);
    engine.reservations.set(reserved);
    true
}

/// What an elastic gang reserves is for its smallest size.
fn at_least<T>(request: Request<'_>, make: impl Fn(Request<'_>) -> T) -> T {
    let least = elastic::smallest(request.shape);
    let shape = least.as_ref().unwrap_or(request.shape);
    make(Request { shape, ..request })
}

/// Assumes that these owners have lost a slot.
fn assume_displaced(engine: &mut Engine, others: &BTreeMap<JobKey, ReservationSlot>) {
    for (key, slot) in others {
        let left = left_without(engine.inputs(), key, slot);
        engine.reservations.remove(key);
        if let Some(left) = left {
            engine.reservations.set(left);
        }
    }
}
