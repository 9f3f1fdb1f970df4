//! The loop that moves what can move.
//!
//! First what time and capacity did to admitted jobs, then growth, then pending jobs: the next head is
//! evaluated, and is admitted, or its class is parked. Each turn does one or the other, so the loop
//! ends; nothing that is parked is looked at.

use crate::api::decision::{Decision, Decisions};
use crate::cycle::next_head::{HeadCandidate, HeadSearch, SearchCost};
use crate::cycle::react::{Change, react};
use crate::cycle::wake;
use crate::cycle::{
    elastic, lifecycle, next_head, pod_charges, preempt, recovery, replan, reserve, resize, resync,
    spare, timers,
};
use crate::evaluation::sizes;
use crate::pending::inadmissible::Inadmissible;
use crate::pending::infeasible::Infeasible;
use crate::pending::shapes::{RequestShape, ShapeId};
use crate::placement::request::{Block, Gate, Request, Verdict};
use crate::placement::{empty, request};
use crate::preemption::evict;
use crate::state::{Engine, Inputs};
use facts::{JobKey, QueueName, Reason, Time};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The pause after a call that stopped because a class is evaluated in a circle.
const CUT_PAUSE_MS: i64 = 1_000;

/// To move so many queues in the order, or to ask them for a job, counts as one evaluation.
const QUEUES_AS_ONE: usize = 4;

/// To admit a job counts as so many evaluations, its own among them.
const ADMISSION_AS: usize = 4;

/// A call does no more than take over so many clusters of which nodes changed: most often all of them are new.
const MANY_CLUSTERS: usize = 128;

/// To look at so many clusters counts as one evaluation: each plan does.
const CLUSTERS_AS_ONE: usize = 256;

/// To plan a reservation counts as so many evaluations.
const RESERVATION_AS: usize = 4;

/// To ask so many classes counts as one evaluation.
const CLASSES_AS_ONE: usize = 32;

/// To note so many shapes as infeasible, or to wake so many classes or list them by other slots, counts as one
/// evaluation.
const NOTED_AS_ONE: usize = 32;

/// The most classes that one step lists by other slots, as far as it has a choice.
pub(crate) const MOVED_AT_ONCE: usize = 2_048;

/// Of jobs that are blocked alike, how many are reported as changed.
pub(crate) const NAMED: usize = 10;

/// Decides all that can be decided at `now`, up to the budget. A time before the latest observed one
/// counts as that one.
pub(crate) fn decide(engine: &mut Engine, now: Time) -> Decisions {
    advance(engine, now);
    let mut decisions = Vec::new();
    engine.capacity.end_expired_grace(engine.now);
    let is_new = engine.capacity.touched_len() >= MANY_CLUSTERS;
    react(engine, Change::Capacity);
    recovery::check_pods(engine);
    pod_charges::settle(engine);
    timers::settle_room(engine, &mut decisions);
    spare::settle(engine);
    timers::run_timers(engine, &mut decisions);
    timers::evict_drained(engine, &mut decisions);
    timers::renew_ends(engine);
    react(engine, Change::Capacity);
    if !resync::resync(engine) || is_new {
        return Decisions {
            decisions,
            more: true,
            wake_at: wake_at(engine.inputs()),
            ..Decisions::default()
        };
    }
    react(engine, Change::Time);
    resize::resize(engine, &mut decisions);
    let end = release_pending(engine, &mut decisions);
    // What pending jobs may take is not left to grow into before all of them had their turn.
    let mut grows = false;
    if end != CallEnd::AtBudget && engine.jobs.take_scale_up_due() {
        // What kept a job that is not elastic from growing may have been reserved for one of them.
        resize::resize(engine, &mut decisions);
        grows = elastic::scale_up_elastic(engine, &mut decisions);
    }
    let cut = end == CallEnd::InCircle;
    let again = cut.then(|| engine.now.after(CUT_PAUSE_MS));
    // A gang that grew with smaller pods than before may leave capacity to jobs evaluated before it.
    // A decision may cover what was charged for pods, and free quota by that.
    let settled = pod_charges::settle(engine);
    let left = !cut && (engine.pending.freed().is_any() || settled || grows);
    let full = decisions.len() >= engine.config.decision_budget || end == CallEnd::AtBudget;
    let mut more = full || left;
    if !more {
        engine.pending.fruitless.forget();
        more = !cut && timers::are_due(engine.inputs());
    }
    Decisions {
        decisions,
        more,
        cut,
        fruitless_reservations: std::mem::take(&mut engine.fruitless_reservations),
        wake_at: wake_at(engine.inputs()).into_iter().chain(again).min(),
    }
}

pub(crate) fn advance(engine: &mut Engine, now: Time) {
    engine.now = engine.now.max(now);
    engine.quota.advance(engine.now);
}

/// Why no further class is evaluated in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallEnd {
    /// All that may go were evaluated.
    Done,
    /// There are as many decisions or evaluations as one call makes: the classes that are left stay active.
    AtBudget,
    /// A class is evaluated in a circle, which is a defect.
    InCircle,
}

