//! The job that is evaluated next, without asking every queue.
//!
//! It is the first job that may be evaluated, of the queue that goes first. A queue has to be asked
//! only if its answer may differ from the last one, when it had no such job:
//! - it was marked dirty: something about its pending jobs changed, a reservation became possible for
//!   one of them, or the priorities of reservations changed;
//! - a shape of one of its jobs became feasible;
//! - it is before the owner of a reservation that makes a shape infeasible;
//! - a slot is free for one of the jobs in its reservation window ([`feasible::with_free_slots`]).
//!
//! So a round costs what may have changed, not the number of queues. All of this is a cache: with every
//! queue asked, the same job is found.

use crate::amounts::hashed::Hashed;
use crate::api::job::QueueOrder;
use crate::backfill::feasible::FeasibleShapes;
use crate::backfill::{feasible, window, withheld};
use crate::cycle::decide::{self, MOVED_AT_ONCE};
use crate::cycle::unreservable::{self, OrderMoves};
use crate::cycle::{reserve, users, wake};
use crate::pending::pending_queue::PendingQueue;
use crate::pending::shapes::ShapeId;
use crate::placement::request;
use crate::preemption::evict;
use crate::quota::{QueueHeads, QueueId, Round};
use crate::state::{Engine, Inputs};
use facts::{QueueName, QueueOrdering};
use std::cell::{Cell, LazyCell, RefCell};
use std::collections::BTreeSet;

/// With more queues than this that have a feasible shape, no queue is skipped: one of the first has a
/// job to evaluate.
const MANY: usize = 64;

/// The most queues that are moved in the order before a search ends.
const RANKED: usize = 256;

/// To look for another window behind jobs that can get no reservation counts as to list so many classes by other slots.
const PASS_AS: usize = 16;

/// What a search for the next head found.
#[derive(Debug)]
pub(crate) enum HeadSearch {
    /// The job that is evaluated next.
    Found(HeadCandidate),
    /// No job is to be evaluated.
    NoneLeft,
    /// Nothing yet: many queues had changed, of which the first are in their places now.
    RankedSome,
}

/// What a search for the next head cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SearchCost {
    /// How many queues were moved in the order, or had no job.
    pub(crate) queues: usize,
    /// How many classes were asked.
    pub(crate) classes: usize,
    /// How many classes were woken, or listed by other slots.
    pub(crate) moved: usize,
}

impl SearchCost {
    pub(crate) fn add(&mut self, other: Self) {
        self.queues += other.queues;
        self.classes += other.classes;
        self.moved += other.moved;
    }
}

/// The job that is evaluated next.
#[derive(Debug, Clone)]
pub(crate) struct HeadCandidate {
    pub(crate) queue: QueueName,
    pub(crate) shape: ShapeId,
    pub(crate) rank: QueueOrder,
    /// True if it is evaluated only since it may preempt: its shape is infeasible, and it can get no
    /// reservation.
    pub(crate) only_takes: bool,
}

/// The job of a queue that is to be evaluated next, if there is one.
pub(crate) type Answer<'a> = Option<(&'a QueueOrder, ShapeId)>;

/// Searches for the next job to evaluate: the first one of the queue that goes first. Also returns what that cost.
pub(crate) fn next_candidate(engine: &mut Engine) -> (HeadSearch, SearchCost) {
    let mut cost = SearchCost::default();
    if !rank_some(engine, &mut cost) {
        return (HeadSearch::RankedSome, cost);
    }
    wake::offer_freed(engine);
    engine.pending.ask_again();
    let feasible = feasible::feasible(engine.inputs());
    debug_assert_eq!(
        feasible::wrongly_feasible(engine.inputs(), &feasible),
        Vec::<String>::new()
    );
    let (found, without) = ask_in_order(engine.inputs(), &feasible);
    cost.classes = feasible.asked();
    let fruitless = feasible.take_fruitless();
    let not_taken = feasible.not_taken();
    not_taken
        .into_iter()
        .for_each(|shape| engine.pending.withdraw(shape));
    for (queue, shape) in fruitless {
        let name = engine.quota.name(queue);
        engine.pending.queues.pass_over(name, shape);
    }
    cost.queues += without.len();
    let found = found.map_or(HeadSearch::NoneLeft, HeadSearch::Found);
    for queue in without {
        engine.pending.heads.note_none(queue);
        let name = engine.quota.name(queue);
        engine.pending.queues.none_moves(name);
    }
    (found, cost)
}

