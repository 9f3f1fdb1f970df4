//! Which slots a planned reservation is given, and who loses theirs to it.

use crate::api::slot::ReservationSlot;
use crate::backfill::slots::{self, SlotClaim};
use crate::backfill::{window, withheld};
use crate::cycle::after_displacing::is_possible_after;
use crate::cycle::reserve::{drop_reservation_of, set_reservation, until_free};
use crate::reservation::store::Reservation;
use crate::state::{Engine, Inputs};
use facts::JobKey;
use std::collections::BTreeMap;

/// Returns true if as many jobs before it in its queue as may reserve keep the same headroom: of one queue they go one
/// after the other, whatever nodes they need.
fn lacks_headroom_behind(
    inputs: Inputs<'_>,
    planned: &Reservation,
    scope: &ReservationSlot,
) -> bool {
    let holders = inputs.reservations.holders_of(scope);
    let this = (&planned.queue, &planned.rank);
    let before = holders.filter(|kept| {
        kept.queue == planned.queue
            && inputs
                .quota
                .compare((&kept.queue, &kept.rank), this)
                .is_lt()
    });
    matches!(scope, ReservationSlot::Headroom(_))
        && before.count() >= window::holders_allowed(inputs, &planned.queue)
}

/// What a planned reservation is given.
pub(super) enum Given {
    /// All slots that it needs, and whether it displaced others.
    Slots {
        planned: Reservation,
        displaced: bool,
    },
    /// No slots for its nodes: it is one of headroom only. With the slot that others keep, if they do.
    Headroom {
        planned: Reservation,
        taken: Option<ReservationSlot>,
    },
    /// Nothing, with the slot that others keep, if they do.
    Nothing(Option<ReservationSlot>),
}

/// Gives the reservation its slots, or those of its headroom only. It displaces those that have less of a claim
/// ([`slots`]), unless the owners before it would then take the nodes that it counts on. Adds to `plans` how many were
/// made for that.
pub(super) fn give_slots(
    engine: &mut Engine,
    planned: Reservation,
    plan: impl Fn(&Engine) -> Option<Reservation>,
    plans: &mut usize,
) -> Given {
    let taken = match giving_way(engine.inputs(), &planned) {
        Ok(others) if is_possible_after(engine, &planned, &others, plan, plans) => {
            let displaced = !others.is_empty();
            displace(engine, others);
            return Given::Slots { planned, displaced };
        }
        Ok(_) => None,
        Err(taken) => Some(taken),
    };
    let Some(planned) = planned.of_headroom_only() else {
        return Given::Nothing(taken);
    };
    match giving_way(engine.inputs(), &planned) {
        Ok(others) => {
            displace(engine, others);
            Given::Headroom { planned, taken }
        }
        Err(taken) => Given::Nothing(Some(taken)),
    }
}

/// The owners of reservations that have less of a claim to slots than a planned one, each with such a slot.
///
/// # Errors
/// The slot that others keep.
pub(super) fn giving_way(
    inputs: Inputs<'_>,
    planned: &Reservation,
) -> Result<BTreeMap<JobKey, ReservationSlot>, ReservationSlot> {
    let mut scopes = planned.scopes.iter();
    if let Some(scope) = scopes.find(|scope| lacks_headroom_behind(inputs, planned, scope)) {
        return Err(scope.clone());
    }
    let without = slots::without(inputs, SlotClaim::of(planned));
    if let Some(taken) = without.get(&planned.rank.key) {
        return Err((*taken).clone());
    }
    let others = without.into_iter();
    Ok(others
        .map(|(key, slot)| (key.clone(), slot.clone()))
        .collect())
}

/// Takes slots from the owners of reservations: one that loses a slot of its nodes keeps its headroom.
fn displace(engine: &mut Engine, others: BTreeMap<JobKey, ReservationSlot>) {
    for (key, slot) in others {
        match left_without(engine.inputs(), &key, &slot) {
            Some(left) => set_reservation(engine, left),
            None => drop_reservation_of(engine, &key),
        }
        let entry = withheld::line_now(engine.inputs(), &key);
        if let Some(entry) = entry {
            let queues = &mut engine.pending.queues;
            queues.wait_also(&entry.queue, entry.shape, until_free(&slot));
        }
    }
}

/// Returns what is left of the reservation of a job that loses a slot.
pub(super) fn left_without(
    inputs: Inputs<'_>,
    key: &JobKey,
    slot: &ReservationSlot,
) -> Option<Reservation> {
    let of_nodes = matches!(slot, ReservationSlot::Class(_));
    let reserved = inputs.reservations.of(key).filter(|_| of_nodes)?;
    reserved.clone().of_headroom_only()
}