/// Evaluates active classes in order, up to the budgets.
fn release_pending(engine: &mut Engine, decisions: &mut Vec<Decision>) -> CallEnd {
    let mut evaluations = 0;
    let mut searched = SearchCost::default();
    while decisions.len() < engine.config.decision_budget
        && evaluations + in_evaluations(searched) < engine.config.evaluation_budget
    {
        let (search, cost) = next_head::next_candidate(engine);
        searched.add(cost);
        let HeadCandidate {
            queue,
            shape,
            rank,
            only_takes,
        } = match search {
            HeadSearch::Found(candidate) => candidate,
            HeadSearch::RankedSome => continue,
            HeadSearch::NoneLeft if replan::replan_sooner(engine, &mut evaluations) => continue,
            HeadSearch::NoneLeft if preempt::grant_deferred(engine) => continue,
            HeadSearch::NoneLeft => {
                wake::settle_freed(engine);
                name_woken(engine);
                return CallEnd::Done;
            }
        };
        let Some(wanted) = engine.pending.shapes.get(shape).map(Arc::clone) else {
            continue;
        };
        let each = 1 + engine.capacity.places().len() / CLUSTERS_AS_ONE;
        evaluations += each;
        if only_takes && preempt::takes_nothing(engine, &queue, &rank, &wanted) {
            evaluations += preempt::note_not_entitled(engine, &queue);
            continue;
        }
        engine.pending.queues.begin_evaluation(&queue, shape);
        if engine.pending.fruitless.count(&queue, shape) {
            return CallEnd::InCircle;
        }
        let request = Request {
            queue: &queue,
            rank: &rank,
            shape: &wanted,
            verbose: false,
        };
        // An elastic gang is blocked by what blocks its smallest size, and reserves that much.
        let least = crate::jobs::elastic::smallest(&wanted);
        let least = Request {
            shape: least.as_ref().unwrap_or(&wanted),
            ..request
        };
        match evaluate_knowing(engine, request, shape) {
            Verdict::Go(shares) => {
                evaluations += ADMISSION_AS - 1;
                engine.pending.fruitless.forget();
                let reserved = engine.reservations.of(&rank.key);
                let had_nodes = reserved.is_some_and(|kept| !kept.nodes.is_empty());
                decisions.extend(lifecycle::release(engine, &rank.key, shares));
                spare::settle(engine);
                let (key, queue) = (&rank.key, &queue);
                let admitted = Change::Admitted {
                    key,
                    queue,
                    had_nodes,
                };
                react(engine, admitted);
                look_behind(engine, queue, (shape, &wanted));
            }
            Verdict::Blocked(mut block) => {
                match block.gate {
                    Gate::Room => engine.pending.shapes.note_fits_empty_fleet(shape, true),
                    Gate::Never if block.reason == Reason::ExceedsFleet => {
                        engine.pending.shapes.note_fits_empty_fleet(shape, false);
                    }
                    Gate::Never | Gate::Limit | Gate::Quota(..) | Gate::Reserved => {}
                }
                if matches!(block.gate, Gate::Reserved) && reserve::drop_surplus(engine, request) {
                    // What it was blocked by may be one of those. Its class is active still.
                    continue;
                }
                decisions.extend(match preempt::is_deferred(engine, least, shape, &block) {
                    true => preempt::release_served(engine, least, shape),
                    false => preempt::take_for_group(engine, least, shape, &block),
                });
                let (slots, plans) = reserve::reserve_for(engine, least, &block);
                evaluations += plans * RESERVATION_AS * each;
                block.conditions.extend(slots);
                match block.infeasible {
                    Some(why) => {
                        let noted = infeasible(engine, &queue, shape, block.reason, &why);
                        evaluations += noted / NOTED_AS_ONE;
                    }
                    None => park(engine, &queue, shape, *block),
                }
            }
        }
    }
    CallEnd::AtBudget
}

/// Returns what searches for heads cost, in evaluations.
fn in_evaluations(searched: SearchCost) -> usize {
    searched.queues / QUEUES_AS_ONE
        + searched.classes / CLASSES_AS_ONE
        + searched.moved / NOTED_AS_ONE
}

/// The verdict on a job that also says whether the empty fleet and the bounds of its queue on pools
/// could ever admit it: a job that can never start must not block others, whatever it lacks first.
fn evaluate_knowing(engine: &mut Engine, request: Request<'_>, id: ShapeId) -> Verdict {
    let verdict = sizes::evaluate(engine.inputs(), request);
    let gate = match &verdict {
        Verdict::Blocked(block) => &block.gate,
        Verdict::Go(_) => return verdict,
    };
    if matches!(gate, Gate::Never | Gate::Limit) {
        return verdict;
    }
    let mut could = true;
    let least = crate::jobs::elastic::smallest(request.shape);
    let least = least.as_ref().unwrap_or(request.shape);
    if matches!(gate, Gate::Quota(..))
        && engine
            .pending
            .shapes
            .fits_empty_fleet(request.shape)
            .is_none()
    {
        could = empty::fits_empty_fleet(engine.inputs(), least, &BTreeSet::new());
        engine.pending.shapes.note_fits_empty_fleet(id, could);
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
        could = empty::fits_capability(engine.inputs(), request.queue, least);
        engine.pending.shapes.note_let_by(id, request.queue, could);
    }
    if could {
        verdict
    } else {
        sizes::evaluate(engine.inputs(), request)
    }
}

