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
use crate::cycle::evaluate::{Block, Gate, Request, Verdict};
use crate::engine::Engine;
use crate::pending::head_selector::Candidate;
use crate::pending::inadmissible::{Inadmissible, RequeueCondition};
use crate::pending::infeasible::{FeasibleShapes, Infeasible};
use crate::pending::pending_queue::{PendingQueue, Recheck};
use crate::pending::shapes::{RequestShape, ShapeId};
use crate::quota::{QueueHeads, QueueId};
use crate::reservation::store::{ReservationSlot, ReservedNode};
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

impl Engine {
    /// Decides all that can be decided at `now`, up to the budget. A time before one that was
    /// told already counts as that one.
    pub fn decide(&mut self, now: Time) -> Decisions {
        self.advance(now);
        let mut decisions = Vec::new();
        self.end_lingering();
        self.note_touched();
        self.settle_room();
        self.run_timers(&mut decisions);
        self.evict_drained(&mut decisions);
        self.renew_ends();
        self.note_touched();
        self.rouse_takers();
        self.resize(&mut decisions);
        let cut = self.release_pending(&mut decisions);
        self.scale_up_elastic(&mut decisions);
        let again = cut.then(|| self.now.after(CUT_PAUSE_MS));
        // What grew with smaller pods than before may leave room to those who were judged first.
        let left = !cut && self.pending.freed.is_any();
        let more = decisions.len() >= self.config.decision_budget || left;
        Decisions {
            decisions,
            more,
            cut,
            wake_at: self.wake_at().into_iter().chain(again).min(),
        }
    }

    /// When something may have to be decided although no event came.
    fn wake_at(&self) -> Option<Time> {
        let timer = self.jobs.next_timer();
        // An end that does not come moves the reservations that count on it.
        let end = self.jobs.next_end();
        let end = end.filter(|_| !self.reservations.is_empty());
        let times = timer.into_iter().chain(end);
        let lingers = self.capacity.completion_grace.next();
        times
            .chain(self.pending.backoff.next())
            .chain(lingers)
            .min()
    }

