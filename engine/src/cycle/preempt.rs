//! Carries out preemption: tries it for a blocked job, evicts the victims, reserves what they free.
//!
//! What is decided is decided once: victims are terminating, and count as gone for every other
//! evaluation; the preemptor holds a reservation on exactly what it will use, and evicts nothing more
//! while it waits. If the preemptor goes away, what was decided stands. An attempt that found nothing
//! is repeated when something has changed, at most once in
//! [`crate::config::EngineConfig::take_retry_ms`], so that many blocked jobs stay cheap.

use crate::api::decision::Decision;
use crate::api::ids::{JobKey, QueueName};
use crate::api::job::QueueOrder;
use crate::backfill::withheld;
use crate::cycle::react::{Change, react};
use crate::cycle::{lifecycle, reserve};
use crate::evaluation::sizes;
use crate::pending::shapes::{RequestShape, ShapeId};
use crate::placement::request::{Block, Gate, Request, Verdict};
use crate::preemption::evict::Taking;
use crate::preemption::victims::Victim;
use crate::preemption::{awaited, evict};
use crate::reservation::store::Reservation;
use crate::state::Engine;
use std::collections::{BTreeMap, BTreeSet};

/// Takes back for the first of a group that is blocked, and for those after it who want the
/// same: what stops one stops them all, but what is taken for one does not do for two.
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
        let asker_here = Request {
            rank: &rank,
            ..request
        };
        let kept = engine.reservations.of(&rank.key);
        if kept.is_some_and(|kept| !kept.awaits.is_empty()) {
            continue;
        }
        if kept.is_some_and(Reservation::taking) {
            // All are gone that were taken for it, and still it cannot go.
            reserve::drop_reservation_of(engine, &rank.key);
        }
        let taken = take_for(engine, asker_here, block);
        if taken.is_empty() && !withheld::awaits_eviction(engine.inputs(), &rank.key) {
            if engine.pending.backoff.rests(&rank.key) {
                engine.pending.queues.note_looked(request.queue, shape);
            }
            break;
        }
        decisions.extend(taken);
    }
    decisions
}

/// Those behind the first of a group for whom all are gone that were evicted are judged,
/// whatever stops the first: what was freed is kept for them from everybody, it as well, and
/// would idle for ever.
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
        if let Verdict::Go(shares) = sizes::judge(engine.inputs(), Request { rank, ..request }) {
            decisions.extend(lifecycle::release(engine, &rank.key, shares));
            react(engine, Change::Capacity);
        } else {
            reserve::drop_reservation_of(engine, &rank.key);
        }
    }
    decisions
}

/// Takes back what lets a blocked job start, if it may and if anything does.
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
        engine.pending.backoff.not_entitled(key, gaps);
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

/// Who found nothing to take looks again later.
pub(crate) fn rest(engine: &mut Engine, key: &JobKey, more_at: Option<crate::Time>) {
    let until = engine.now.after(engine.config.take_retry_ms);
    engine.pending.backoff.failed(key, until, more_at);
}

/// Notes that a job that would be judged only for what it might take is entitled to nothing,
/// if so.
pub(crate) fn takes_nothing(
    engine: &mut Engine,
    queue: &QueueName,
    rank: &QueueOrder,
    (id, shape): (ShapeId, &RequestShape),
) -> bool {
    if withheld::awaits_eviction(engine.inputs(), &rank.key)
        || engine.pending.backoff.rests(&rank.key)
    {
        return false;
    }
    let request = Request {
        queue,
        rank,
        shape,
        tells: false,
    };
    let gaps = evict::not_entitled(
        engine.inputs(),
        request,
        evict::rights(engine.inputs(), queue, &rank.key),
    );
    let nothing = gaps.is_some();
    if let Some(gaps) = gaps {
        engine.pending.backoff.not_entitled(&rank.key, gaps);
        engine.pending.queues.note_looked(queue, id);
    }
    nothing
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
    let mut awaited = BTreeSet::new();
    let mut decisions = Vec::new();
    for (key, items) in by_job {
        let Some(first) = items.first() else { continue };
        let why = evict::taking_words(engine.inputs(), request, first);
        if let Some(whole) = items.iter().find(|item| item.cut.is_none()) {
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
        awaited.insert(key);
    }
    awaited.extend(awaited::awaited_for(
        engine.inputs(),
        request,
        &taking.shares,
    ));
    if awaited.is_empty() {
        // Nobody has to go, and still it was stopped: it looks again like one who found nothing.
        rest(engine, preemptor, None);
        return decisions;
    }
    reserve::reserve_for_taker(engine, preemptor, &taking.shares, awaited);
    decisions
}