/// The shape of a class fits nowhere: that holds for every class of the shape, and of those that would fit on the same
/// nodes. Returns how many shapes were noted, and classes listed by other slots.
fn infeasible(
    engine: &mut Engine,
    queue: &QueueName,
    shape: ShapeId,
    reason: Reason,
    why: &Infeasible,
) -> usize {
    let noted = engine.pending.note_infeasible(queue, shape, why);
    let mut moved = 0;
    for alike in noted.iter().copied() {
        if matches!(why, Infeasible::Withheld(_)) {
            wake::mark_owners_dirty(engine, alike);
        }
        if engine.pending.queues.is_in_window(alike) {
            match moved < MOVED_AT_ONCE {
                true => moved += reserve::guess_scopes(engine, alike),
                // The queues guess for themselves when they are moved in the order.
                false => engine.pending.queues.note_shape_changed(alike),
            }
        }
    }
    if engine.pending.queues.note_reason(queue, shape, reason) {
        name_class(engine, queue, shape);
    }
    noted.len() + moved
}

fn park(engine: &mut Engine, queue: &QueueName, shape: ShapeId, block: Block) {
    let parked = Inadmissible {
        reason: block.reason,
        admissible_later: !matches!(block.gate, Gate::Never | Gate::Limit),
        conditions: block.conditions,
    };
    if engine.pending.queues.park(queue, shape, parked) {
        name_class(engine, queue, shape);
    }
}

/// Drops the reservations of jobs beyond the pending limit of a queue: they would hold them for ever.
pub(crate) fn drop_over_limit(engine: &mut Engine, queue: &QueueName) {
    if engine.quota.pending_limit(queue).is_none() {
        return;
    }
    let holders = engine.reservations.holders_in(queue);
    let over =
        holders.filter(|rank| request::over_pending_limit(engine.inputs(), queue, rank).is_some());
    let over: Vec<JobKey> = over.map(|rank| rank.key.clone()).collect();
    for key in over {
        reserve::drop_reservation_of(engine, &key);
    }
}

/// The time at which something may have to be decided although no event came.
fn wake_at(inputs: Inputs<'_>) -> Option<Time> {
    let timer = inputs.jobs.next_timer();
    // A job that does not end when expected moves the reservations that count on it.
    let end = inputs.jobs.next_end();
    let end = end.filter(|_| !inputs.reservations.is_empty());
    let times = timer.into_iter().chain(end);
    let grace = inputs.capacity.next_grace_end();
    times
        .chain(inputs.pending.backoff.next())
        .chain(grace)
        .min()
}

/// Notes whether the job that is first in the class now is entitled to preempt: most often it is not,
/// and need not be evaluated for that alone.
fn look_behind(engine: &mut Engine, queue: &QueueName, (id, shape): (ShapeId, &RequestShape)) {
    let inputs = engine.inputs();
    if !evict::lets_take(inputs, queue) {
        return;
    }
    let Some(pending_queue) = inputs.pending.queues.pending_queue(queue) else {
        return;
    };
    let next = pending_queue.first_active(id).map(|(rank, _)| rank);
    let next = next.filter(|rank| evict::may_take(inputs, pending_queue, (queue, rank), id));
    if let Some(rank) = next.cloned() {
        preempt::takes_nothing(engine, queue, &rank, shape);
    }
}

/// Classes that were woken for another condition and whose shape is infeasible are blocked by that now.
fn name_woken(engine: &mut Engine) {
    for (queue, shape) in engine.pending.queues.take_woken() {
        let reason = match engine.pending.shapes.infeasible(shape) {
            Some(Infeasible::NoRoom) => Reason::WaitingForRoom,
            Some(Infeasible::Withheld(_)) => Reason::ReservedForAnother,
            None => continue,
        };
        if engine.pending.queues.note_reason(&queue, shape, reason) {
            name_class(engine, &queue, shape);
        }
    }
}

/// Reports the first jobs of a class as changed.
fn name_class(engine: &mut Engine, queue: &QueueName, shape: ShapeId) {
    let pending_queue = engine.pending.queues.pending_queue(queue);
    let named = pending_queue
        .into_iter()
        .flat_map(|pending_queue| pending_queue.class(shape))
        .take(NAMED);
    engine
        .changed
        .jobs
        .extend(named.map(|rank| rank.key.clone()));
    engine.changed.queues.insert(queue.clone());
}

/// Reports the first jobs of a queue as changed.
pub(crate) fn name_first(engine: &mut Engine, queue: &QueueName) {
    let pending_queue = engine.pending.queues.pending_queue(queue);
    let first = pending_queue
        .into_iter()
        .flat_map(|pending_queue| pending_queue.ranks().iter())
        .take(10);
    engine
        .changed
        .jobs
        .extend(first.map(|rank| rank.key.clone()));
    engine.changed.queues.insert(queue.clone());
}
