//! The search for victims of a blocked job: reclaim between queues, preemption inside one.
//!
//! It runs where quota or capacity blocks a job and nothing idle is enough. The job may reclaim what
//! other queues borrowed, while its queue is entitled to it (`entitlement.rs`). In its own queue it may
//! preempt jobs of strictly lower priority, or jobs that run longer than they declared, where the queue
//! allows that. Other queues come first, then its own, then both. The search returns the cheapest set
//! with which the job really starts (`choose.rs`), or nothing.
//!
//! `cycle::preempt` carries out what is found here.

use crate::api::job::QueueOrder;
use crate::backfill::{assume, withheld};
use crate::jobs::job::Job;
use crate::overlay::Overlay;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::pending_queue::PendingQueue;
use crate::pending::shapes::ShapeId;
use crate::placement::request::Request;
use crate::preemption::candidates::{self, Candidates, OfferedGroup, Preemptor};
use crate::preemption::choose::{Search, VictimSet};
use crate::preemption::entitlement::{Reclaim, deserves, entitlement_gaps};
use crate::preemption::gaps;
use crate::preemption::victims::Victim;
use crate::state::Inputs;
use facts::{JobKey, QueueName, Reason, Share, Time};

/// Of each group of candidates so many times as many are looked at as free all that is wanted, and at last all.
const TIMES: [Option<usize>; 3] = [Some(1), Some(8), None];

/// What a job has the right to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Jobs of other queues.
    pub(crate) reclaim: bool,
    /// Jobs of its own queue that have a lower priority or are overdue.
    pub(crate) preempt: bool,
}

/// The victims of a job, and where it starts then.
#[derive(Debug, Clone)]
pub(crate) struct Taking {
    pub(crate) items: Vec<Victim>,
    pub(crate) shares: Vec<Share>,
}

/// Returns true if a class of an infeasible shape is worth an evaluation for preemption: its first job without
/// pending evictions has the right to preempt, and no back-off. `first` is the first job of the class.
pub(crate) fn may_take(
    inputs: Inputs<'_>,
    pending_queue: &PendingQueue,
    (queue, first): (&QueueName, &QueueOrder),
    shape: ShapeId,
) -> bool {
    let waits = |rank: &&QueueOrder| withheld::has_pending_evictions(inputs, &rank.key);
    let next = match waits(&first) {
        false => Some(first),
        true => pending_queue.class(shape).find(|rank| !waits(rank)),
    };
    next.is_some_and(|rank| {
        let has_rights = || {
            let rights = rights(inputs, queue, &rank.key);
            rights.reclaim || rights.preempt
        };
        !inputs.pending.backoff.rests(&rank.key) && has_rights()
    })
}

/// Returns what a job waits for that may only reclaim and is not entitled to anything, even once all terminating
/// jobs are gone.
pub(crate) fn not_entitled(
    inputs: Inputs<'_>,
    request: Request<'_>,
    rights: Rights,
) -> Option<Vec<RequeueCondition>> {
    if rights.preempt {
        return None;
    }
    let mut usage = Overlay::default();
    for leaving in assume::terminating(inputs) {
        let (queue, charge) = (leaving.queue, &leaving.charge);
        inputs.quota.assume(&mut usage, queue, charge, -1);
    }
    let total = &request.shape.total;
    let entitled = reclaim(inputs, request, &usage).could_be_entitled();
    let gaps = || entitlement_gaps(&inputs.quota, request.queue, total).into_iter();
    (!entitled).then(|| gaps().map(RequeueCondition::Entitlement).collect())
}

/// Returns true if a queue lets any of its jobs preempt.
pub(crate) fn lets_take(inputs: Inputs<'_>, queue: &QueueName) -> bool {
    let policy = inputs.quota.policy(queue);
    let preemption = policy.map(|policy| policy.preemption).unwrap_or_default();
    preemption.within_queue
        || preemption.evict_overdue
        || (preemption.reclaim && deserves(&inputs.quota, queue))
}

pub(crate) fn rights(inputs: Inputs<'_>, queue: &QueueName, key: &JobKey) -> Rights {
    let policy = inputs.quota.policy(queue);
    let preemption = policy.map(|policy| policy.preemption).unwrap_or_default();
    let job = inputs.jobs.get(key);
    let preempts = job.is_some_and(|job| inputs.jobs.preempts(job));
    Rights {
        reclaim: preempts && preemption.reclaim && deserves(&inputs.quota, queue),
        preempt: preempts && (preemption.within_queue || preemption.evict_overdue),
    }
}

pub(crate) fn find(
    inputs: Inputs<'_>,
    request: Request<'_>,
    rights: Rights,
    more_at: &mut Option<crate::Time>,
) -> Option<Taking> {
    find_within(inputs, request, rights, &TIMES, more_at)
}

