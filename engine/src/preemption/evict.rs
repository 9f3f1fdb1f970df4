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
//! ([`Engine::reserve_for_taker`]), which counts as charged for everybody, and takes nothing
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
use crate::cycle::evaluate::{Block, Gate, Request, Verdict};
use crate::engine::Engine;
use crate::jobs::job::Job;
use crate::pending::shapes::{RequestShape, ShapeId};
use crate::placement::plan::View;
use crate::preemption::backoff::EntitlementGap;
use crate::preemption::choose::{Search, VictimSet};
use crate::preemption::entitlement::{Reclaim, deserves, entitlement_gaps};
use crate::preemption::victims::{Candidates, Item, Victim, overdue_at};
use crate::quota::UsageOverlay;
use crate::reservation::store::Reservation;
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

impl Engine {
    /// Takes back for the first of a group that is blocked, and for those after it who want the
    /// same: what stops one stops them all, but what is taken for one does not do for two.
    pub(crate) fn take_for_group(
        &mut self,
        request: Request<'_>,
        shape: ShapeId,
        block: &Block,
    ) -> Vec<Decision> {
        let mut decisions = self.release_served(request, shape);
        let mut next = Some(request.rank.clone());
        while let Some(rank) = next.filter(|_| decisions.len() < self.config.decision_budget) {
            let pending_queue = self.pending.queues.pending_queue(request.queue);
            next = pending_queue
                .and_then(|pending_queue| pending_queue.after(shape, &rank))
                .cloned();
            let asker_here = Request {
                rank: &rank,
                ..request
            };
            let kept = self.reservations.of(&rank.key);
            if kept.is_some_and(|kept| !kept.awaits.is_empty()) {
                continue;
            }
            if kept.is_some_and(Reservation::taking) {
                // All are gone that were taken for it, and still it cannot go.
                self.drop_reservation_of(&rank.key);
            }
            let taken = self.take_for(asker_here, block);
            if taken.is_empty() && !self.awaits_eviction(&rank.key) {
                if self.pending.backoff.rests(&rank.key) {
                    self.pending.queues.note_looked(request.queue, shape);
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
    fn release_served(&mut self, request: Request<'_>, shape: ShapeId) -> Vec<Decision> {
        let is_served = |rank: &&QueueOrder| {
            let kept = self.reservations.of(&rank.key);
            kept.is_some_and(Reservation::is_served)
                && *rank != request.rank
                && self.shape_of(&rank.key) == Some(shape)
        };
        let holders = self.reservations.holders_in(request.queue);
        let served: Vec<QueueOrder> = holders.filter(is_served).cloned().collect();
        let mut decisions = Vec::new();
        for rank in &served {
            if let Verdict::Go(shares) = self.judge(Request { rank, ..request }) {
                decisions.extend(self.release(&rank.key, shares));
                self.note_touched();
            } else {
                self.drop_reservation_of(&rank.key);
            }
        }
        decisions
    }

    /// Takes back what lets a blocked job start, if it may and if anything does.
    fn take_for(&mut self, request: Request<'_>, block: &Block) -> Vec<Decision> {
        if matches!(block.gate, Gate::Never | Gate::Limit) {
            return Vec::new();
        }
        let key = &request.rank.key;
        let rights = self.rights(request.queue, key);
        if self.pending.backoff.rests(key) || !(rights.reclaim || rights.preempt) {
            return Vec::new();
        }
        if let Some(gaps) = self.not_entitled(request, rights) {
            self.pending.backoff.not_entitled(key, gaps);
            return Vec::new();
        }
        let mut more_at = None;
        let found = self.find(request, rights, &mut more_at);
        match found {
            Some(taking) => self.carry_out(request, taking),
            None => {
                self.rest(key, more_at);
                Vec::new()
            }
        }
    }

    /// Who found nothing to take looks again later.
    fn rest(&mut self, key: &JobKey, more_at: Option<crate::Time>) {
        let until = self.now.after(self.config.take_retry_ms);
        self.pending.backoff.failed(key, until, more_at);
    }

    /// Whether a group that finds no room should be asked all the same, since one of it may take
    /// some back: the first for whom nobody is being evicted yet has the right to, and has
    /// not looked in vain.
    pub(crate) fn may_take(&self, queue: &QueueName, shape: ShapeId) -> bool {
        let Some(pending_queue) = self
            .pending
            .queues
            .pending_queue(queue)
            .filter(|pending_queue| !pending_queue.has_looked(shape))
        else {
            return false;
        };
        let next = pending_queue
            .group(shape)
            .find(|rank| !self.awaits_eviction(&rank.key));
        next.is_some_and(|rank| {
            let has_rights = || {
                let rights = self.rights(queue, &rank.key);
                rights.reclaim || rights.preempt
            };
            !self.pending.backoff.rests(&rank.key) && has_rights()
        })
    }

    /// Notes that a job that would be judged only for what it might take is entitled to nothing,
    /// if so.
    pub(crate) fn takes_nothing(
        &mut self,
        queue: &QueueName,
        rank: &QueueOrder,
        (id, shape): (ShapeId, &RequestShape),
    ) -> bool {
        if self.awaits_eviction(&rank.key) || self.pending.backoff.rests(&rank.key) {
            return false;
        }
        let request = Request {
            queue,
            rank,
            shape,
            tells: false,
        };
        let gaps = self.not_entitled(request, self.rights(queue, &rank.key));
        let nothing = gaps.is_some();
        if let Some(gaps) = gaps {
            self.pending.backoff.not_entitled(&rank.key, gaps);
            self.pending.queues.note_looked(queue, id);
        }
        nothing
    }

    /// What its queues would have to be due, where a job may take only from others and is
    /// entitled to nothing even when all is gone that is going.
    fn not_entitled(&self, request: Request<'_>, rights: Rights) -> Option<Vec<EntitlementGap>> {
        if rights.preempt {
            return None;
        }
        let mut shift = self.quota.overlay();
        for key in self.jobs.preemptible().terminating() {
            if let Some((queue, charge, _)) = self.going(key) {
                shift.take(&queue, &charge);
            }
        }
        let total = &request.shape.total;
        let entitled = reclaim(request, &shift).could_be_entitled();
        (!entitled).then(|| entitlement_gaps(&self.quota, request.queue, total))
    }

    /// Whether a queue lets any of its jobs have others evicted.
    pub(crate) fn lets_take(&self, queue: &QueueName) -> bool {
        let policy = self.quota.policy(queue);
        let preemption = policy.map(|policy| policy.preemption).unwrap_or_default();
        preemption.within_queue
            || preemption.evict_overdue
            || (preemption.reclaim && deserves(&self.quota, queue))
    }

    fn rights(&self, queue: &QueueName, key: &JobKey) -> Rights {
        let policy = self.quota.policy(queue);
        let preemption = policy.map(|policy| policy.preemption).unwrap_or_default();
        let job = self.jobs.get(key);
        let preempts = job.is_some_and(|job| self.jobs.preempts(job));
        Rights {
            reclaim: preempts && preemption.reclaim && deserves(&self.quota, queue),
            preempt: preempts && (preemption.within_queue || preemption.evict_overdue),
        }
    }

    fn find(
        &self,
        request: Request<'_>,
        rights: Rights,
        more_at: &mut Option<crate::Time>,
    ) -> Option<Taking> {
        let (view, shift) = self.as_it_will_be(request);
        let search = |items: &[Item<'_>], reclaims: bool| {
            let search = Search {
                engine: self,
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
            let (offers, reclaims) = (self.offers(request, &shift, others, own), others);
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
        &'a self,
        request: Request<'_>,
        shift: &UsageOverlay<'_>,
        others: bool,
        own: bool,
    ) -> Candidates<'a> {
        let mut offers = Candidates::default();
        let wanted = &request.shape.total;
        for queue in self.jobs.preemptible().queues().filter(|_| others) {
            if queue != request.queue && reclaim(request, shift).could_reclaim_from(queue) {
                self.offer(&mut offers, queue, Reason::Reclaimed, wanted, None);
            }
        }
        if own {
            let priority = request.rank.priority.0;
            let below = Some(priority);
            self.offer(&mut offers, request.queue, Reason::Preempted, wanted, below);
        }
        offers.sort();
        offers
    }

    /// The fleet and the quota once all that was decided is done: what is ending or leaving is
    /// gone, those it was taken for are there, and what is kept for those ahead is kept.
    fn as_it_will_be(&self, request: Request<'_>) -> (View, UsageOverlay<'_>) {
        let mut holders: BTreeSet<&JobKey> = self.reservations_ahead(request).into_iter().collect();
        let preemption_backoff = self.reservations.iter().filter(|kept| kept.taking());
        let preemption_backoff =
            preemption_backoff.filter(|kept| kept.rank.key != request.rank.key);
        let mut shift = self.quota.overlay();
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
            nodes: self.nodes_kept(&holders),
            kept: self.headroom_kept(&holders),
            tells: false,
        };
        for key in self.jobs.preemptible().terminating() {
            let Some((queue, charge, nodes)) = self.going(key) else {
                continue;
            };
            shift.take(&queue, &charge);
            self.without(&mut view, &queue, &charge);
            off_nodes(&mut view, nodes);
        }
        (view, shift)
    }

    /// What there is for a job beside what the reservations of `ahead` keep.
    ///
    /// Promises to preemptors were made as if all that is leaving had left. One whose own victims
    /// are gone has to find the same, or those of a later preemptor would stop it, charged and
    /// about to be free for what is kept at once; but it may use only what is free already.
    pub(crate) fn beside(&self, request: Request<'_>, ahead: &[&JobKey]) -> View {
        let mut view = View {
            basis: Basis::Now,
            nodes: self.nodes_kept(ahead),
            kept: self.headroom_kept(ahead),
            tells: request.tells,
        };
        let own = self.reservations.of(&request.rank.key);
        if !own.is_some_and(Reservation::is_served) {
            return view;
        }
        for key in self.jobs.preemptible().terminating() {
            if let Some((queue, charge, nodes)) = self.going(key) {
                self.without(&mut view, &queue, &charge);
                off_nodes(&mut view, nodes);
            }
        }
        view.kept.floored = true;
        let kept = view.nodes.values_mut().flat_map(BTreeMap::values_mut);
        kept.for_each(Tally::drop_negative);
        view
    }

    /// What comes free once a job that is ending is gone, or what leaves it is.
    pub(crate) fn going(&self, key: &JobKey) -> Option<(QueueName, Pools, Holdings)> {
        let released = self.jobs.released(key)?;
        let queue = released.admission.queue.clone();
        let mut nodes = self.capacity.room.holdings(key);
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
    pub(crate) fn without(&self, view: &mut View, queue: &QueueName, charge: &Pools) {
        view.kept.supposes = true;
        for queue in self.quota.path(queue) {
            view.kept.book(&queue, charge, -1);
        }
    }

    fn carry_out(&mut self, request: Request<'_>, taking: Taking) -> Vec<Decision> {
        let preemptor = &request.rank.key;
        let mut by_job: BTreeMap<JobKey, Vec<Victim>> = BTreeMap::new();
        for item in taking.items {
            by_job.entry(item.key.clone()).or_default().push(item);
        }
        let mut awaited = BTreeSet::new();
        let mut decisions = Vec::new();
        for (key, items) in by_job {
            let Some(first) = items.first() else { continue };
            let why = self.taking_words(request, first);
            if let Some(whole) = items.iter().find(|item| item.cut.is_none()) {
                let attempt = self.jobs.get(&key).map(|job| job.attempt);
                self.begin_eviction(&key, whole.reason, &why, None);
                decisions.extend(attempt.map(|attempt| Decision::Evict {
                    key: key.clone(),
                    attempt,
                    reason: whole.reason,
                    for_job: Some(preemptor.clone()),
                    message: why,
                }));
            } else {
                let cuts: Vec<_> = items.iter().filter_map(|item| item.cut.clone()).collect();
                decisions.extend(self.shrink(&key, &cuts, Some(preemptor), &format!(", {why}")));
            }
            awaited.insert(key);
        }
        awaited.extend(self.awaited_for(request, &taking.shares));
        if awaited.is_empty() {
            // Nobody has to go, and still it was stopped: it looks again like one who found nothing.
            self.rest(preemptor, None);
            return decisions;
        }
        self.reserve_for_taker(preemptor, &taking.shares, awaited);
        decisions
    }

    fn taking_words(&self, request: Request<'_>, item: &Victim) -> String {
        let preemptor = &request.rank.key;
        if item.reason == Reason::Reclaimed {
            let gaps = self.gaps(request.queue, &item.queue, &request.shape.total);
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
        let job = self.jobs.get(&item.key);
        if let Some(words) = job.and_then(|job| self.overdue_words(preemptor, job)) {
            return words;
        }
        let priority = job
            .and_then(|job| self.jobs.priority_of(job))
            .unwrap_or_default();
        format!(
            "preempted for {preemptor}, which has priority {} in its queue; it has {priority}",
            request.rank.priority.0
        )
    }

    /// What is said of a job that runs longer than it declared, where that is why it may be evicted.
    fn overdue_words(&self, preemptor: &JobKey, job: &Job) -> Option<String> {
        let released = job.released.as_deref()?;
        let rules = self.quota.policy(&released.admission.queue)?.preemption;
        let since =
            overdue_at(job, released).filter(|at| rules.evict_overdue && *at <= self.now)?;
        let declared = since.millis_since(released.started_at?) / 1000;
        let over = self.now.millis_since(since) / 1000;
        Some(format!(
            "preempted for {preemptor}: it declared to run {declared}s and has run {over}s longer"
        ))
    }

    /// Wakes jobs that found nothing to take and might now.
    pub(crate) fn rouse_takers(&mut self) {
        for key in self.pending.backoff.due(self.now) {
            self.ask_again(&key);
        }
    }
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
