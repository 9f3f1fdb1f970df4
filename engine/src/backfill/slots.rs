//! Which jobs get the slots for reservations, where there are fewer slots than jobs that need them.
//!
//! Slots are given in turns, and what a job gets depends only on the turns before its own: a job that displaces others
//! has its turn before theirs, so that jobs cannot displace each other in a circle. All jobs take part that are
//! connected by slots: a job that gives way at one slot leaves its others, too.
//!
//! First come the slots of headroom, then those of classes of pools among the jobs that have headroom: one that gets
//! none of a class keeps its headroom. Both go by priority up to the last of several slots, which goes by age. Where
//! some queues may have more reservations than others, what only these may have is given last.

use crate::api::job::QueueOrder;
use crate::api::slot::ReservationSlot;
use crate::backfill::window;
use crate::reservation::store::Reservation;
use crate::state::Inputs;
use facts::{JobKey, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// A job, and the slots that it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotClaim<'a> {
    pub(crate) queue: &'a QueueName,
    pub(crate) rank: &'a QueueOrder,
    pub(crate) slots: &'a BTreeSet<ReservationSlot>,
}

impl<'a> SlotClaim<'a> {
    /// The claim of a reservation's owner.
    pub(crate) fn of(reserved: &'a Reservation) -> Self {
        Self {
            queue: &reserved.queue,
            rank: &reserved.rank,
            slots: &reserved.scopes,
        }
    }
}

/// The jobs that get less than the slots that they need if one claims some beside all owners of reservations, each with
/// a slot that others take.
pub(crate) fn without<'a>(
    inputs: Inputs<'a>,
    claim: SlotClaim<'a>,
) -> BTreeMap<&'a JobKey, &'a ReservationSlot> {
    let connected = inputs.reservations.connected(claim.slots);
    let holders = connected.iter();
    let holders = holders.flat_map(|slot| inputs.reservations.holders_of(slot));
    let others = holders.filter(|kept| kept.rank.key != claim.rank.key);
    let others: BTreeMap<&JobKey, SlotClaim<'_>> = others
        .map(|kept| (&kept.rank.key, SlotClaim::of(kept)))
        .collect();
    let mut claims: Vec<SlotClaim<'_>> = others.into_values().chain([claim]).collect();
    let mut without = without_slots_of(inputs, &claims, is_headroom);
    claims.retain(|claim| !without.contains_key(&claim.rank.key));
    let without_class = without_slots_of(inputs, &claims, |slot| !is_headroom(slot));
    without.extend(without_class);
    without
}

fn is_headroom(slot: &ReservationSlot) -> bool {
    matches!(slot, ReservationSlot::Headroom(_))
}

/// The jobs that get less than the slots that they need of one kind, each with one that others take.
fn without_slots_of<'a>(
    inputs: Inputs<'_>,
    claims: &[SlotClaim<'a>],
    is_of_kind: impl Fn(&ReservationSlot) -> bool,
) -> BTreeMap<&'a JobKey, &'a ReservationSlot> {
    let needed = |claim: &SlotClaim<'a>| {
        let slots: &'a BTreeSet<ReservationSlot> = claim.slots;
        slots.iter().filter(|slot| is_of_kind(slot))
    };
    let most_of = |claim: &SlotClaim<'_>| window::most_of_slot(inputs, claim.queue);
    let mut by_priority: Vec<SlotClaim<'a>> = claims.to_vec();
    by_priority.retain(|claim| needed(claim).next().is_some());
    let limits: BTreeSet<usize> = by_priority.iter().map(most_of).collect();
    if limits
        .first()
        .is_none_or(|least| by_priority.len() <= *least)
    {
        return BTreeMap::new();
    }
    by_priority
        .sort_by_cached_key(|claim| window::reservation_priority(inputs, claim.queue, claim.rank));
    let mut by_age = by_priority.clone();
    by_age.sort_by_key(|claim| (claim.rank.at, &claim.rank.key));
    let mut taken: BTreeMap<&ReservationSlot, usize> = BTreeMap::new();
    let mut served: BTreeSet<&JobKey> = BTreeSet::new();
    for limit in limits {
        let last = usize::from(limit > 1);
        for (turns, most) in [(&by_priority, limit - last), (&by_age, limit)] {
            for claim in turns.iter().filter(|claim| most_of(claim) >= limit) {
                let is_free = |slot: &ReservationSlot| taken.get(slot).unwrap_or(&0) < &most;
                if !served.contains(&claim.rank.key) && needed(claim).all(is_free) {
                    served.insert(&claim.rank.key);
                    needed(claim).for_each(|slot| *taken.entry(slot).or_default() += 1);
                }
            }
        }
    }
    let others = by_priority.iter();
    let others = others.filter(|claim| !served.contains(&claim.rank.key));
    let without = others.filter_map(|claim| {
        let is_taken = |slot: &&ReservationSlot| taken.get(slot) >= Some(&most_of(claim));
        Some((&claim.rank.key, needed(claim).find(is_taken)?))
    });
    without.collect()
}
