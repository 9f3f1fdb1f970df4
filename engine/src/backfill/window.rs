//! Which pending jobs can get a reservation.
//!
//! In each queue these are the first jobs that are admissible some day, as many as its policy says
//! (`backfill.reservations`). Of those, each class of pools and each short queue serves as many as it
//! has slots: the queue of higher priority first, then a queue that holds less than it deserves, then
//! the job of higher priority, then the one that was queued first. Fair shares do not count here,
//! though they order queues: they change with every job that starts or ends, and a reservation would
//! be given away before it is complete. So a reservation stands until its job starts, or until a job
//! of higher priority takes its slot.

use crate::api::facts::QueueOrdering;
use crate::api::ids::QueueName;
use crate::api::job::QueueOrder;
use crate::api::slot::ReservationSlot;
use crate::backfill::{reservation, withheld};
use crate::pending::shapes::ShapeId;
use crate::placement::request;
use crate::reservation::priority::{ReservationPriority, ReservationWindow};
use crate::reservation::store::Reservation;
use crate::state::Inputs;
use std::cmp::Reverse;

/// How good the claim of a waiting job is.
pub(crate) fn reservation_priority<'a>(
    inputs: Inputs<'_>,
    queue: &QueueName,
    rank: &'a QueueOrder,
) -> ReservationPriority<'a> {
    let id = inputs.quota.id(queue);
    let path = id.map(|id| inputs.quota.path_of(id)).unwrap_or_default();
    ReservationPriority {
        priorities: path
            .iter()
            .skip(1)
            .map(|id| Reverse(inputs.quota.priority(*id)))
            .collect(),
        satisfied: !id.is_some_and(|id| inputs.quota.is_below_deserved(id)),
        rank,
    }
}

/// The jobs of a queue for whom something may be kept: the first of those that could go
/// some day and may compete, as many as its policy has it.
pub(crate) fn front(inputs: Inputs<'_>, queue: &QueueName) -> ReservationWindow {
    let most = holders_allowed(inputs, queue);
    let pending_queue = inputs.pending.queues.pending_queue(queue);
    let mut jobs = pending_queue
        .map(|pending_queue| pending_queue.window(most))
        .unwrap_or_default();
    if inputs.quota.pending_limit(queue).is_some() {
        jobs.retain(|rank| request::over_pending_limit(inputs, queue, rank).is_none());
    }
    ReservationWindow {
        queue: queue.clone(),
        jobs,
    }
}

/// What the jobs of a front want.
pub(crate) fn shapes_of<'a>(
    inputs: Inputs<'a>,
    front: &'a ReservationWindow,
) -> impl Iterator<Item = ShapeId> + 'a {
    front
        .jobs
        .iter()
        .filter_map(move |rank| withheld::shape_of(inputs, &rank.key))
}

/// How many can reserve what one class, or the headroom of one queue, has, where a job of
/// `queue` asks.
pub(crate) fn most_of_scope(inputs: Inputs<'_>, queue: &QueueName) -> usize {
    let of_class = inputs.config.reservations_per_class.max(1);
    of_class.max(holders_allowed(inputs, queue))
}

pub(crate) fn holders_allowed(inputs: Inputs<'_>, queue: &QueueName) -> usize {
    if inputs.quota.ordering(queue) == QueueOrdering::BestEffort {
        return 0;
    }
    let backfill = inputs.quota.policy(queue).map(|policy| policy.backfill);
    let backfill = backfill.unwrap_or_default();
    match backfill.reservations {
        Some(most) => usize::try_from(most).unwrap_or(usize::MAX),
        None if backfill.conservative => inputs.config.conservative_depth,
        None => 1,
    }
}

/// Whether a job that finds no room is evaluated all the same, for something may be kept for
/// it: it stands at the front of its queue, it was not found yet that nothing can be, and
/// not as many hold what it needs already whose claim is better.
pub(crate) fn may_reserve(
    inputs: Inputs<'_>,
    front: &ReservationWindow,
    rank: &QueueOrder,
    shape: ShapeId,
) -> bool {
    if !front.jobs.contains(rank) || inputs.reservations.of(&rank.key).is_some() {
        return false;
    }
    if inputs.pending.is_unreservable(&rank.key)
        || (inputs.pending.shapes.is_unreservable(shape)
            && reservation::is_behind(inputs, &front.queue, rank))
    {
        return false;
    }
    !is_outranked(inputs, &front.queue, rank, shape)
}

/// Whether it is known, of a job that lacks room, that as many hold what it needs as may
/// whose claim is better: then where its nodes would be need not be found out.
pub(crate) fn is_outranked(
    inputs: Inputs<'_>,
    queue: &QueueName,
    rank: &QueueOrder,
    shape: ShapeId,
) -> bool {
    let Some(scopes) = inputs.pending.shapes.scopes(shape) else {
        return false;
    };
    let most = most_of_scope(inputs, queue);
    let mine = reservation_priority(inputs, queue, rank);
    let full = |scope: &ReservationSlot| {
        // Most often there are too few whatever their claims are.
        if inputs.reservations.count(scope) < most {
            return false;
        }
        let better = inputs.reservations.holders_of(scope).filter(|reserved| {
            !reserved.nodes.is_empty()
                && reserved.rank.key != rank.key
                && reservation_priority(inputs, &reserved.queue, &reserved.rank) < mine
        });
        better.take(most).count() >= most
    };
    scopes.iter().any(full)
}

/// Whether a reservation that stands no more may have been one by which somebody was outranked
/// who is not asked for there being room for one more of its class ([`crate::backfill::feasible::is_settled`]):
/// as many as may keep that class still, or another one that somebody needs as well.
pub(crate) fn outranked_another(inputs: Inputs<'_>, gone: &Reservation) -> bool {
    let most = inputs.config.reservations_per_class.max(1);
    let least = most - usize::from(inputs.pending.shapes.are_of_several_classes());
    let classes = gone.scopes.iter();
    let mut classes = classes.filter(|scope| matches!(scope, ReservationSlot::Class(_)));
    classes.any(|class| inputs.reservations.count(class) >= least)
}