/// Moves the queues about which something changed to their places in the order.
pub(crate) fn rank_queues(engine: &mut Engine) {
    while !rank_some(engine, &mut SearchCost::default()) {}
}

/// Moves some of the queues about which something changed. Returns whether no more are left.
fn rank_some(engine: &mut Engine, cost: &mut SearchCost) -> bool {
    users::rank_users(engine);
    // To move queues may change who has a claim to a slot, and wake classes.
    loop {
        let (woken, all_woken) = wake::wake_some(engine);
        cost.moved += woken;
        if !all_woken {
            return false;
        }
        wake::settle_contested(engine);
        if !rank_changed(engine, cost) {
            return false;
        }
        if !engine.pending.has_contested() && !engine.pending.has_to_wake() {
            return true;
        }
    }
}

fn rank_changed(engine: &mut Engine, cost: &mut SearchCost) -> bool {
    let mut changed = engine.pending.queues.take_changed(RANKED);
    let mut is_done = !engine.pending.queues.has_changed();
    for queue in &changed {
        decide::drop_over_limit(engine, queue);
    }
    if is_done {
        changed.append(&mut engine.pending.queues.take_changed(usize::MAX));
    }
    engine.changed.order.extend(changed.iter().cloned());
    cost.queues += changed.len();
    let most = cost.moved + MOVED_AT_ONCE;
    for queue in changed {
        if !note_window(engine, &queue, cost, most) {
            is_done = false;
            engine.pending.queues.note_changed(&queue);
        }
        engine.quota.unrank(&queue);
        wake::mark_dirty(engine, &queue);
    }
    let mut order = OrderMoves::default();
    for id in engine.quota.take_unranked() {
        wake::note_satisfied(engine, id);
        let front = front_of(engine.inputs(), id);
        order.add(engine.quota.rank(id, &front));
    }
    unreservable::order_moved(engine, &order);
    is_done
}

/// Notes which jobs of a queue may get a reservation, unless `most` classes are listed by other slots for that. Returns
/// whether it did.
fn note_window(engine: &mut Engine, queue: &QueueName, cost: &mut SearchCost, most: usize) -> bool {
    let has_unknown = |engine: &Engine| {
        let pending_queue = engine.pending.queues.pending_queue(queue);
        let shape = pending_queue.and_then(PendingQueue::first_without_slots)?;
        // One that is feasible is evaluated, and may reserve then.
        let shapes = &engine.pending.shapes;
        shapes.infeasible(shape).map(|_| shape)
    };
    while let Some(shape) = has_unknown(engine) {
        if cost.moved >= most {
            return false;
        }
        cost.moved += reserve::guess_scopes(engine, shape);
    }
    let shapes = loop {
        let window = window::of_queue(engine.inputs(), queue);
        let unreservable = window::unreservable(engine.inputs(), &window);
        if unreservable.is_empty() {
            break window::shapes_of(engine.inputs(), &window).collect();
        }
        if cost.moved >= most {
            return false;
        }
        cost.moved += PASS_AS;
        for key in &unreservable {
            engine.pending.note_unreservable(key, None);
        }
    };
    engine.pending.queues.note_window(queue, shapes);
    true
}