    pub(crate) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.quota.advance(self.now);
    }

    /// Wakes those who wait for what changed in the clusters.
    pub(crate) fn note_touched(&mut self) {
        let touched = self.capacity.room.take_touched();
        if !touched.is_empty() {
            self.refleet(touched.iter());
        }
        let freed = self.capacity.room.take_grown();
        if !freed.is_empty() {
            self.jobs.retry_scale_up();
            self.pending.backoff.moved();
            self.note_grown(freed);
        }
    }

    /// Some clusters are others: the fleet's totals change, and what could never fit is judged
    /// anew.
    pub(crate) fn refleet<'a>(&mut self, clusters: impl Iterator<Item = &'a ClusterName>) {
        for cluster in clusters {
            let total = self.cluster_total(cluster);
            self.quota.set_fleet(cluster, &total);
        }
        self.capacity
            .eligibility
            .renew(&self.capacity.clusters, &self.capacity.room);
        // A node that is new, or larger than it was, may take more of an elastic gang.
        self.jobs.retry_scale_up();
        self.bounds_moved();
        self.pending.backoff.moved();
        self.pending.shapes.forget_fits();
        self.pending.queues.wake(&RequeueCondition::Fleet);
    }

    /// What the usable nodes of a cluster have together, by class; nothing where the cluster
    /// is not usable.
    pub(crate) fn cluster_total(&self, cluster: &ClusterName) -> BTreeMap<PoolClass, Tally> {
        let mut total: BTreeMap<PoolClass, Tally> = BTreeMap::new();
        let usable = self
            .capacity
            .clusters
            .get(cluster)
            .is_some_and(|fact| fact.usable);
        let room = self.capacity.room.cluster(cluster).filter(|_| usable);
        let nodes = room.into_iter().flat_map(|room| room.nodes().values());
        for node in nodes.filter(|node| node.fact.usable) {
            let class = total.entry(node.fact.class.clone()).or_default();
            class.add(&node.fact.allocatable, 1);
        }
        total
    }

    /// Wakes those who wait for bounds that are others now.
    pub(crate) fn bounds_moved(&mut self) {
        for queue in self.quota.take_changed_bounds() {
            self.pending
                .queues
                .wake(&RequeueCondition::Bounds(queue.clone()));
            self.wake_for_quota(&queue);
            // Something may be kept for a job that it could not be let go with any more.
            let holders = self.reservations.holders_in(&queue);
            let holders: Vec<JobKey> = holders.map(|rank| rank.key.clone()).collect();
            holders.iter().for_each(|holder| self.rouse_job(holder));
            self.changed.queues.insert(queue);
        }
    }

    /// Judges what is awake, first in order first, as far as the budget goes. Whether it stopped
    /// for having judged too many in vain: those who are left stay awake.
    fn release_pending(&mut self, decisions: &mut Vec<Decision>) -> bool {
        let mut in_vain = 0;
        while decisions.len() < self.config.decision_budget {
            let Some(Candidate {
                queue,
                shape,
                rank,
                only_takes,
            }) = self.next_candidate()
            else {
                self.settle_grown();
                self.name_woken();
                return false;
            };
            let Some(wanted) = self.pending.shapes.get(shape).map(Arc::clone) else {
                continue;
            };
            if only_takes && self.takes_nothing(&queue, &rank, (shape, &wanted)) {
                continue;
            }
            in_vain += 1;
            if in_vain > self.config.most_in_vain {
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
            match self.judge_knowing(request, shape) {
                Verdict::Go(shares) => {
                    in_vain = 0;
                    decisions.extend(self.release(&rank.key, shares));
                    self.note_touched();
                    self.unsettle_holders(&rank.key);
                    self.rouse_front(&queue);
                    self.rouse_limited(&queue, wanted.user_of(&rank.key));
                    self.look_behind(&queue, (shape, &wanted));
                }
                Verdict::Blocked(block) => {
                    match block.gate {
                        Gate::Room => self.pending.shapes.note_could_fit(shape, true),
                        Gate::Never if block.reason == Reason::ExceedsFleet => {
                            self.pending.shapes.note_could_fit(shape, false);
                        }
                        Gate::Never | Gate::Limit | Gate::Quota(..) | Gate::Reserved => {}
                    }
                    decisions.extend(self.take_for_group(least, shape, &block));
                    self.reserve_for(least, &block);
                    match block.infeasible {
                        Some(why) => self.infeasible(&queue, shape, block.reason, why),
                        None => self.put_to_sleep(&queue, shape, *block),
                    }
                }
            }
        }
        false
    }

    /// Who stands first now of those who want what one got: most often it is entitled to nothing,
    /// and need not be asked for that alone.
    fn look_behind(&mut self, queue: &QueueName, (id, shape): (ShapeId, &RequestShape)) {
        if !self.lets_take(queue) || !self.may_take(queue, id) {
            return;
        }
        let pending_queue = self.pending.queues.pending_queue(queue);
        let next = pending_queue.and_then(|pending_queue| pending_queue.first_awake(id));
        if let Some(rank) = next.map(|(rank, _)| rank.clone()) {
            self.takes_nothing(queue, &rank, (id, shape));
        }
    }

    /// The verdict on a job that knows whether the empty fleet, and the bounds of its queue on
    /// pools, could ever let it go: what could never start stops nobody, whatever it lacks first.
    fn judge_knowing(&mut self, request: Request<'_>, id: ShapeId) -> Verdict {
        let verdict = self.judge(request);
        let gate = match &verdict {
            Verdict::Blocked(block) => &block.gate,
            Verdict::Go(_) => return verdict,
        };
        if matches!(gate, Gate::Never | Gate::Limit) {
            return verdict;
        }
        let mut could = true;
        let asks = matches!(gate, Gate::Quota(..)) && !request.shape.demand.elastic;
        if asks && self.pending.shapes.could_fit(request.shape).is_none() {
            could = self.could_fit(request.shape, &BTreeSet::new());
            self.pending.shapes.note_could_fit(id, could);
        }
        let bounded = self.quota.bounds_pools(request.queue);
        if could
            && bounded
            && self
                .pending
                .shapes
                .let_by(request.shape, request.queue)
                .is_none()
        {
            let least = crate::jobs::elastic::smallest(request.shape);
            could = self.could_be_let(request.queue, least.as_ref().unwrap_or(request.shape));
            self.pending.shapes.note_let_by(id, request.queue, could);
        }
        if could { verdict } else { self.judge(request) }
    }

    /// The first jobs of a queue; none where it takes no jobs.
    pub(crate) fn front_of(&self, id: QueueId) -> QueueHeads {
        if !self.quota.takes_jobs(id) {
            return QueueHeads::default();
        }
        let name = self.quota.name(id);
        let head = self.head_of(name);
        let pending_queue = self.pending.queues.pending_queue(name);
        let line = pending_queue.and_then(|pending_queue| pending_queue.ranks().first());
        QueueHeads {
            head: head.cloned(),
            pending: line.cloned(),
        }
    }

    /// The job of a queue to be judged next, if any may be: those beyond the limit of who may
    /// compete may not, and wait for places in line, not for a wake.
    pub(crate) fn candidate_of(
        &self,
        queue: &QueueName,
        feasible: &FeasibleShapes<'_>,
    ) -> Option<(&QueueOrder, ShapeId)> {
        let found = self.candidate_by(queue, feasible, Way::Cheaper);
        // When nobody may be judged any more all ways find nobody: only here can they differ.
        debug_assert_eq!(found, self.candidate_by(queue, feasible, Way::InOrder));
        debug_assert_eq!(found, self.candidate_by(queue, feasible, Way::ByName));
        found
    }

    /// The same, found in this way; what is found does not depend on it.
    fn candidate_by(
        &self,
        queue: &QueueName,
        feasible: &FeasibleShapes<'_>,
        way: Way,
    ) -> Option<(&QueueOrder, ShapeId)> {
        let pending_queue = self.pending.queues.pending_queue(queue)?;
        let front = LazyCell::new(|| self.front(queue));
        let takes = LazyCell::new(|| self.lets_take(queue));
        let ordering = self.quota.ordering(queue);
        let strict = ordering == QueueOrdering::StrictFifo;
        let may = |rank: &QueueOrder, shape| {
            // Who holds up all behind it is judged once in any case: what its own queue would
            // never let go holds up nobody, and of that the room for what it wants tells nothing.
            (strict && !pending_queue.was_judged(shape))
                || self.may_find_room(feasible, queue, rank, shape)
                || self.may_reserve(&front, rank, shape)
                || (*takes && self.may_take(queue, shape))
                || self.is_due(queue, pending_queue, shape)
        };
        let kept = self.pending.shapes.infeasible_shapes().kept();
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
            let named = named.copied().chain(self.shapes_of(&front));
            let firsts = named.filter_map(|shape| pending_queue.first_awake(shape));
            firsts.filter(|(rank, shape)| may(rank, *shape)).min()
        }?;
        let competes = self.over_pending_limit(queue, candidate.0).is_none();
        competes.then_some(candidate)
    }

    /// Whether a group is judged once more, whatever is known of the room for what it wants.
    pub(crate) fn is_due(
        &self,
        queue: &QueueName,
        pending_queue: &PendingQueue,
        shape: ShapeId,
    ) -> bool {
        match pending_queue.due().get(&shape) {
            Some(Recheck::Surely) => true,
            Some(Recheck::IfNearer) => self.nodes_are_nearer(queue, shape),
            None => false,
        }
    }

    /// The first job of a queue that is awake, if it may compete: its queue is asked for who is
    /// to be judged.
    pub(crate) fn head_of(&self, queue: &QueueName) -> Option<&QueueOrder> {
        let pending_queue = self.pending.queues.pending_queue(queue)?;
        let (head, _) = pending_queue.candidate(self.quota.ordering(queue), |_, _| true)?;
        self.over_pending_limit(queue, head)
            .is_none()
            .then_some(head)
    }

    /// The place of a waiting job that is not among the first who may compete in its queue, with
    /// how many may.
    pub(crate) fn over_pending_limit(
        &self,
        queue: &QueueName,
        rank: &QueueOrder,
    ) -> Option<(usize, u32)> {
        let limit = self.quota.pending_limit(queue)?;
        let place = self
            .pending
            .queues
            .pending_queue(queue)?
            .ranks()
            .position(rank)?;
        (place > limit as usize).then_some((place, limit))
    }

    /// No room is found for what a group wants: for nobody else who wants the same either.
    fn infeasible(&mut self, queue: &QueueName, shape: ShapeId, reason: Reason, why: Infeasible) {
        self.pending
            .shapes
            .note_shut(shape, why, self.pending.freed.count());
        if self.pending.queues.is_fronted(shape) {
            self.guess_scopes(shape);
        }
        self.pending.queues.note_judged(queue, shape);
        if self.pending.queues.note_reason(queue, shape, reason) {
            self.name_group(queue, shape);
        }
    }

    /// Groups that were woken for something else and find no room are stopped by that now.
    fn name_woken(&mut self) {
        for (queue, shape) in self.pending.queues.take_woken() {
            let reason = match self.pending.shapes.infeasible(shape) {
                Some(Infeasible::NoRoom) => Reason::WaitingForRoom,
                Some(Infeasible::Withheld(_)) => Reason::ReservedForAnother,
                None => continue,
            };
            if self.pending.queues.note_reason(&queue, shape, reason) {
                self.name_group(&queue, shape);
            }
        }
    }

    fn put_to_sleep(&mut self, queue: &QueueName, shape: ShapeId, block: Block) {
        let sleep = Inadmissible {
            reason: block.reason,
            admissible_later: !matches!(block.gate, Gate::Never | Gate::Limit),
            conditions: block.conditions,
        };
        if self.pending.queues.sleep(queue, shape, sleep) {
            self.name_group(queue, shape);
        }
    }

    /// Names the first jobs of a group as changed.
    fn name_group(&mut self, queue: &QueueName, shape: ShapeId) {
        let pending_queue = self.pending.queues.pending_queue(queue);
        let named = pending_queue
            .into_iter()
            .flat_map(|pending_queue| pending_queue.group(shape))
            .take(NAMED);
        self.changed.jobs.extend(named.map(|rank| rank.key.clone()));
        self.changed.queues.insert(queue.clone());
    }

    /// What was released may have taken what was kept: those holders choose anew. And it has
    /// moved its queue back in the order: those who were stopped by a holder there may not be
    /// any more.
    fn unsettle_holders(&mut self, released: &JobKey) {
        let Some(job) = self.jobs.released(released) else {
            return;
        };
        let admission = &job.admission;
        let path = self.quota.path(&admission.queue);
        let on_its_nodes = |node: &ReservedNode| {
            admission.shares.iter().any(|share| {
                share.cluster == node.cluster && share.slots.iter().any(|s| s.node == node.node)
            })
        };
        let short_of = |scope: &ReservationSlot| matches!(scope, ReservationSlot::Headroom(q) if path.contains(q));
        let mut met = Vec::new();
        let mut order_moved = false;
        for kept in self.reservations.iter() {
            let its_path = self.quota.path(&kept.queue);
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
            self.rouse_job(&holder);
        }
        if order_moved {
            self.pending
                .queues
                .wake_others(&RequeueCondition::Reservation, &queue);
        }
    }

    /// A user has reached a limit in a queue: the user's jobs that head strict queues below it
    /// hold up no others any more, and are evaluated again.
    fn rouse_limited(&mut self, queue: &QueueName, user: &str) {
        let strict = self.quota.strict_queues_at_limit(queue, user).into_iter();
        let heads = strict.filter_map(|queue| {
            let pending_queue = self.pending.queues.pending_queue(queue)?;
            pending_queue.first_that_may_go()
        });
        let heads: Vec<JobKey> = heads.map(|rank| rank.key.clone()).collect();
        for head in heads {
            let shape = self
                .shape_of(&head)
                .and_then(|shape| self.pending.shapes.get(shape));
            if shape.is_some_and(|shape| shape.user_of(&head) == user) {
                self.rouse_job(&head);
            }
        }
    }

    /// Drops the reservations of jobs that are past the pending limit of a queue: they would have
    /// them for ever.
    pub(crate) fn drop_over_limit(&mut self, queue: &QueueName) {
        if self.quota.pending_limit(queue).is_none() {
            return;
        }
        let holders = self.reservations.holders_in(queue);
        let over = holders.filter(|rank| self.over_pending_limit(queue, rank).is_some());
        let over: Vec<JobKey> = over.map(|rank| rank.key.clone()).collect();
        for key in over {
            self.drop_reservation_of(&key);
        }
    }
}