/// Looks for victims in one list of candidates after another.
fn find_within(
    inputs: Inputs<'_>,
    request: Request<'_>,
    rights: Rights,
    listings: &[Option<usize>],
    more_at: &mut Option<crate::Time>,
) -> Option<Taking> {
    let overlay = Overlay::after_evictions(inputs, request);
    let usage = overlay.usage_only();
    let reclaims = rights.reclaim && reclaim(inputs, request, &usage).could_be_entitled();
    let ways = ways(reclaims, rights.preempt);
    let nobody = VictimSet::new();
    let none_listed = Candidates::default();
    let alone = |reclaims| Search::new(inputs, request, &none_listed, &overlay, reclaims);
    let without_any = ways.first().and_then(|_| alone(false).fits(&nobody));
    for &(others, own) in ways {
        let groups = offers(inputs, request, &usage, others, own);
        let mut note = |listed: &Candidates<'_>| {
            *more_at = more_at.iter().copied().chain(listed.more_at).min();
        };
        if let Some(shares) = without_any {
            // What is terminating already is enough: it is reserved for the jobs that are entitled to it.
            let owed = others && alone(true).is_valid(&nobody, &shares);
            note(&Candidates::list(inputs, &groups, None));
            let items = Vec::new();
            return owed.then_some(Taking { items, shares });
        }
        // Whether what is reclaimed from other queues is enough depends on all of it.
        let by_pools = others && inputs.quota.bounds_pools(request.queue);
        for times in listings.iter().filter(|times| !by_pools || times.is_none()) {
            let listed = Candidates::list(inputs, &groups, *times);
            let search = Search::new(inputs, request, &listed, &overlay, others);
            let found = search.cheapest();
            // Victims that are found are the same with those that are left out. That there are none is not.
            if listed.is_partial && found.is_none() {
                continue;
            }
            note(&listed);
            let Some((chosen, shares)) = found else { break };
            let items = chosen.iter().map(|index| listed.items[*index].taken());
            return Some(Taking {
                items: items.collect(),
                shares,
            });
        }
    }
    None
}

/// Returns whose jobs are candidates, of other queues and of its own: each set is gathered only when those before it
/// are not enough.
fn ways(reclaims: bool, preempts: bool) -> &'static [(bool, bool)] {
    match (reclaims, preempts) {
        (true, true) => &[(true, false), (false, true), (true, true)],
        (true, false) => &[(true, false)],
        (false, true) => &[(false, true)],
        (false, false) => &[],
    }
}

fn offers<'a>(
    inputs: Inputs<'a>,
    request: Request<'a>,
    usage: &Overlay,
    others: bool,
    own: bool,
) -> Vec<OfferedGroup<'a>> {
    let mut offers = Vec::new();
    let wanted = &request.shape.total;
    let gave_way = inputs
        .jobs
        .get(&request.rank.key)
        .is_some_and(Job::gave_way);
    for queue in inputs.jobs.preemptible().queues().filter(|_| others) {
        if queue != request.queue && reclaim(inputs, request, usage).could_reclaim_from(queue) {
            let preemptor = Preemptor {
                wanted,
                below: None,
                cause: cause_for(inputs, request, queue),
                gave_way,
            };
            candidates::offer(inputs, &mut offers, queue, Reason::Reclaimed, preemptor);
        }
    }
    if own {
        let preemptor = Preemptor {
            wanted,
            below: Some(own_priority(inputs, &request.rank.key)),
            cause: cause_for(inputs, request, request.queue),
            gave_way,
        };
        let queue = request.queue;
        candidates::offer(inputs, &mut offers, queue, Reason::Preempted, preemptor);
    }
    offers
}

/// When the latest cause came up for which jobs of a queue may be evicted for a request.
pub(crate) fn cause_for(inputs: Inputs<'_>, request: Request<'_>, victims: &QueueName) -> Time {
    let siblings = || {
        let (own, other) = inputs
            .quota
            .id(request.queue)
            .zip(inputs.quota.id(victims))?;
        Some(inputs.quota.name(inputs.quota.lca_children(own, other)?.0))
    };
    let entitled = siblings().unwrap_or(request.queue);
    inputs.jobs.cause_of(&request.rank.key, entitled)
}

pub(crate) fn taking_words(inputs: Inputs<'_>, request: Request<'_>, item: &Victim) -> String {
    let preemptor = &request.rank.key;
    if item.reason == Reason::Reclaimed {
        let gaps = gaps::gaps(inputs, request.queue, &item.queue, &request.shape.total);
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
        own_priority(inputs, preemptor)
    )
}

/// The priority of a job's own class, not the one to which it has risen by waiting.
fn own_priority(inputs: Inputs<'_>, key: &JobKey) -> i32 {
    let job = inputs.jobs.get(key);
    job.and_then(|job| inputs.jobs.priority_of(job))
        .unwrap_or_default()
}

/// The words for a job that may be evicted since it runs longer than it declared.
fn overdue_words(inputs: Inputs<'_>, preemptor: &JobKey, job: &Job) -> Option<String> {
    let released = job.released.as_deref()?;
    let rules = inputs.quota.policy(&released.admission.queue)?.preemption;
    let since = job
        .overdue_at()
        .filter(|at| rules.evict_overdue && *at <= inputs.now)?;
    let declared = since.millis_since(released.started_at?) / 1000;
    let over = inputs.now.millis_since(since) / 1000;
    Some(format!(
        "preempted for {preemptor}: it declared to run {declared}s and has run {over}s longer"
    ))
}

/// The job that would reclaim; its pools are not known yet.
fn reclaim<'a>(inputs: Inputs<'a>, request: Request<'a>, usage: &'a Overlay) -> Reclaim<'a> {
    Reclaim {
        quota: &inputs.quota,
        usage,
        queue: request.queue,
        total: &request.shape.total,
        pools: None,
    }
}

#[cfg(test)]
mod tests;