/// The next job to evaluate, if there is one, and the queues that were asked and had none.
pub(crate) fn ask_in_order(
    inputs: Inputs<'_>,
    feasible: &FeasibleShapes<'_>,
) -> (Option<HeadCandidate>, Vec<QueueId>) {
    let reservable = feasible::with_free_slots(inputs, feasible);
    let few = with_candidates(inputs, feasible, &reservable);
    let behind = Cell::new(false);
    // A round asks for queues of equal rank more than once; each is searched once.
    let answers: RefCell<Hashed<QueueId, Answer<'_>>> = RefCell::default();
    let heads = &inputs.pending.heads;
    let is_skipped = |id: QueueId| {
        let few = few.as_ref().filter(|_| behind.get());
        few.is_some_and(|few| !few.contains(&id) && !heads.is_dirty_within(id))
    };
    let answer_of = |id: QueueId| {
        let queue = inputs.quota.name(id);
        if !behind.get() {
            behind.set(is_behind_all(inputs, feasible, queue));
        }
        match behind.get() {
            false => candidate_of(inputs, queue, feasible),
            true => answer_behind(inputs, id, feasible, &reservable),
        }
    };
    let ask = |id: QueueId| {
        let known = answers.borrow().get(&id).copied();
        let answer = known.unwrap_or_else(|| answer_of(id));
        answers.borrow_mut().insert(id, answer);
        answer.map(|(rank, _)| rank)
    };
    let round = Round {
        ask: &ask,
        skips: &is_skipped,
    };
    let next = inputs.quota.next(&round);
    let answers = answers.into_inner();
    let found = next.and_then(|id| {
        let (rank, shape) = answers.get(&id).copied()??;
        let queue = inputs.quota.name(id);
        let strict = inputs.quota.ordering(queue) == QueueOrdering::StrictFifo;
        let pending_queue = inputs.pending.queues.pending_queue(queue);
        let goes = strict
            || feasible::may_find_room(inputs, feasible, queue, rank, shape)
            || window::may_reserve(inputs, &window::of_queue(inputs, queue), rank, shape)
            || pending_queue.is_some_and(|pending_queue| {
                pending_queue.is_due(shape, strict) || moves(inputs, queue, pending_queue, shape)
            });
        Some(HeadCandidate {
            queue: queue.clone(),
            shape,
            rank: rank.clone(),
            only_takes: !goes,
        })
    });
    let without = answers.into_iter().filter(|(_, answer)| answer.is_none());
    (found, without.map(|(id, _)| id).collect())
}

/// The queues with feasible shapes, or with free slots for their windows, and all queues above them, if those are few.
fn with_candidates(
    inputs: Inputs<'_>,
    feasible: &FeasibleShapes<'_>,
    reservable: &BTreeSet<ShapeId>,
) -> Option<BTreeSet<QueueId>> {
    let feasible = feasible.active().flat_map(|(_, queues)| queues);
    let reservable = reservable.iter();
    let reservable =
        reservable.flat_map(|shape| inputs.pending.queues.with_active_in_window(*shape));
    let queues = feasible.copied().chain(reservable);
    let few: Vec<QueueId> = queues.take(MANY + 1).collect();
    let paths = few.iter().flat_map(|queue| inputs.quota.path_of(*queue));
    (few.len() <= MANY).then(|| paths.collect())
}

/// The next job of a queue behind all reservations that make a shape infeasible. If the queue had
/// none when it was last asked, it has one now only if it is dirty, has a feasible shape, or a slot is free for one of
/// the jobs in its window.
fn answer_behind<'a>(
    inputs: Inputs<'a>,
    id: QueueId,
    feasible: &FeasibleShapes<'_>,
    reservable: &BTreeSet<ShapeId>,
) -> Answer<'a> {
    let queue = inputs.quota.name(id);
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let may_reserve = || {
        let window = inputs.pending.queues.window(queue).into_iter().flatten();
        let mut window = window.filter(|shape| reservable.contains(shape));
        window.any(|shape| pending_queue.first_active(*shape).is_some())
    };
    let is_dirty = inputs.pending.heads.is_dirty(id);
    let asked = is_dirty || feasible.may_be_in(pending_queue) || may_reserve();
    let answer = || candidate_of(inputs, queue, feasible);
    asked.then(answer).flatten()
}

