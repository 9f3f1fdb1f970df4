//! Which pending jobs can get a reservation.
//!
//! In each queue these are, for each class of pools, the first jobs that are admissible some day, as many as
//! its policy says (`backfill.reservations`); jobs for which no reservation is possible are passed. Of those,
//! each class of pools and each short queue serves as many as it has slots ([`slots`]): the queue of higher priority
//! first, then a queue that holds less than it deserves, then the job of higher priority, then the one that
//! was queued first. The last of several slots is for the job that was queued first of those left, so that
//! none waits for ever. Fair shares do not count here, though they order queues: they change with every job
//! that starts or ends, and a reservation would be given away before it is complete. So a reservation stands
//! until its job starts, or until a job of higher priority takes its slot.

use crate::api::job::QueueOrder;
use crate::api::slot::ReservationSlot;
use crate::backfill::slots::{self, SlotClaim};
use crate::backfill::{reservation, withheld};
use crate::pending::pending_queue::{PendingQueue, SlotsTaken};
use crate::pending::shapes::ShapeId;
use crate::placement::request;
use crate::reservation::priority::{QueuePriorities, ReservationPriority, ReservationWindow};
use crate::reservation::store::Reservation;
use crate::state::Inputs;
use facts::{JobKey, QueueName, QueueOrdering};

/// The priority of a reservation for a pending job.
pub(crate) fn reservation_priority<'a>(
    inputs: Inputs<'_>,
    queue: &QueueName,
    rank: &'a QueueOrder,
) -> ReservationPriority<'a> {
    let id = inputs.quota.id(queue);
    let path = id.map(|id| inputs.quota.path_of(id)).unwrap_or_default();
    ReservationPriority {
        queues: QueuePriorities::new(path.iter().skip(1).map(|id| inputs.quota.priority(*id))),
        satisfied: !id.is_some_and(|id| inputs.quota.is_below_deserved(id)),
        rank,
    }
}

/// The reservation window of a queue: the first jobs of each class of pools that are admissible some day and
/// within the limit of pending jobs, as many as its policy says.
pub(crate) fn of_queue<'a>(inputs: Inputs<'a>, queue: &'a QueueName) -> ReservationWindow<'a> {
    let most = holders_allowed(inputs, queue);
    let pending_queue = inputs.pending.queues.pending_queue(queue);
    let shapes = &inputs.pending.shapes;
    let passed = |rank: &QueueOrder| inputs.pending.is_unreservable(&rank.key);
    let window = |pending_queue: &'a PendingQueue| {
        pending_queue.window(most, |set| shapes.slots_of(set), passed)
    };
    let mut jobs = pending_queue.map(window).unwrap_or_default();
    if inputs.quota.pending_limit(queue).is_some() {
        jobs.retain(|rank| request::over_pending_limit(inputs, queue, rank).is_none());
    }
    ReservationWindow { queue, jobs }
}

/// The jobs of a queue that have more reservations together than its policy lets them, without those that come first.
/// One that is out of the window only since a reservation may be possible for a job ahead of it keeps its own until
/// that is known: otherwise jobs of several queues could take the slot of a reservation from each other in a circle.
pub(crate) fn surplus(inputs: Inputs<'_>, queue: &QueueName) -> Vec<JobKey> {
    surplus_of(inputs, queue, inputs.reservations.holders_in(queue))
}

/// The same if one more job of the queue had a reservation, which is not among them.
pub(crate) fn surplus_beside(
    inputs: Inputs<'_>,
    queue: &QueueName,
    planned: &QueueOrder,
) -> Vec<JobKey> {
    let others = inputs.reservations.holders_in(queue);
    let others = others.filter(|rank| *rank != planned);
    let mut surplus = surplus_of(inputs, queue, others.chain([planned]));
    surplus.retain(|key| *key != planned.key);
    surplus
}

fn surplus_of<'a>(
    inputs: Inputs<'a>,
    queue: &QueueName,
    holders: impl Iterator<Item = &'a QueueOrder>,
) -> Vec<JobKey> {
    let most = holders_allowed(inputs, queue);
    let Some(pending_queue) = inputs.pending.queues.pending_queue(queue) else {
        return Vec::new();
    };
    let holders = holders.filter(|rank| !withheld::has_pending_evictions(inputs, &rank.key));
    let mut holders: Vec<&QueueOrder> = holders.collect();
    holders.sort_by_key(|rank| pending_queue.turn(rank));
    let mut slots = SlotsTaken::new(most);
    let slots_of = |rank: &QueueOrder| {
        let shape = withheld::shape_of(inputs, &rank.key)?;
        inputs.pending.shapes.scopes(shape)
    };
    holders.retain(|rank| !slots.take(slots_of(rank)));
    holders.into_iter().map(|rank| rank.key.clone()).collect()
}

