//! Evicting for a job that waits: reclaim between queues, preemption inside one.
//!
//! Asked where a job is blocked by quota or room and nothing idle would do. It may take from
//! other queues what they borrowed, while its queue is entitled to it (`entitlement.rs`); and from
//! jobs of strictly lower priority in its own queue, where the queue allows that, or that run longer
//! than they declared, where it allows this. Other queues
//! are asked first, then its own, then both. What is chosen is the cheapest with which the job
//! really fits (`choose.rs`); where nothing does, nothing is taken.
//!
//! What is decided is decided once: victims are ending, or their surplus leaving, and count as
//! gone for everybody; the preemptor holds a reservation on exactly what it will use
//! ([`crate::reservation::reserve::reserve_for_taker`]), which counts as charged for everybody, and takes nothing
//! more while it waits. If the preemptor goes away, what was decided stands.
//!
//! An attempt that found nothing is made again when something has changed since, at most once
//! in [`crate::config::EngineConfig::take_retry_ms`]; so a storm of blocked jobs stays cheap.

use crate::amounts::tally::Tally;
use crate::api::charge::Pools;
use crate::api::decision::Decision;
use crate::api::event::Progress;
use crate::api::facts::Share;
use crate::api::ids::{JobKey, QueueName};
use crate::api::job::QueueOrder;
use crate::api::reason::Reason;
use crate::capacity::{Basis, Holdings, leading};
use crate::cycle::decide;
use crate::cycle::elastic;
use crate::cycle::evaluate::{Block, Gate, Request, Verdict};
use crate::jobs::job::Job;
use crate::jobs::lifecycle;
use crate::pending::shapes::{RequestShape, ShapeId};
use crate::placement::plan::View;
use crate::preemption::awaited;
use crate::preemption::backoff::EntitlementGap;
use crate::preemption::choose::{Search, VictimSet};
use crate::preemption::entitlement::{Reclaim, deserves, entitlement_gaps};
use crate::preemption::victims;
use crate::preemption::victims::{Candidates, Item, Victim, overdue_at};
use crate::quota::UsageOverlay;
use crate::report::evidence;
use crate::reservation::reserve;
use crate::reservation::store::Reservation;
use crate::state::{Engine, Inputs};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// From whom a job may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rights {
    /// From other queues.
    reclaim: bool,
    /// From those of lower priority, or overdue, in its own.
    preempt: bool,
}

