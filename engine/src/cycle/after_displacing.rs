//! Whether a job keeps the reservation for which it displaces others, or these come back.
//!
//! All owners are planned without those others, in the order of queues. One before the job may take the nodes that it
//! counts on: then its reservation is dropped, the others come back, and it displaces them again, in a circle. So may a
//! job before it that has no reservation, since those others kept their nodes or their slots; or that one takes the
//! slots and the nodes of so many that a slot is free for the others. If they come back, the job displaces none.

use crate::api::job::QueueOrder;
use crate::api::slot::ReservationSlot;
use crate::backfill::{plan, reservation, window, withheld};
use crate::cycle::displace::{giving_way, left_without};
use crate::cycle::replan::owners_after;
use crate::pending::shapes::RequestShape;
use crate::placement::request::Request;
use crate::reservation::store::Reservation;
use crate::state::{Engine, Inputs};
use facts::{JobKey, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// So many jobs without a reservation are planned at most.
const TRIED: usize = 16;

type PlaceInOrder = (QueueName, QueueOrder);

/// Returns whether a planned reservation is possible still once others have lost a slot. Adds to `plans` how many were
/// made.
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
    let gone: Vec<Reservation> = gone.into_iter().cloned().collect();
    let stand = engine.reservations.clone();
    assume_displaced(engine, others);
    engine.reservations.set(planned.clone());
    assume_planned(engine, planned, (&met, waiting), plan, plans);
    let inputs = engine.inputs();
    let comes_back = |other: &Reservation| giving_way(inputs, other).is_ok();
    let is_possible =
        inputs.reservations.of(&planned.rank.key).is_some() || !gone.iter().any(comes_back);
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
            // It is not known when it would start on the nodes that it would reserve.
            gone.iter()
                .any(|gone| withheld::binds_from(inputs, gone, request, None))
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

/// Assumes that all owners of reserved nodes were planned one after the other, now that those `met` may move and those
/// `waiting` may get a reservation. Only what is reserved is changed, and nothing is woken: the caller restores it.
fn assume_planned(
    engine: &mut Engine,
    planned: &Reservation,
    (met, waiting): (&BTreeSet<JobKey>, Vec<PlaceInOrder>),
    plan: impl Fn(&Engine) -> Option<Reservation>,
    plans: &mut usize,
) {
    let inputs = engine.inputs();
    let owners = inputs.reservations.with_nodes();
    let owners = owners.filter(|kept| !kept.taking());
    let owners = owners.map(|kept| (kept.queue.clone(), kept.rank.clone()));
    let mut in_order: Vec<PlaceInOrder> = owners.chain(waiting.iter().cloned()).collect();
    in_order.sort_by(|a, b| inputs.quota.compare((&a.0, &a.1), (&b.0, &b.1)));
    let mut moves = false;
    for (queue, rank) in in_order {
        let key = &rank.key;
        let waits = waiting.iter().any(|(_, waiting)| waiting.key == *key);
        let kept = engine.reservations.of(key).cloned();
        // Where one moved, those behind it may have to leave it.
        let is_planned = match &kept {
            Some(_) => moves || met.contains(key),
            None => waits,
        };
        if !is_planned {
            continue;
        }
        *plans += 1;
        moves |= match kept {
            None => assume_reserved(engine, &queue, &rank),
            Some(kept) if *key == planned.rank.key => {
                let again = plan(engine).filter(|again| again.scopes == kept.scopes);
                assume_instead(engine, &kept, again)
            }
            Some(kept) => {
                let again = planned_again(engine.inputs(), &kept);
                assume_instead(engine, &kept, again)
            }
        };
    }
}

/// Returns what is reserved for an owner on the nodes that it finds now.
fn planned_again(inputs: Inputs<'_>, kept: &Reservation) -> Option<Reservation> {
    let request = withheld::request_of(inputs, kept)?;
    let found = withheld::at_least(request, |least| plan::target(inputs, least));
    match found {
        Some(found) => Some(Reservation {
            nodes: found.nodes,
            start: found.start,
            ..kept.clone()
        }),
        // One that lacks headroom keeps its nodes.
        None => kept.lacked_headroom().then(|| kept.clone()),
    }
}

/// Assumes another reservation of a job, or none. Returns whether it is on other nodes.
fn assume_instead(engine: &mut Engine, kept: &Reservation, again: Option<Reservation>) -> bool {
    let Some(again) = again else {
        return engine.reservations.remove(&kept.rank.key).is_some();
    };
    let moves = again.nodes != kept.nodes;
    engine.reservations.set(again);
    moves
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
        withheld::at_least(request, |least| {
            let found = plan::target(inputs, least)?;
            Some(reservation::reservation_on(inputs, least, found))
        })
    });
    let Some(reserved) = reserved else {
        return false;
    };
    // Jobs of its queue that may have none beside it lose theirs: they take no slot from it or from others.
    engine.reservations.set(reserved.clone());
    let surplus = window::surplus(engine.inputs(), queue);
    let surplus = surplus.iter();
    let surplus: Vec<Reservation> = surplus
        .filter_map(|key| engine.reservations.remove(key))
        .collect();
    match giving_way(engine.inputs(), &reserved) {
        Ok(others) if engine.reservations.of(&rank.key).is_some() => {
            assume_displaced(engine, &others);
            true
        }
        _ => {
            engine.reservations.remove(&rank.key);
            let others = surplus.into_iter().filter(|kept| kept.rank != *rank);
            others.for_each(|kept| engine.reservations.set(kept));
            false
        }
    }
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
