//! Sets and drops reservations.
//!
//! A preemptor's reservation ([`reserve_for_preemptor`]) is of another kind: jobs are being evicted for
//! it, so it stays as it is until they are gone and its owner was evaluated once more.

use crate::amounts::totals::ResourceTotals;
use crate::api::charge::pools_of;
use crate::api::job::QueueOrder;
use crate::api::slot::ReservationSlot;
use crate::backfill::{reservation, spare, window, withheld};
use crate::cycle::displace::{Given, give_slots};
use crate::cycle::react::{Change, react};
use crate::cycle::unreservable::note_unreservable;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::shapes::ShapeId;
use crate::placement::empty;
use crate::placement::request::{Block, Gate, Request};
use crate::reservation::store::Reservation;
use crate::state::Engine;
use facts::{JobKey, PoolClass, QueueName, Resources, Share, Time};
use std::collections::BTreeSet;

/// To guess the slots of one shape counts as to list so many classes by other slots.
const GUESS_AS: usize = 2_048;

/// Reserves what a blocked job lacks, if it is in the reservation window. Returns the slots that its class waits for
/// since they are taken, and how many reservations were planned.
pub(crate) fn reserve_for(
    engine: &mut Engine,
    request: Request<'_>,
    block: &Block,
) -> (Vec<RequeueCondition>, usize) {
    let mut slots = Vec::new();
    let holds = engine.reservations.of(&request.rank.key);
    if holds.is_some_and(|kept| !kept.pending_evictions.is_empty()) {
        return (slots, 0);
    }
    if holds.is_some_and(Reservation::taking) {
        // All its victims are gone and it still cannot be admitted: it is a job like any other again.
        drop_reservation_of(engine, &request.rank.key);
    }
    if matches!(block.gate, Gate::Room | Gate::Quota(..)) {
        retry_reservation(engine, request);
    }
    let (front, mut plans) = window_with_slots(engine, request);
    // A job that cannot be admitted leaves the window; the reservations of the others stay.
    let gives = !matches!(block.gate, Gate::Never | Gate::Limit);
    if !gives {
        // It may not be in the window any more.
        drop_reservation_of(engine, &request.rank.key);
    }
    // What blocks the first job of a class blocks the others: they reserve by its verdict.
    let alike = reservation::alike(engine.inputs(), request, &front);
    for rank in &alike {
        let inputs = engine.inputs();
        let shape = withheld::shape_of(inputs, &rank.key);
        let taken = shape.and_then(|shape| window::taken_slot(inputs, request.queue, rank, shape));
        if let Some(taken) = taken.filter(|_| matches!(block.gate, Gate::Room)).cloned() {
            drop_reservation_of(engine, &rank.key);
            slots.push(until_free(&taken));
            continue;
        }
        let plan = |engine: &Engine| {
            reservation::reservation(engine.inputs(), Request { rank, ..request }, block)
        };
        let mut planned = plan(engine);
        plans += 1;
        // Jobs behind it lose theirs only to one that is possible, and beside which they may have none.
        if planned.is_some() && gives && drop_for(engine, request.queue, rank) {
            planned = plan(engine);
            plans += 1;
        }
        let planned = planned.filter(|planned| !is_fruitless(engine, request, block, planned));
        match planned {
            Some(planned) => {
                note_where_none_guessed(engine, shape, &planned);
                match give_slots(engine, planned, plan, &mut plans) {
                    Given::Slots { planned, displaced } => {
                        // It was planned beside those that it displaced.
                        let again = displaced.then(|| plan(engine)).flatten();
                        plans += usize::from(displaced);
                        let again = again.filter(|again| {
                            again.scopes == planned.scopes
                                && !is_fruitless(engine, request, block, again)
                        });
                        set_reservation(engine, again.unwrap_or(planned));
                    }
                    Given::Headroom { planned, taken } => {
                        set_reservation(engine, planned);
                        slots.extend(taken.as_ref().map(until_free));
                    }
                    Given::Nothing(taken) => {
                        drop_reservation_of(engine, &rank.key);
                        match taken {
                            Some(taken) => slots.push(until_free(&taken)),
                            None => note_unreservable(engine, request.queue, rank),
                        }
                    }
                }
            }
            None => {
                drop_reservation_of(engine, &rank.key);
                // What can never be admitted, or is over a limit, is not noted: other events change that.
                if gives {
                    note_unreservable(engine, request.queue, rank);
                }
            }
        }
    }
    if gives {
        let surplus = window::surplus(engine.inputs(), request.queue);
        drop_all(engine, &surplus);
    }
    (slots, plans)
}

/// The reservation window of a request's queue, with the slots of its shape known if there is any job in it, and how
/// many plans that took: a guess is a plan for the empty fleet.
fn window_with_slots(engine: &mut Engine, request: Request<'_>) -> (BTreeSet<QueueOrder>, usize) {
    let window = |engine: &Engine| window::of_queue(engine.inputs(), request.queue).into_jobs();
    let front = window(engine);
    let shape = withheld::shape_of(engine.inputs(), &request.rank.key);
    let shape = shape.filter(|_| !front.is_empty());
    match shape.map_or(0, |shape| guess_scopes(engine, shape)) {
        0 => (front, 0),
        moved => (window(engine), usize::from(moved >= GUESS_AS)),
    }
}