/// What is taken for a job, and where it goes then.
#[derive(Debug, Clone)]
struct Taking {
    items: Vec<Victim>,
    shares: Vec<Share>,
}

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
        if taken.is_empty() && !reserve::awaits_eviction(engine.inputs(), &rank.key) {
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
fn release_served(engine: &mut Engine, request: Request<'_>, shape: ShapeId) -> Vec<Decision> {
    let is_served = |rank: &&QueueOrder| {
        let kept = engine.reservations.of(&rank.key);
        kept.is_some_and(Reservation::is_served)
            && *rank != request.rank
            && reserve::shape_of(engine.inputs(), &rank.key) == Some(shape)
    };
    let holders = engine.reservations.holders_in(request.queue);
    let served: Vec<QueueOrder> = holders.filter(is_served).cloned().collect();
    let mut decisions = Vec::new();
    for rank in &served {
        if let Verdict::Go(shares) = elastic::judge(engine.inputs(), Request { rank, ..request }) {
            decisions.extend(lifecycle::release(engine, &rank.key, shares));
            decide::note_touched(engine);
        } else {
            reserve::drop_reservation_of(engine, &rank.key);
        }
    }
    decisions
}

/// Takes back what lets a blocked job start, if it may and if anything does.
fn take_for(engine: &mut Engine, request: Request<'_>, block: &Block) -> Vec<Decision> {
    if matches!(block.gate, Gate::Never | Gate::Limit) {
        return Vec::new();
    }
    let key = &request.rank.key;
    let rights = rights(engine.inputs(), request.queue, key);
    if engine.pending.backoff.rests(key) || !(rights.reclaim || rights.preempt) {
        return Vec::new();
    }
    if let Some(gaps) = not_entitled(engine.inputs(), request, rights) {
        engine.pending.backoff.not_entitled(key, gaps);
        return Vec::new();
    }
    let mut more_at = None;
    let found = find(engine.inputs(), request, rights, &mut more_at);
    match found {
        Some(taking) => carry_out(engine, request, taking),
        None => {
            rest(engine, key, more_at);
            Vec::new()
        }
    }
}

/// Who found nothing to take looks again later.
fn rest(engine: &mut Engine, key: &JobKey, more_at: Option<crate::Time>) {
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
    if reserve::awaits_eviction(engine.inputs(), &rank.key)
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
    let gaps = not_entitled(
        engine.inputs(),
        request,
        rights(engine.inputs(), queue, &rank.key),
    );
    let nothing = gaps.is_some();
    if let Some(gaps) = gaps {
        engine.pending.backoff.not_entitled(&rank.key, gaps);
        engine.pending.queues.note_looked(queue, id);
    }
    nothing
}

fn carry_out(engine: &mut Engine, request: Request<'_>, taking: Taking) -> Vec<Decision> {
    let preemptor = &request.rank.key;
    let mut by_job: BTreeMap<JobKey, Vec<Victim>> = BTreeMap::new();
    for item in taking.items {
        by_job.entry(item.key.clone()).or_default().push(item);
    }
    let mut awaited = BTreeSet::new();
    let mut decisions = Vec::new();
    for (key, items) in by_job {
        let Some(first) = items.first() else { continue };
        let why = taking_words(engine.inputs(), request, first);
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

/// Wakes jobs that found nothing to take and might now.
pub(crate) fn rouse_takers(engine: &mut Engine) {
    for key in engine.pending.backoff.due(engine.now) {
        reserve::ask_again(engine, &key);
    }
}

/// Whether a group that finds no room should be asked all the same, since one of it may take
/// some back: the first for whom nobody is being evicted yet has the right to, and has
/// not looked in vain.
pub(crate) fn may_take(inputs: Inputs<'_>, queue: &QueueName, shape: ShapeId) -> bool {
    let Some(pending_queue) = inputs
        .pending
        .queues
        .pending_queue(queue)
        .filter(|pending_queue| !pending_queue.has_looked(shape))
    else {
        return false;
    };
    let next = pending_queue
        .group(shape)
        .find(|rank| !reserve::awaits_eviction(inputs, &rank.key));
    next.is_some_and(|rank| {
        let has_rights = || {
            let rights = rights(inputs, queue, &rank.key);
            rights.reclaim || rights.preempt
        };
        !inputs.pending.backoff.rests(&rank.key) && has_rights()
    })
}

/// What its queues would have to be due, where a job may take only from others and is
/// entitled to nothing even when all is gone that is going.
fn not_entitled(
    inputs: Inputs<'_>,
    request: Request<'_>,
    rights: Rights,
) -> Option<Vec<EntitlementGap>> {
    if rights.preempt {
        return None;
    }
    let mut shift = inputs.quota.overlay();
    for key in inputs.jobs.preemptible().terminating() {
        if let Some((queue, charge, _)) = going(inputs, key) {
            shift.take(&queue, &charge);
        }
    }
    let total = &request.shape.total;
    let entitled = reclaim(request, &shift).could_be_entitled();
    (!entitled).then(|| entitlement_gaps(inputs.quota, request.queue, total))
}

/// Whether a queue lets any of its jobs have others evicted.
pub(crate) fn lets_take(inputs: Inputs<'_>, queue: &QueueName) -> bool {
    let policy = inputs.quota.policy(queue);
    let preemption = policy.map(|policy| policy.preemption).unwrap_or_default();
    preemption.within_queue
        || preemption.evict_overdue
        || (preemption.reclaim && deserves(inputs.quota, queue))
}

fn rights(inputs: Inputs<'_>, queue: &QueueName, key: &JobKey) -> Rights {
    let policy = inputs.quota.policy(queue);
    let preemption = policy.map(|policy| policy.preemption).unwrap_or_default();
    let job = inputs.jobs.get(key);
    let preempts = job.is_some_and(|job| inputs.jobs.preempts(job));
    Rights {
        reclaim: preempts && preemption.reclaim && deserves(inputs.quota, queue),
        preempt: preempts && (preemption.within_queue || preemption.evict_overdue),
    }
}

fn find(
    inputs: Inputs<'_>,
    request: Request<'_>,
    rights: Rights,
    more_at: &mut Option<crate::Time>,
) -> Option<Taking> {
    let (view, shift) = as_it_will_be(inputs, request);
    let search = |items: &[Item<'_>], reclaims: bool| {
        let search = Search {
            inputs,
            request,
            items,
            leads: leading(&request.shape.total),
            view: &view,
            shift: &shift,
            reclaims,
            tries: Cell::new(0),
        };
        if let Some(shares) = search.fits(&VictimSet::new()) {
            // What is ending already is enough: it is kept for those who are owed it.
            let owed = reclaims && search.lawful(&VictimSet::new(), &shares);
            return Some(owed.then_some((VictimSet::new(), shares)));
        }
        search.cheapest().map(Some)
    };
    let reclaims = rights.reclaim && reclaim(request, &shift).could_be_entitled();
    // From others, of its own queue, or both: each is gathered only when those before it are
    // not enough.
    let ways: &[(bool, bool)] = match (reclaims, rights.preempt) {
        (true, true) => &[(true, false), (false, true), (true, true)],
        (true, false) => &[(true, false)],
        (false, true) => &[(false, true)],
        (false, false) => &[],
    };
    for &(others, own) in ways {
        let (offers, reclaims) = (offers(inputs, request, &shift, others, own), others);
        *more_at = more_at.iter().copied().chain(offers.more_at).min();
        if let Some(found) = search(&offers.items, reclaims) {
            let (chosen, shares) = found?;
            let items = chosen.iter().map(|index| offers.items[*index].taken());
            return Some(Taking {
                items: items.collect(),
                shares,
            });
        }
    }
    None
}

fn offers<'a>(
    inputs: Inputs<'a>,
    request: Request<'_>,
    shift: &UsageOverlay<'_>,
    others: bool,
    own: bool,
) -> Candidates<'a> {
    let mut offers = Candidates::default();
    let wanted = &request.shape.total;
    for queue in inputs.jobs.preemptible().queues().filter(|_| others) {
        if queue != request.queue && reclaim(request, shift).could_reclaim_from(queue) {
            victims::offer(inputs, &mut offers, queue, Reason::Reclaimed, wanted, None);
        }
    }
    if own {
        let priority = request.rank.priority.0;
        let below = Some(priority);
        victims::offer(
            inputs,
            &mut offers,
            request.queue,
            Reason::Preempted,
            wanted,
            below,
        );
    }
    offers.sort();
    offers
}

/// The fleet and the quota once all that was decided is done: what is ending or leaving is
/// gone, those it was taken for are there, and what is kept for those ahead is kept.
fn as_it_will_be<'a>(inputs: Inputs<'a>, request: Request<'_>) -> (View, UsageOverlay<'a>) {
    let mut holders: BTreeSet<&JobKey> = reserve::reservations_ahead(inputs, request)
        .into_iter()
        .collect();
    let preemption_backoff = inputs.reservations.iter().filter(|kept| kept.taking());
    let preemption_backoff = preemption_backoff.filter(|kept| kept.rank.key != request.rank.key);
    let mut shift = inputs.quota.overlay();
    for kept in preemption_backoff {
        holders.insert(&kept.rank.key);
        let pools = kept.pools.iter().cloned();
        let pools: Pools = pools
            .map(|(cluster, class, r)| ((cluster, class), r))
            .collect();
        shift.give(&kept.queue, &pools);
    }
    let holders: Vec<&JobKey> = holders.into_iter().collect();
    let mut view = View {
        basis: Basis::Now,
        nodes: reserve::nodes_kept(inputs, &holders),
        kept: reserve::headroom_kept(inputs, &holders),
        tells: false,
    };
    for key in inputs.jobs.preemptible().terminating() {
        let Some((queue, charge, nodes)) = going(inputs, key) else {
            continue;
        };
        shift.take(&queue, &charge);
        without(inputs, &mut view, &queue, &charge);
        off_nodes(&mut view, nodes);
    }
    (view, shift)
}

