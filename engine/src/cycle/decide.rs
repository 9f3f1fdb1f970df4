//! The loop that moves what can move.
//!
//! First what time and room have done to released jobs, then growth, then waiting jobs: the
//! first of the queue that goes first is judged; it is released, or its group sleeps. Each
//! turn does one or the other, so the loop ends; nothing that sleeps is looked at.

use crate::amounts::tally::Tally;
use crate::api::decision::{Decision, Decisions};
use crate::api::facts::QueueOrdering;
use crate::api::ids::{ClusterName, JobKey, PoolClass, QueueName, Time};
use crate::api::job::QueueOrder;
use crate::api::reason::Reason;
use crate::capacity::completion_grace;
use crate::cycle::elastic;
use crate::cycle::evaluate::{Block, Gate, Request, Verdict};
use crate::cycle::resize;
use crate::cycle::timers;
use crate::jobs::lifecycle;
use crate::jobs::sync;
use crate::pending::head_selector;
use crate::pending::head_selector::Candidate;
use crate::pending::inadmissible::{Inadmissible, RequeueCondition};
use crate::pending::infeasible;
use crate::pending::infeasible::{FeasibleShapes, Infeasible};
use crate::pending::pending_queue::{PendingQueue, Recheck};
use crate::pending::shapes::{RequestShape, ShapeId};
use crate::placement::empty;
use crate::preemption::evict;
use crate::quota::{QueueHeads, QueueId};
use crate::reservation::reserve;
use crate::reservation::store::{ReservationSlot, ReservedNode};
use crate::reservation::window;
use crate::state::{Engine, Inputs};
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The pause after a call that judged too many in vain.
const CUT_PAUSE_MS: i64 = 1_000;

/// Where no more groups of a queue than this are awake, they are gone through in order.
const FEW_AWAKE: usize = 32;

/// How many of the jobs that are blocked alike are named as changed.
const NAMED: usize = 10;

/// How the job of a queue is found that is to be judged next.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// All groups are gone through in order.
    InOrder,
    /// Those are asked that may be judged, as far as is known.
    ByName,
    /// What likely costs less.
    Cheaper,
}

/// Decides all that can be decided at `now`, up to the budget. A time before one that was
/// told already counts as that one.
pub(crate) fn decide(engine: &mut Engine, now: Time) -> Decisions {
    advance(engine, now);
    let mut decisions = Vec::new();
    completion_grace::end_lingering(engine);
    note_touched(engine);
    timers::settle_room(engine);
    timers::run_timers(engine, &mut decisions);
    timers::evict_drained(engine, &mut decisions);
    timers::renew_ends(engine);
    note_touched(engine);
    evict::rouse_takers(engine);
    resize::resize(engine, &mut decisions);
    let cut = release_pending(engine, &mut decisions);
    elastic::scale_up_elastic(engine, &mut decisions);
    let again = cut.then(|| engine.now.after(CUT_PAUSE_MS));
    // What grew with smaller pods than before may leave room to those who were judged first.
    let left = !cut && engine.pending.freed.is_any();
    let more = decisions.len() >= engine.config.decision_budget || left;
    Decisions {
        decisions,
        more,
        cut,
        wake_at: wake_at(engine.inputs()).into_iter().chain(again).min(),
    }
}

pub(crate) fn advance(engine: &mut Engine, now: Time) {
    engine.now = engine.now.max(now);
    engine.quota.advance(engine.now);
}

/// Wakes those who wait for what changed in the clusters.
pub(crate) fn note_touched(engine: &mut Engine) {
    let touched = engine.capacity.room.take_touched();
    if !touched.is_empty() {
        refleet(engine, touched.iter());
    }
    let freed = engine.capacity.room.take_grown();
    if !freed.is_empty() {
        engine.jobs.retry_scale_up();
        engine.pending.backoff.moved();
        infeasible::note_grown(engine, freed);
    }
}