/// Returns true if all jobs of a queue are behind all reservations that make a shape infeasible.
pub(crate) fn is_behind_all(
    inputs: Inputs<'_>,
    feasible: &FeasibleShapes<'_>,
    queue: &QueueName,
) -> bool {
    let pending_queue = inputs.pending.queues.pending_queue(queue);
    let first = pending_queue.and_then(|pending_queue| pending_queue.first_that_may_go());
    match (feasible.last, first) {
        (Some(last), Some(first)) => feasible::stands_before(inputs, last, queue, first),
        _ => true,
    }
}

/// For the audit: queues whose next job is not the one that the search finds; none while queues
/// wait to be moved in the order.
pub(crate) fn never_asked(inputs: Inputs<'_>) -> Vec<String> {
    let has_to_offer = inputs.pending.freed().has_to_offer();
    let queues = &inputs.pending.queues;
    let moves = inputs.pending.has_to_wake() || queues.has_changed() || inputs.quota.has_unranked();
    if has_to_offer || moves || !inputs.pending.shapes.maybe_feasible().is_empty() {
        return Vec::new();
    }
    let feasible = feasible::feasible(inputs);
    let reservable = feasible::with_free_slots(inputs, &feasible);
    let forgotten = inputs
        .pending
        .queues
        .pending_queues()
        .filter_map(|(queue, _)| {
            let id = inputs.quota.id(queue)?;
            if !inputs.quota.takes_jobs(id) || !is_behind_all(inputs, &feasible, queue) {
                return None;
            }
            let has = candidate_of(inputs, queue, &feasible).map(|(rank, _)| &rank.key);
            let gives = answer_behind(inputs, id, &feasible, &reservable);
            let gives = gives.map(|(rank, _)| &rank.key);
            (has != gives).then(|| format!("queue {queue}: has {has:?}, gives {gives:?}"))
        });
    forgotten.collect()
}

/// The first jobs of a queue; none where it takes no jobs.
pub(crate) fn front_of(inputs: Inputs<'_>, id: QueueId) -> QueueHeads {
    if !inputs.quota.takes_jobs(id) {
        return QueueHeads::default();
    }
    let name = inputs.quota.name(id);
    let head = head_of(inputs, name);
    let pending_queue = inputs.pending.queues.pending_queue(name);
    // Other queues are compared with the job that was queued first, whosever turn it is here.
    let (head, line) = match pending_queue.filter(|_| inputs.quota.orders_users(name)) {
        Some(queue) => (head.and(queue.earliest_active()), queue.ranks().earliest()),
        None => (head, pending_queue.and_then(|queue| queue.ranks().first())),
    };
    QueueHeads {
        head: head.cloned(),
        pending: line.cloned(),
    }
}