/// What there is for a job beside what the reservations of `ahead` keep.
///
/// Promises to preemptors were made as if all that is leaving had left. One whose own victims
/// are gone has to find the same, or those of a later preemptor would stop it, charged and
/// about to be free for what is kept at once; but it may use only what is free already.
pub(crate) fn beside(inputs: Inputs<'_>, request: Request<'_>, ahead: &[&JobKey]) -> View {
    let mut view = View {
        basis: Basis::Now,
        nodes: reserve::nodes_kept(inputs, ahead),
        kept: reserve::headroom_kept(inputs, ahead),
        tells: request.tells,
    };
    let own = inputs.reservations.of(&request.rank.key);
    if !own.is_some_and(Reservation::is_served) {
        return view;
    }
    for key in inputs.jobs.preemptible().terminating() {
        if let Some((queue, charge, nodes)) = going(inputs, key) {
            without(inputs, &mut view, &queue, &charge);
            off_nodes(&mut view, nodes);
        }
    }
    view.kept.floored = true;
    let kept = view.nodes.values_mut().flat_map(BTreeMap::values_mut);
    kept.for_each(Tally::drop_negative);
    view
}

/// What comes free once a job that is ending is gone, or what leaves it is.
pub(crate) fn going(inputs: Inputs<'_>, key: &JobKey) -> Option<(QueueName, Pools, Holdings)> {
    let released = inputs.jobs.released(key)?;
    let queue = released.admission.queue.clone();
    let mut nodes = inputs.capacity.room.holdings(key);
    if released.progress == Progress::Ending {
        return Some((queue, released.pools(), nodes));
    }
    // Of a gang that shrinks, its plan says where it stays.
    let basis = released.basis.as_deref()?;
    for share in &released.admission.shares {
        for slot in &share.slots {
            let role = basis.roles.iter().find(|role| role.name == slot.role)?;
            let held = nodes.get_mut(&(share.cluster.clone(), slot.node.clone()));
            if let Some(held) = held {
                let count = held.fits(&role.request, slot.count);
                held.add(&role.request, -i64::from(count));
            }
        }
        if share.slots.is_empty() {
            nodes.retain(|(cluster, _), _| *cluster != share.cluster);
        }
    }
    let mut charge = Pools::new();
    for leaving in &released.leaving {
        for (class, part) in &leaving.charge {
            let pool = (leaving.cluster.clone(), class.clone());
            let sum = charge.entry(pool).or_default();
            *sum = sum.checked_add(part).unwrap_or_else(|| part.clone());
        }
    }
    Some((queue, charge, nodes))
}