/// Returns true if a job could not start although the nodes that would be reserved for it are free: they would be kept
/// free for ever. Then the plan of reservations differs from that of admissions, which is a defect.
fn is_fruitless(
    engine: &mut Engine,
    request: Request<'_>,
    block: &Block,
    planned: &Reservation,
) -> bool {
    let inputs = engine.inputs();
    let fruitless = matches!(block.gate, Gate::Room | Gate::Quota(..))
        && !planned.nodes.is_empty()
        && spare::binding(inputs, request).is_empty()
        && planned.start == Some(inputs.now);
    if fruitless {
        engine.fruitless_reservations.push(planned.rank.key.clone());
    }
    fruitless
}

/// Returns what a job waits for whose slot is taken. A class whose shape is infeasible is not parked, and is asked as
/// one of the window.
pub(crate) fn until_free(slot: &ReservationSlot) -> RequeueCondition {
    RequeueCondition::Slot(slot.clone())
}

/// A job for which no reservation was possible is blocked by something else now: it lacked only what is reserved for
/// jobs ahead of it, and others took that, or the bounds of its queue were met.
fn retry_reservation(engine: &mut Engine, request: Request<'_>) {
    if engine.pending.retry_reservation(&request.rank.key) {
        engine.pending.queues.note_changed(request.queue);
    }
}

/// Notes the slots that a reservation for this shape takes, if none is known yet: the pool classes that it would use
/// of the empty fleet, wherever its nodes will be. So they follow from the fleet and the shape, are the same for all
/// shapes alike, and do not move with the plans: owners that took slots from each other by turns would do so for ever.
/// Returns how many classes are listed by other slots, with what to guess them counts as.
pub(crate) fn guess_scopes(engine: &mut Engine, id: ShapeId) -> usize {
    let Some(shape) = engine
        .pending
        .shapes
        .get(id)
        .filter(|_| engine.pending.shapes.scopes(id).is_none())
    else {
        return 0;
    };
    if let Some(slots) = engine.pending.shapes.guessed_slots(id) {
        return engine.pending.note_slot_set(id, slots);
    }
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
    let moved = engine.pending.note_scopes(id, &scopes);
    engine.pending.shapes.note_guessed(id);
    moved + GUESS_AS
}

/// The fleet could not take a shape when its slots were guessed, and can now: it takes those of the plan.
fn note_where_none_guessed(engine: &mut Engine, shape: Option<ShapeId>, planned: &Reservation) {
    let shapes = &engine.pending.shapes;
    let none = |shape: &ShapeId| shapes.scopes(*shape).is_some_and(BTreeSet::is_empty);
    if let Some(shape) = shape.filter(none) {
        let scopes = planned.scopes.iter().cloned();
        let classes = scopes.filter(|scope| matches!(scope, ReservationSlot::Class(_)));
        engine.pending.note_scopes(shape, &classes.collect());
    }
}

/// Reserves exactly `shares` for a job while `victims` are evicted or shrunk for it, and until it was
/// evaluated once after that. Victims that are gone already are left out.
pub(crate) fn reserve_for_preemptor(
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
    let mut charge = ResourceTotals::default();
    pools.values().for_each(|part| charge.add(part, 1));
    let planned = Reservation {
        queue: line.queue.clone(),
        rank: line.rank.clone(),
        // The victims bound the number of these reservations; they take no slot.
        scopes: BTreeSet::new(),
        charge: charge.to_resources(),
        nodes: reservation::nodes_of(engine.inputs(), demand, shares),
        pools: reservation::listed(pools),
        start: None,
        preemptor: true,
        releases: Vec::new(),
        pending_evictions: victims,
    };
    set_reservation(engine, planned);
}

/// All that was evicted of a job is gone: preemptors that wait for no other victim are evaluated.
pub(crate) fn victim_gone(engine: &mut Engine, victim: &JobKey) {
    let ready = engine.reservations.settle(victim);
    react(engine, Change::EvictionsDone(&ready));
}

/// Drops the reservations that bind a request, of jobs of its queue that may have none any more. Whether any did.
pub(crate) fn drop_surplus(engine: &mut Engine, request: Request<'_>) -> bool {
    let mut surplus = window::surplus(engine.inputs(), request.queue);
    surplus.retain(|key| {
        let kept = engine.reservations.of(key);
        kept.is_some_and(|kept| withheld::binds(engine.inputs(), kept, request))
    });
    drop_all(engine, &surplus)
}

/// Drops the reservations of jobs of a queue that may have none any more beside one of this job. Whether there are any.
fn drop_for(engine: &mut Engine, queue: &QueueName, rank: &QueueOrder) -> bool {
    let surplus = window::surplus_beside(engine.inputs(), queue, rank);
    drop_all(engine, &surplus)
}

/// Drops the reservations of these jobs. Whether there are any.
fn drop_all(engine: &mut Engine, jobs: &[JobKey]) -> bool {
    for key in jobs {
        drop_reservation_of(engine, key);
    }
    !jobs.is_empty()
}

/// Drops the reservation of a job.
pub(crate) fn drop_reservation_of(engine: &mut Engine, key: &JobKey) {
    if let Some(dropped) = engine.reservations.remove(key) {
        react(engine, Change::ReservationDropped(&dropped));
    }
}

pub(crate) fn set_reservation(engine: &mut Engine, mut planned: Reservation) {
    let known = engine.reservations.of(&planned.rank.key);
    let past = |start: &Time| *start <= engine.now;
    let due = planned.start.as_ref().is_some_and(past);
    if let Some(start) = known.and_then(|kept| kept.start).filter(past)
        && due
    {
        // Both starts have passed: nothing has changed.
        planned.start = Some(start);
    }
    if known == Some(&planned) {
        return;
    }
    let before = known.cloned();
    let key = planned.rank.key.clone();
    engine.reservations.set(planned);
    let before = before.as_ref();
    react(engine, Change::ReservationSet { key: &key, before });
}