/// Jobs in the window of a queue that share a shape for which no reservation is possible.
pub(crate) fn unreservable(inputs: Inputs<'_>, window: &ReservationWindow<'_>) -> Vec<JobKey> {
    let cannot = |rank: &&&QueueOrder| {
        let shape = withheld::shape_of(inputs, &rank.key);
        let reserves = inputs.reservations.of(&rank.key).is_some();
        !reserves
            && shape.is_some_and(|shape| inputs.pending.shapes.is_unreservable(shape))
            && reservation::is_behind(inputs, window.queue, rank)
    };
    let jobs = window.jobs.iter().filter(cannot);
    jobs.map(|rank| rank.key.clone()).collect()
}

/// The shapes of the jobs in a window.
pub(crate) fn shapes_of<'a>(
    inputs: Inputs<'a>,
    window: &'a ReservationWindow<'_>,
) -> impl Iterator<Item = ShapeId> + 'a {
    window
        .jobs
        .iter()
        .filter_map(move |rank| withheld::shape_of(inputs, &rank.key))
}

/// How many slots a class of pools, or the headroom of a queue, has for a job of `queue`.
pub(crate) fn most_of_slot(inputs: Inputs<'_>, queue: &QueueName) -> usize {
    let of_class = inputs.config.reservations_per_class.max(1);
    of_class.max(holders_allowed(inputs, queue))
}

pub(crate) fn holders_allowed(inputs: Inputs<'_>, queue: &QueueName) -> usize {
    let policy = inputs.quota.policy(queue);
    let ordering = policy.map(|policy| policy.ordering).unwrap_or_default();
    if ordering == QueueOrdering::BestEffort {
        return 0;
    }
    let backfill = policy.map(|policy| policy.backfill).unwrap_or_default();
    match backfill.reservations {
        Some(most) => usize::try_from(most).unwrap_or(usize::MAX),
        None if backfill.conservative => inputs.config.conservative_depth,
        None => 1,
    }
}

/// Returns true if a job of an infeasible shape is evaluated all the same, since it may get a reservation: it
/// is in the window of its queue, it is not known to be unreservable, and its slots are not taken by
/// reservations of higher priority.
pub(crate) fn may_reserve(
    inputs: Inputs<'_>,
    window: &ReservationWindow<'_>,
    rank: &QueueOrder,
    shape: ShapeId,
) -> bool {
    if !window.contains(rank) || inputs.reservations.of(&rank.key).is_some() {
        return false;
    }
    if inputs.pending.is_unreservable(&rank.key)
        || (inputs.pending.shapes.is_unreservable(shape)
            && reservation::is_behind(inputs, window.queue, rank))
    {
        return false;
    }
    !is_outranked(inputs, window.queue, rank, shape)
}

/// Returns true if reservations of higher priority are known to have taken the slots of a job that lacks
/// capacity: then its nodes need not be planned.
pub(crate) fn is_outranked(
    inputs: Inputs<'_>,
    queue: &QueueName,
    rank: &QueueOrder,
    shape: ShapeId,
) -> bool {
    taken_slot(inputs, queue, rank, shape).is_some()
}

/// The slot that reservations of higher priority are known to have taken of a job that lacks capacity.
pub(crate) fn taken_slot<'a>(
    inputs: Inputs<'a>,
    queue: &'a QueueName,
    rank: &'a QueueOrder,
    shape: ShapeId,
) -> Option<&'a ReservationSlot> {
    let slots = inputs.pending.shapes.scopes(shape)?;
    let most = most_of_slot(inputs, queue);
    // Most often there are too few, whatever their priority.
    let mut counts = slots.iter().map(|slot| inputs.reservations.count(slot));
    if counts.all(|count| count < most) {
        return None;
    }
    let claim = SlotClaim { queue, rank, slots };
    slots::without(inputs, claim).get(&rank.key).copied()
}

/// Returns true if a job that a dropped reservation outranked must be rechecked although no slot became free
/// ([`crate::backfill::feasible::with_free_slots`] rechecks those for which one did). All slots of a class are still
/// taken: of the reservation's class, of another one that the job needs, or of one that other reservations connect with
/// it.
pub(crate) fn outranked_another(inputs: Inputs<'_>, gone: &Reservation) -> bool {
    let most = inputs.config.reservations_per_class.max(1);
    let least = most - usize::from(inputs.pending.shapes.are_of_several_classes());
    let mut slots = inputs.reservations.connected(&gone.scopes).into_iter();
    slots.any(|slot| {
        matches!(slot, ReservationSlot::Class(_)) && inputs.reservations.count(&slot) >= least
    })
}