/// Some clusters are others: the fleet's totals change, and what could never fit is judged
/// anew.
pub(crate) fn refleet<'a>(engine: &mut Engine, clusters: impl Iterator<Item = &'a ClusterName>) {
    for cluster in clusters {
        let total = cluster_total(engine.inputs(), cluster);
        engine.quota.set_fleet(cluster, &total);
    }
    engine
        .capacity
        .eligibility
        .renew(&engine.capacity.clusters, &engine.capacity.room);
    // A node that is new, or larger than it was, may take more of an elastic gang.
    engine.jobs.retry_scale_up();
    bounds_moved(engine);
    engine.pending.backoff.moved();
    engine.pending.shapes.forget_fits();
    engine.pending.queues.wake(&RequeueCondition::Fleet);
}

/// Wakes those who wait for bounds that are others now.
pub(crate) fn bounds_moved(engine: &mut Engine) {
    for queue in engine.quota.take_changed_bounds() {
        engine
            .pending
            .queues
            .wake(&RequeueCondition::Bounds(queue.clone()));
        sync::wake_for_quota(engine, &queue);
        // Something may be kept for a job that it could not be let go with any more.
        let holders = engine.reservations.holders_in(&queue);
        let holders: Vec<JobKey> = holders.map(|rank| rank.key.clone()).collect();
        holders
            .iter()
            .for_each(|holder| reserve::rouse_job(engine, holder));
        engine.changed.queues.insert(queue);
    }
}

/// Judges what is awake, first in order first, as far as the budget goes. Whether it stopped
/// for having judged too many in vain: those who are left stay awake.
fn release_pending(engine: &mut Engine, decisions: &mut Vec<Decision>) -> bool {
    let mut in_vain = 0;
    while decisions.len() < engine.config.decision_budget {
        let Some(Candidate {
            queue,
            shape,
            rank,
            only_takes,
        }) = head_selector::next_candidate(engine)
        else {
            infeasible::settle_grown(engine);
            name_woken(engine);
            return false;
        };
        let Some(wanted) = engine.pending.shapes.get(shape).map(Arc::clone) else {
            continue;
        };
        if only_takes && evict::takes_nothing(engine, &queue, &rank, (shape, &wanted)) {
            continue;
        }
        in_vain += 1;
        if in_vain > engine.config.most_in_vain {
            return true;
        }
        let request = Request {
            queue: &queue,
            rank: &rank,
            shape: &wanted,
            tells: false,
        };
        // An elastic gang is stopped by what stops its smallest size, and keeps that much.
        let least = crate::jobs::elastic::smallest(&wanted);
        let least = Request {
            shape: least.as_ref().unwrap_or(&wanted),
            ..request
        };
        match judge_knowing(engine, request, shape) {
            Verdict::Go(shares) => {
                in_vain = 0;
                decisions.extend(lifecycle::release(engine, &rank.key, shares));
                note_touched(engine);
                unsettle_holders(engine, &rank.key);
                reserve::rouse_front(engine, &queue);
                rouse_limited(engine, &queue, wanted.user_of(&rank.key));
                look_behind(engine, &queue, (shape, &wanted));
            }
            Verdict::Blocked(block) => {
                match block.gate {
                    Gate::Room => engine.pending.shapes.note_could_fit(shape, true),
                    Gate::Never if block.reason == Reason::ExceedsFleet => {
                        engine.pending.shapes.note_could_fit(shape, false);
                    }
                    Gate::Never | Gate::Limit | Gate::Quota(..) | Gate::Reserved => {}
                }
                decisions.extend(evict::take_for_group(engine, least, shape, &block));
                reserve::reserve_for(engine, least, &block);
                match block.infeasible {
                    Some(why) => infeasible(engine, &queue, shape, block.reason, why),
                    None => put_to_sleep(engine, &queue, shape, *block),
                }
            }
        }
    }
    false
}

/// Who stands first now of those who want what one got: most often it is entitled to nothing,
/// and need not be asked for that alone.
fn look_behind(engine: &mut Engine, queue: &QueueName, (id, shape): (ShapeId, &RequestShape)) {
    if !evict::lets_take(engine.inputs(), queue) || !evict::may_take(engine.inputs(), queue, id) {
        return;
    }
    let pending_queue = engine.pending.queues.pending_queue(queue);
    let next = pending_queue.and_then(|pending_queue| pending_queue.first_awake(id));
    if let Some(rank) = next.map(|(rank, _)| rank.clone()) {
        evict::takes_nothing(engine, queue, &rank, (id, shape));
    }
}