/// Takes a charge off what a view shows as charged.
pub(crate) fn without(inputs: Inputs<'_>, view: &mut View, queue: &QueueName, charge: &Pools) {
    view.kept.supposes = true;
    for queue in inputs.quota.path(queue) {
        view.kept.book(&queue, charge, -1);
    }
}

fn taking_words(inputs: Inputs<'_>, request: Request<'_>, item: &Victim) -> String {
    let preemptor = &request.rank.key;
    if item.reason == Reason::Reclaimed {
        let gaps = evidence::gaps(inputs, request.queue, &item.queue, &request.shape.total);
        return gaps.map_or_else(
            || {
                let queue = request.queue;
                format!(
                    "reclaimed for {preemptor} of queue {queue}, which has less than it deserves"
                )
            },
            |gaps| format!("reclaimed for {preemptor}: {gaps}"),
        );
    }
    let job = inputs.jobs.get(&item.key);
    if let Some(words) = job.and_then(|job| overdue_words(inputs, preemptor, job)) {
        return words;
    }
    let priority = job
        .and_then(|job| inputs.jobs.priority_of(job))
        .unwrap_or_default();
    format!(
        "preempted for {preemptor}, which has priority {} in its queue; it has {priority}",
        request.rank.priority.0
    )
}

/// What is said of a job that runs longer than it declared, where that is why it may be evicted.
fn overdue_words(inputs: Inputs<'_>, preemptor: &JobKey, job: &Job) -> Option<String> {
    let released = job.released.as_deref()?;
    let rules = inputs.quota.policy(&released.admission.queue)?.preemption;
    let since = overdue_at(job, released).filter(|at| rules.evict_overdue && *at <= inputs.now)?;
    let declared = since.millis_since(released.started_at?) / 1000;
    let over = inputs.now.millis_since(since) / 1000;
    Some(format!(
        "preempted for {preemptor}: it declared to run {declared}s and has run {over}s longer"
    ))
}

/// The job that would reclaim, its pools not known yet.
fn reclaim<'a>(request: Request<'a>, usage: &'a UsageOverlay<'a>) -> Reclaim<'a> {
    Reclaim {
        usage,
        queue: request.queue,
        total: &request.shape.total,
        pools: None,
    }
}

/// Takes what is leaving off what a view shows as used.
fn off_nodes(view: &mut View, nodes: Holdings) {
    for ((cluster, node), held) in nodes {
        let cluster = view.nodes.entry(cluster).or_default();
        cluster.entry(node).or_default().add_tally(&held, -1);
    }
}
