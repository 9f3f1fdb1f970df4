//! Carries out preemption: tries it for a blocked job, evicts the victims, reserves what they free.
//!
//! What is decided is decided once: victims are terminating, and count as gone for every other
//! evaluation; the preemptor holds a reservation on exactly what it will use, and evicts nothing more
//! while it waits. If the preemptor goes away, what was decided stands. An attempt that found nothing
//! is repeated when something has changed, at most once in
//! [`crate::config::EngineConfig::take_retry_ms`], so that many blocked jobs stay cheap.

use crate::api::decision::Decision;
use crate::api::job::QueueOrder;
use crate::backfill::withheld;
use crate::cycle::react::{Change, react};
use crate::cycle::{lifecycle, reserve};
use crate::evaluation::sizes;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::shapes::{RequestShape, ShapeId};
use crate::placement::request::{Block, Gate, Request, Verdict, owner_of};
use crate::preemption::evict::Taking;
use crate::preemption::victims::Victim;
use crate::preemption::{evict, pending_evictions};
use crate::quota::OwnedRequest;
use crate::reservation::store::Reservation;
use crate::state::{Engine, Inputs};
use facts::{JobKey, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many classes of a queue are asked at once whether they are entitled to anything.
const ASKED_AT_ONCE: usize = 64;

/// Evicts for the first job of a blocked class, and for the jobs after it: what blocks one blocks them
/// all, but what is evicted for one is not enough for two.
pub(crate) fn take_for_group(
    engine: &mut Engine,
    request: Request<'_>,
    shape: ShapeId,
    block: &Block,
) -> Vec<Decision> {
    let mut decisions = release_served(engine, request, shape);
    let mut next = Some(request.rank.clone());
    while let Some(rank) = next.filter(|_| decisions.len() < engine.config.decision_budget) {
        let pending_queue = engine.pending.queues.pending_queue(request.queue);
        next = pending_queue
            .and_then(|pending_queue| pending_queue.after(shape, &rank))
            .cloned();
        let request_here = Request {
            rank: &rank,
            ..request
        };
        let kept = engine.reservations.of(&rank.key);
        if kept.is_some_and(|kept| !kept.pending_evictions.is_empty()) {
            continue;
        }
        if kept.is_some_and(Reservation::taking) {
            // All its victims are gone, and it still cannot be admitted.
            reserve::drop_reservation_of(engine, &rank.key);
        }
        let taken = take_for(engine, request_here, block);
        if taken.is_empty() && !withheld::has_pending_evictions(engine.inputs(), &rank.key) {
            break;
        }
        decisions.extend(taken);
    }
    decisions
}

/// Returns true if nobody is evicted for a class until all others were evaluated ([`crate::pending::deferred`]).
pub(crate) fn is_deferred(
    engine: &mut Engine,
    request: Request<'_>,
    shape: ShapeId,
    block: &Block,
) -> bool {
    matches!(block.gate, Gate::Reserved)
        && evict::lets_take(engine.inputs(), request.queue)
        && !engine.pending.backoff.rests(&request.rank.key)
        && engine.pending.deferred.defer(request.queue, shape)
}

/// Has the classes evaluated that waited for all others. Returns whether there are any.
pub(crate) fn grant_deferred(engine: &mut Engine) -> bool {
    let granted = engine.pending.deferred.grant();
    for (queue, shape) in &granted {
        engine.pending.queues.recheck(queue, *shape);
    }
    !granted.is_empty()
}

/// Evaluates the preemptors of a class whose victims are all gone, whatever blocks the first job: what
/// was freed is reserved for them against every other job, and would idle for ever.
pub(crate) fn release_served(
    engine: &mut Engine,
    request: Request<'_>,
    shape: ShapeId,
) -> Vec<Decision> {
    let is_served = |rank: &&QueueOrder| {
        let kept = engine.reservations.of(&rank.key);
        kept.is_some_and(Reservation::is_served)
            && *rank != request.rank
            && withheld::shape_of(engine.inputs(), &rank.key) == Some(shape)
    };
    let holders = engine.reservations.holders_in(request.queue);
    let served: Vec<QueueOrder> = holders.filter(is_served).cloned().collect();
    let mut decisions = Vec::new();
    for rank in &served {
        if let Verdict::Go(shares) = sizes::evaluate(engine.inputs(), Request { rank, ..request }) {
            decisions.extend(lifecycle::release(engine, &rank.key, shares));
            react(engine, Change::Capacity);
        } else {
            reserve::drop_reservation_of(engine, &rank.key);
        }
    }
    decisions
}

/// Evicts the jobs whose eviction lets a blocked job start, if it may preempt and there are any.
pub(crate) fn take_for(engine: &mut Engine, request: Request<'_>, block: &Block) -> Vec<Decision> {
    if matches!(block.gate, Gate::Never | Gate::Limit) {
        return Vec::new();
    }
    let key = &request.rank.key;
    let rights = evict::rights(engine.inputs(), request.queue, key);
    if engine.pending.backoff.rests(key) || !(rights.reclaim || rights.preempt) {
        return Vec::new();
    }
    if let Some(gaps) = evict::not_entitled(engine.inputs(), request, rights) {
        engine.pending.backoff.rest(key, gaps);
        return Vec::new();
    }
    if !within_limits_beside_preemptors(engine.inputs(), request) {
        rest(engine, key, None);
        return Vec::new();
    }
    let mut more_at = None;
    let found = evict::find(engine.inputs(), request, rights, &mut more_at);
    match found {
        Some(taking) => carry_out(engine, request, taking),
        None => {
            rest(engine, key, more_at);
            Vec::new()
        }
    }
}

/// Returns true if limits admit a job beside the jobs for which others are being evicted: these start first, and
/// what would be evicted for one that a limit blocks then would be evicted for nothing.
fn within_limits_beside_preemptors(inputs: Inputs<'_>, request: Request<'_>) -> bool {
    let taking = inputs.reservations.iter().filter(|kept| kept.taking());
    let others = taking.filter(|kept| kept.rank.key != request.rank.key);
    let others = others.map(|kept| OwnedRequest {
        queue: &kept.queue,
        owner: owner_of(inputs, &kept.rank.key),
        request: &kept.charge,
    });
    let others: Vec<OwnedRequest<'_>> = others.collect();
    let limits = &inputs.quota;
    limits.check_limits(request.owned(inputs), &others).is_ok()
}

/// A preemptor that found no victims tries again later.
pub(crate) fn rest(engine: &mut Engine, key: &JobKey, more_at: Option<crate::Time>) {
    let until = engine.now.after(engine.config.take_retry_ms);
    let time = more_at.map(RequeueCondition::Time);
    let conditions = [RequeueCondition::Victims(until)].into_iter().chain(time);
    engine.pending.backoff.rest(key, conditions.collect());
}

/// Returns true if a job that would be evaluated for preemption only is not entitled to anything; notes that.
pub(crate) fn takes_nothing(
    engine: &mut Engine,
    queue: &QueueName,
    rank: &QueueOrder,
    shape: &RequestShape,
) -> bool {
    if withheld::has_pending_evictions(engine.inputs(), &rank.key)
        || engine.pending.backoff.rests(&rank.key)
    {
        return false;
    }
    let request = Request {
        queue,
        rank,
        shape,
        verbose: false,
    };
    let gaps = evict::not_entitled(
        engine.inputs(),
        request,
        evict::rights(engine.inputs(), queue, &rank.key),
    );
    let nothing = gaps.is_some();
    if let Some(gaps) = gaps {
        engine.pending.backoff.rest(&rank.key, gaps);
    }
    nothing
}

/// Notes of other classes of infeasible shapes in a queue that they are not entitled to anything, so that the queue is
/// not searched again for each of them. Returns how many classes were asked.
pub(crate) fn note_not_entitled(engine: &mut Engine, queue: &QueueName) -> usize {
    let inputs = engine.inputs();
    let pending_queue = inputs.pending.queues.pending_queue(queue);
    let asked = pending_queue.into_iter().flat_map(|pending_queue| {
        let first = pending_queue.active_shapes();
        let first = first.filter(|shape| inputs.pending.shapes.infeasible(*shape).is_some());
        let first = first.filter_map(|shape| pending_queue.first_active(shape));
        first.filter(|(rank, shape)| evict::may_take(inputs, pending_queue, (queue, rank), *shape))
    });
    let asked = asked.take(ASKED_AT_ONCE).filter_map(|(rank, shape)| {
        let shape = inputs.pending.shapes.get(shape)?;
        Some((rank.clone(), Arc::clone(shape)))
    });
    let asked: Vec<_> = asked.collect();
    for (rank, shape) in &asked {
        takes_nothing(engine, queue, rank, shape);
    }
    asked.len()
}

pub(crate) fn carry_out(
    engine: &mut Engine,
    request: Request<'_>,
    taking: Taking,
) -> Vec<Decision> {
    let preemptor = &request.rank.key;
    let mut by_job: BTreeMap<JobKey, Vec<Victim>> = BTreeMap::new();
    for item in taking.items {
        by_job.entry(item.key.clone()).or_default().push(item);
    }
    let mut pending_evictions = BTreeSet::new();
    let mut decisions = Vec::new();
    for (key, items) in by_job {
        let Some(first) = items.first() else { continue };
        let why = evict::taking_words(engine.inputs(), request, first);
        if let Some(whole) = items.iter().find(|item| item.cut.is_none()) {
            let cause = evict::cause_for(engine.inputs(), request, &whole.queue);
            engine.jobs.note_gave_way(&key, cause);
            let attempt = engine.jobs.get(&key).map(|job| job.attempt);
            lifecycle::begin_eviction(engine, &key, whole.reason, &why, None);
            decisions.extend(attempt.map(|attempt| Decision::Evict {
                key: key.clone(),
                attempt,
                reason: whole.reason,
                for_job: Some(preemptor.clone()),
                message: why,
            }));
        } else {
            let cuts: Vec<_> = items.iter().filter_map(|item| item.cut.clone()).collect();
            decisions.extend(lifecycle::shrink(
                engine,
                &key,
                &cuts,
                Some(preemptor),
                &format!(", {why}"),
            ));
        }
        pending_evictions.insert(key);
    }
    pending_evictions.extend(pending_evictions::pending_evictions_for(
        engine.inputs(),
        request,
        &taking.shares,
    ));
    if pending_evictions.is_empty() {
        // No eviction is needed and the job was still blocked: it tries again later.
        rest(engine, preemptor, None);
        return decisions;
    }
    reserve::reserve_for_preemptor(engine, preemptor, &taking.shares, pending_evictions);
    decisions
}