/// The verdict on a job that knows whether the empty fleet, and the bounds of its queue on
/// pools, could ever let it go: what could never start stops nobody, whatever it lacks first.
fn judge_knowing(engine: &mut Engine, request: Request<'_>, id: ShapeId) -> Verdict {
    let verdict = elastic::judge(engine.inputs(), request);
    let gate = match &verdict {
        Verdict::Blocked(block) => &block.gate,
        Verdict::Go(_) => return verdict,
    };
    if matches!(gate, Gate::Never | Gate::Limit) {
        return verdict;
    }
    let mut could = true;
    let asks = matches!(gate, Gate::Quota(..)) && !request.shape.demand.elastic;
    if asks && engine.pending.shapes.could_fit(request.shape).is_none() {
        could = empty::could_fit(engine.inputs(), request.shape, &BTreeSet::new());
        engine.pending.shapes.note_could_fit(id, could);
    }
    let bounded = engine.quota.bounds_pools(request.queue);
    if could
        && bounded
        && engine
            .pending
            .shapes
            .let_by(request.shape, request.queue)
            .is_none()
    {
        let least = crate::jobs::elastic::smallest(request.shape);
        could = empty::could_be_let(
            engine.inputs(),
            request.queue,
            least.as_ref().unwrap_or(request.shape),
        );
        engine.pending.shapes.note_let_by(id, request.queue, could);
    }
    if could {
        verdict
    } else {
        elastic::judge(engine.inputs(), request)
    }
}

/// No room is found for what a group wants: for nobody else who wants the same either.
fn infeasible(
    engine: &mut Engine,
    queue: &QueueName,
    shape: ShapeId,
    reason: Reason,
    why: Infeasible,
) {
    engine
        .pending
        .shapes
        .note_shut(shape, why, engine.pending.freed.count());
    if engine.pending.queues.is_fronted(shape) {
        reserve::guess_scopes(engine, shape);
    }
    engine.pending.queues.note_judged(queue, shape);
    if engine.pending.queues.note_reason(queue, shape, reason) {
        name_group(engine, queue, shape);
    }
}

/// Groups that were woken for something else and find no room are stopped by that now.
fn name_woken(engine: &mut Engine) {
    for (queue, shape) in engine.pending.queues.take_woken() {
        let reason = match engine.pending.shapes.infeasible(shape) {
            Some(Infeasible::NoRoom) => Reason::WaitingForRoom,
            Some(Infeasible::Withheld(_)) => Reason::ReservedForAnother,
            None => continue,
        };
        if engine.pending.queues.note_reason(&queue, shape, reason) {
            name_group(engine, &queue, shape);
        }
    }
}

fn put_to_sleep(engine: &mut Engine, queue: &QueueName, shape: ShapeId, block: Block) {
    let sleep = Inadmissible {
        reason: block.reason,
        admissible_later: !matches!(block.gate, Gate::Never | Gate::Limit),
        conditions: block.conditions,
    };
    if engine.pending.queues.sleep(queue, shape, sleep) {
        name_group(engine, queue, shape);
    }
}

/// Names the first jobs of a group as changed.
fn name_group(engine: &mut Engine, queue: &QueueName, shape: ShapeId) {
    let pending_queue = engine.pending.queues.pending_queue(queue);
    let named = pending_queue
        .into_iter()
        .flat_map(|pending_queue| pending_queue.group(shape))
        .take(NAMED);
    engine
        .changed
        .jobs
        .extend(named.map(|rank| rank.key.clone()));
    engine.changed.queues.insert(queue.clone());
}

