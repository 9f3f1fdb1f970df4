//! Who may have something kept, where more want that than may.
//!
//! In each queue the first jobs that could go some day, as many as its policy has it. Of those,
//! as many for each class of pools and each short queue as may: the queue of higher priority
//! first, then one that holds less than it deserves, then the job of higher priority, then who
//! was queued first. Shares do not count here, though they order queues: they change with every
//! job that starts or ends, and what was kept would be given away, before it was enough, for
//! whoever comes to stand first the next moment. So a reservation stands until its holder
//! starts, or one with a better claim comes.

use crate::api::facts::QueueOrdering;
use crate::api::ids::{JobKey, QueueName};
use crate::api::job::QueueOrder;
use crate::cycle::decide;
use crate::cycle::evaluate::Request;
use crate::pending::shapes::ShapeId;
use crate::reservation::reserve;
use crate::reservation::store::{Reservation, ReservationSlot};
use crate::state::{Engine, Inputs};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The jobs of a queue for whom something may be kept.
pub(crate) struct ReservationWindow {
    pub(crate) queue: QueueName,
    pub(crate) jobs: BTreeSet<QueueOrder>,
}

/// How good the claim of a job is: the policy is the order of the fields, the least is best.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReservationPriority<'a> {
    /// Of the queues from below the root down, higher first.
    priorities: SmallVec<[Reverse<i32>; 8]>,
    /// Whether its queue holds all that it deserves.
    satisfied: bool,
    rank: &'a QueueOrder,
}

/// Whether there may be one more of its kind. Those with the worst claims give way.
pub(crate) fn make_way(engine: &mut Engine, planned: &Reservation) -> bool {
    let most = most_of_scope(engine.inputs(), &planned.queue);
    let mine = reservation_priority(engine.inputs(), &planned.queue, &planned.rank);
    let mut giving_way: BTreeMap<JobKey, &ReservationSlot> = BTreeMap::new();
    for scope in &planned.scopes {
        let mut same: Vec<&Reservation> = engine
            .reservations
            .holders_of(scope)
            .filter(|kept| kept.rank != planned.rank)
            .filter(|kept| !giving_way.contains_key(&kept.rank.key))
            .collect();
        same.sort_by_cached_key(|kept| {
            reservation_priority(engine.inputs(), &kept.queue, &kept.rank)
        });
        while same.len() >= most {
            let Some(last) = same.pop() else { break };
            if mine >= reservation_priority(engine.inputs(), &last.queue, &last.rank) {
                engine.reservations.refuse(&planned.rank.key, scope);
                return false;
            }
            giving_way.insert(last.rank.key.clone(), scope);
        }
    }
    for (key, scope) in giving_way {
        reserve::drop_reservation_of(engine, &key);
        engine.reservations.refuse(&key, scope);
    }
    true
}

/// Nodes are kept for a job from now on: whoever keeps some of them too and has to leave alone
/// what that job keeps chooses anew, or it would go on keeping what it cannot have from those
/// behind it.
pub(crate) fn replan_beside(engine: &mut Engine, planned: &Reservation) {
    let shares_nodes = |kept: &&Reservation| {
        let mut nodes = kept.nodes.iter();
        nodes.any(|kept| {
            let mut planned = planned.nodes.iter();
            planned.any(|node| node.node == kept.node && node.cluster == kept.cluster)
        })
    };
    let has_to_leave_it = |kept: &&Reservation| {
        let shape = reserve::shape_of(engine.inputs(), &kept.rank.key);
        let shape = shape.and_then(|shape| engine.pending.shapes.get(shape));
        shape.is_some_and(|shape| {
            let request = Request {
                queue: &kept.queue,
                rank: &kept.rank,
                shape,
                tells: false,
            };
            reserve::binds(engine.inputs(), planned, request)
        })
    };
    let holders = engine.reservations.with_nodes();
    let holders = holders.filter(|kept| !kept.taking() && kept.rank != planned.rank);
    let holders = holders.filter(shares_nodes).filter(has_to_leave_it);
    let holders: Vec<JobKey> = holders.map(|kept| kept.rank.key.clone()).collect();
    for holder in holders {
        reserve::rouse_job(engine, &holder);
    }
}

/// How good the claim of a waiting job is.
fn reservation_priority<'a>(
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
        .map(|pending_queue| pending_queue.front(most))
        .unwrap_or_default();
    if inputs.quota.pending_limit(queue).is_some() {
        jobs.retain(|rank| decide::over_pending_limit(inputs, queue, rank).is_none());
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
        .filter_map(move |rank| reserve::shape_of(inputs, &rank.key))
}

/// How many may hold what one class, or the headroom of one queue, has, where a job of
/// `queue` asks.
fn most_of_scope(inputs: Inputs<'_>, queue: &QueueName) -> usize {
    let of_class = inputs.config.reservations_per_class.max(1);
    of_class.max(holders_allowed(inputs, queue))
}

fn holders_allowed(inputs: Inputs<'_>, queue: &QueueName) -> usize {
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

/// Whether a job that finds no room is judged all the same, for something may be kept for
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
    let growths = inputs.pending.freed.count();
    if inputs.reservations.is_hopeless(&rank.key, growths)
        || (inputs.pending.shapes.is_hopeless(shape, growths)
            && reserve::is_behind(inputs, &front.queue, rank))
    {
        return false;
    }
    !is_outdone(inputs, &front.queue, rank, shape)
}

/// Whether it is known, of a job that lacks room, that as many hold what it needs as may
/// whose claim is better: then where its nodes would be need not be found out.
pub(crate) fn is_outdone(
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
        let better = inputs.reservations.holders_of(scope).filter(|kept| {
            !kept.nodes.is_empty()
                && kept.rank.key != rank.key
                && reservation_priority(inputs, &kept.queue, &kept.rank) < mine
        });
        better.take(most).count() >= most
    };
    scopes.iter().any(full)
}

/// Whether a reservation that stands no more may have been one by which somebody was outdone
/// who is not asked for there being room for one more of its class ([`Self::is_settled`]):
/// as many as may keep that class still, or another one that somebody needs as well.
pub(crate) fn outdid(inputs: Inputs<'_>, gone: &Reservation) -> bool {
    let most = inputs.config.reservations_per_class.max(1);
    let least = most - usize::from(inputs.pending.shapes.are_of_several_classes());
    let classes = gone.scopes.iter();
    let mut classes = classes.filter(|scope| matches!(scope, ReservationSlot::Class(_)));
    classes.any(|class| inputs.reservations.count(class) >= least)
}