/// The next job of a queue, if there is one. Jobs beyond the limit of pending jobs are left out:
/// they wait for a place in the queue.
pub(crate) fn candidate_of<'a>(
    inputs: Inputs<'a>,
    queue: &QueueName,
    feasible: &FeasibleShapes<'_>,
) -> Answer<'a> {
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let reservable = LazyCell::new(|| inputs.pending.queues.window(queue));
    let front = LazyCell::new(|| window::of_queue(inputs, queue));
    let takes = LazyCell::new(|| evict::lets_take(inputs, queue));
    let ordering = inputs.quota.ordering(queue);
    let strict = ordering == QueueOrdering::StrictFifo;
    let is_in_window = |shape| reservable.is_some_and(|shapes| shapes.contains(&shape));
    let may_go = |rank: &QueueOrder, shape: ShapeId| {
        // Evaluate a StrictFIFO head once in any case: if it exceeds its capability it must not block
        // the queue, and whether its shape is feasible does not say that.
        pending_queue.is_due(shape, strict)
            || feasible::may_find_room(inputs, feasible, queue, rank, shape)
            || (is_in_window(shape) && window::may_reserve(inputs, &front, rank, shape))
            || (*takes
                && !inputs.pending.deferred.waits(queue, shape)
                && evict::may_take(inputs, pending_queue, (queue, rank), shape))
            || moves(inputs, queue, pending_queue, shape)
    };
    debug_assert!(window::shapes_of(inputs, &front).all(is_in_window));
    // A job that may preempt is evaluated whatever is known of its shape.
    let candidate = match strict || *takes {
        true => pending_queue.candidate(ordering, |rank, shape| {
            feasible.note_asked();
            may_go(rank, shape)
        }),
        false => asked_candidate_of(inputs, (queue, pending_queue), feasible, may_go),
    };
    let candidate = candidate?;
    let competes = request::over_pending_limit(inputs, queue, candidate.0).is_none();
    competes.then_some(candidate)
}

/// The next job of a queue that any job may leave first. Classes that are asked without result are noted.
fn asked_candidate_of<'a>(
    inputs: Inputs<'a>,
    (queue, pending_queue): (&QueueName, &'a PendingQueue),
    feasible: &FeasibleShapes<'_>,
    may_go: impl Fn(&QueueOrder, ShapeId) -> bool + Copy,
) -> Answer<'a> {
    let goes = |rank: &QueueOrder, shape: ShapeId| {
        feasible.note_asked();
        let goes = may_go(rank, shape);
        if !goes {
            feasible.note_fruitless(pending_queue.id(), shape);
        }
        goes
    };
    let window = inputs.pending.queues.window(queue).into_iter().flatten();
    let infeasible = shapes_of_infeasible_candidates(inputs, (queue, pending_queue), feasible);
    let found = pending_queue.candidate_among_asked(infeasible.chain(window.copied()), goes);
    let ordering = inputs.quota.ordering(queue);
    debug_assert_eq!(found, pending_queue.candidate(ordering, may_go));
    found
}

/// The infeasible shapes that may be feasible for a job of a queue. What reservations withhold makes a shape infeasible
/// for the jobs behind their owners: only if a job of the queue is before one, or owns one, may it be feasible.
fn shapes_of_infeasible_candidates<'a>(
    inputs: Inputs<'a>,
    (queue, pending_queue): (&'a QueueName, &'a PendingQueue),
    feasible: &'a FeasibleShapes<'_>,
) -> impl Iterator<Item = ShapeId> + 'a {
    let withheld = inputs.pending.shapes.infeasible_shapes().withheld();
    let unbound = !withheld.is_empty() && !is_behind_all(inputs, feasible, queue);
    let withheld = unbound.then(|| pending_queue.passed_among(withheld));
    let withheld = withheld.into_iter().flatten();
    let owners = inputs.reservations.holders_in(queue);
    let owners = owners.filter_map(move |rank| withheld::shape_of(inputs, &rank.key));
    withheld.chain(owners)
}

/// Returns true if the reservation of a job of a class should move to nodes that were freed.
fn moves(
    inputs: Inputs<'_>,
    queue: &QueueName,
    pending_queue: &PendingQueue,
    shape: ShapeId,
) -> bool {
    pending_queue.may_move(shape) && feasible::nodes_are_nearer(inputs, queue, shape)
}

/// The first active job of a queue, if it is within the limit of pending jobs.
pub(crate) fn head_of<'a>(inputs: Inputs<'a>, queue: &QueueName) -> Option<&'a QueueOrder> {
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let (head, _) = pending_queue.candidate(inputs.quota.ordering(queue), |_, _| true)?;
    request::over_pending_limit(inputs, queue, head)
        .is_none()
        .then_some(head)
}