/// What was released may have taken what was kept: those holders choose anew. And it has
/// moved its queue back in the order: those who were stopped by a holder there may not be
/// any more.
fn unsettle_holders(engine: &mut Engine, released: &JobKey) {
    let Some(job) = engine.jobs.released(released) else {
        return;
    };
    let admission = &job.admission;
    let path = engine.quota.path(&admission.queue);
    let on_its_nodes = |node: &ReservedNode| {
        admission.shares.iter().any(|share| {
            share.cluster == node.cluster && share.slots.iter().any(|s| s.node == node.node)
        })
    };
    let short_of =
        |scope: &ReservationSlot| matches!(scope, ReservationSlot::Headroom(q) if path.contains(q));
    let mut met = Vec::new();
    let mut order_moved = false;
    for kept in engine.reservations.iter() {
        let its_path = engine.quota.path(&kept.queue);
        order_moved |= its_path.iter().skip(1).any(|queue| path.contains(queue));
        if kept.nodes.iter().any(on_its_nodes)
            || kept.scopes.iter().any(short_of)
            || path.contains(&kept.queue)
        {
            met.push(kept.rank.key.clone());
        }
    }
    let queue = admission.queue.clone();
    for holder in met {
        reserve::rouse_job(engine, &holder);
    }
    if order_moved {
        engine
            .pending
            .queues
            .wake_others(&RequeueCondition::Reservation, &queue);
    }
}

/// A user has reached a limit in a queue: the user's jobs that head strict queues below it
/// hold up no others any more, and are evaluated again.
fn rouse_limited(engine: &mut Engine, queue: &QueueName, user: &str) {
    let strict = engine.quota.strict_queues_at_limit(queue, user).into_iter();
    let heads = strict.filter_map(|queue| {
        let pending_queue = engine.pending.queues.pending_queue(queue)?;
        pending_queue.first_that_may_go()
    });
    let heads: Vec<JobKey> = heads.map(|rank| rank.key.clone()).collect();
    for head in heads {
        let shape = reserve::shape_of(engine.inputs(), &head)
            .and_then(|shape| engine.pending.shapes.get(shape));
        if shape.is_some_and(|shape| shape.user_of(&head) == user) {
            reserve::rouse_job(engine, &head);
        }
    }
}

/// Drops the reservations of jobs that are past the pending limit of a queue: they would have
/// them for ever.
pub(crate) fn drop_over_limit(engine: &mut Engine, queue: &QueueName) {
    if engine.quota.pending_limit(queue).is_none() {
        return;
    }
    let holders = engine.reservations.holders_in(queue);
    let over = holders.filter(|rank| over_pending_limit(engine.inputs(), queue, rank).is_some());
    let over: Vec<JobKey> = over.map(|rank| rank.key.clone()).collect();
    for key in over {
        reserve::drop_reservation_of(engine, &key);
    }
}

/// When something may have to be decided although no event came.
fn wake_at(inputs: Inputs<'_>) -> Option<Time> {
    let timer = inputs.jobs.next_timer();
    // An end that does not come moves the reservations that count on it.
    let end = inputs.jobs.next_end();
    let end = end.filter(|_| !inputs.reservations.is_empty());
    let times = timer.into_iter().chain(end);
    let lingers = inputs.capacity.completion_grace.next();
    times
        .chain(inputs.pending.backoff.next())
        .chain(lingers)
        .min()
}

/// What the usable nodes of a cluster have together, by class; nothing where the cluster
/// is not usable.
pub(crate) fn cluster_total(
    inputs: Inputs<'_>,
    cluster: &ClusterName,
) -> BTreeMap<PoolClass, Tally> {
    let mut total: BTreeMap<PoolClass, Tally> = BTreeMap::new();
    let usable = inputs
        .capacity
        .clusters
        .get(cluster)
        .is_some_and(|fact| fact.usable);
    let room = inputs.capacity.room.cluster(cluster).filter(|_| usable);
    let nodes = room.into_iter().flat_map(|room| room.nodes().values());
    for node in nodes.filter(|node| node.fact.usable) {
        let class = total.entry(node.fact.class.clone()).or_default();
        class.add(&node.fact.allocatable, 1);
    }
    total
}

/// The first jobs of a queue; none where it takes no jobs.
pub(crate) fn front_of(inputs: Inputs<'_>, id: QueueId) -> QueueHeads {
    if !inputs.quota.takes_jobs(id) {
        return QueueHeads::default();
    }
    let name = inputs.quota.name(id);
    let head = head_of(inputs, name);
    let pending_queue = inputs.pending.queues.pending_queue(name);
    let line = pending_queue.and_then(|pending_queue| pending_queue.ranks().first());
    QueueHeads {
        head: head.cloned(),
        pending: line.cloned(),
    }
}

/// The job of a queue to be judged next, if any may be: those beyond the limit of who may
/// compete may not, and wait for places in line, not for a wake.
pub(crate) fn candidate_of<'a>(
    inputs: Inputs<'a>,
    queue: &QueueName,
    feasible: &FeasibleShapes<'_>,
) -> Option<(&'a QueueOrder, ShapeId)> {
    let found = candidate_by(inputs, queue, feasible, Way::Cheaper);
    // When nobody may be judged any more all ways find nobody: only here can they differ.
    debug_assert_eq!(found, candidate_by(inputs, queue, feasible, Way::InOrder));
    debug_assert_eq!(found, candidate_by(inputs, queue, feasible, Way::ByName));
    found
}

/// The same, found in this way; what is found does not depend on it.
fn candidate_by<'a>(
    inputs: Inputs<'a>,
    queue: &QueueName,
    feasible: &FeasibleShapes<'_>,
    way: Way,
) -> Option<(&'a QueueOrder, ShapeId)> {
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let front = LazyCell::new(|| window::front(inputs, queue));
    let takes = LazyCell::new(|| evict::lets_take(inputs, queue));
    let ordering = inputs.quota.ordering(queue);
    let strict = ordering == QueueOrdering::StrictFifo;
    let may = |rank: &QueueOrder, shape| {
        // Who holds up all behind it is judged once in any case: what its own queue would
        // never let go holds up nobody, and of that the room for what it wants tells nothing.
        (strict && !pending_queue.was_judged(shape))
            || infeasible::may_find_room(inputs, feasible, queue, rank, shape)
            || window::may_reserve(inputs, &front, rank, shape)
            || (*takes && evict::may_take(inputs, queue, shape))
            || is_due(inputs, queue, pending_queue, shape)
    };
    let kept = inputs.pending.shapes.infeasible_shapes().kept();
    let looking = takes.then(|| pending_queue.unlooked());
    let looking_at = looking.map_or(0, BTreeSet::len);
    let few = feasible.open.len() + kept.len() + looking_at + pending_queue.due().len();
    let in_order = match way {
        Way::InOrder => true,
        Way::ByName => false,
        Way::Cheaper => few * 2 + FEW_AWAKE > pending_queue.awake(),
    };
    let candidate = if strict || in_order {
        pending_queue.candidate(ordering, may)
    } else {
        // Of all others it is known that they may not.
        let named = feasible
            .open
            .keys()
            .chain(kept)
            .chain(pending_queue.due().keys())
            .chain(looking.into_iter().flatten());
        let named = named.copied().chain(window::shapes_of(inputs, &front));
        let firsts = named.filter_map(|shape| pending_queue.first_awake(shape));
        firsts.filter(|(rank, shape)| may(rank, *shape)).min()
    }?;
    let competes = over_pending_limit(inputs, queue, candidate.0).is_none();
    competes.then_some(candidate)
}

/// Whether a group is judged once more, whatever is known of the room for what it wants.
pub(crate) fn is_due(
    inputs: Inputs<'_>,
    queue: &QueueName,
    pending_queue: &PendingQueue,
    shape: ShapeId,
) -> bool {
    match pending_queue.due().get(&shape) {
        Some(Recheck::Surely) => true,
        Some(Recheck::IfNearer) => infeasible::nodes_are_nearer(inputs, queue, shape),
        None => false,
    }
}

/// The first job of a queue that is awake, if it may compete: its queue is asked for who is
/// to be judged.
pub(crate) fn head_of<'a>(inputs: Inputs<'a>, queue: &QueueName) -> Option<&'a QueueOrder> {
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let (head, _) = pending_queue.candidate(inputs.quota.ordering(queue), |_, _| true)?;
    over_pending_limit(inputs, queue, head)
        .is_none()
        .then_some(head)
}

/// The place of a waiting job that is not among the first who may compete in its queue, with
/// how many may.
pub(crate) fn over_pending_limit(
    inputs: Inputs<'_>,
    queue: &QueueName,
    rank: &QueueOrder,
) -> Option<(usize, u32)> {
    let limit = inputs.quota.pending_limit(queue)?;
    let place = inputs
        .pending
        .queues
        .pending_queue(queue)?
        .ranks()
        .position(rank)?;
    (place > limit as usize).then_some((place, limit))
}
