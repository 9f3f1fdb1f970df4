//! The job that is evaluated next, without asking every queue.
//!
//! It is the first job that may be evaluated, of the queue that goes first. A queue has to be asked
//! only if its answer may differ from the last one, when it had no such job:
//! - it was marked dirty: something about its pending jobs changed, or a reservation became possible
//!   for one of them;
//! - a shape of one of its jobs might find capacity again;
//! - it stands before the owner of a reservation that makes a shape infeasible;
//! - the priorities of reservations changed ([`crate::backfill::window`]): then the jobs in the window
//!   are asked once.
//!
//! So a round costs what may have changed, not the number of queues.

use crate::amounts::hashed::Hashed;
use crate::api::facts::QueueOrdering;
use crate::api::ids::QueueName;
use crate::api::job::QueueOrder;
use crate::backfill::feasible::FeasibleShapes;
use crate::backfill::{feasible, window};
use crate::cycle::wake;
use crate::cycle::{decide, reserve};
use crate::pending::pending_queue::{PendingQueue, Recheck};
use crate::pending::shapes::ShapeId;
use crate::placement::request;
use crate::preemption::evict;
use crate::quota::{QueueHeads, QueueId, Round};
use crate::state::{Engine, Inputs};
use std::cell::{Cell, LazyCell, RefCell};
use std::collections::BTreeSet;

/// With more queues than this that have a feasible shape, queues are asked in order until one has a
/// job to evaluate: that will be soon.
pub(crate) const MANY: usize = 64;

/// Up to this many feasible shapes are looked up in a queue; with more, its jobs are gone through.
pub(crate) const FEW_OPEN: usize = 8;

/// The job that is evaluated next.
#[derive(Debug, Clone)]
pub(crate) struct HeadCandidate {
    pub(crate) queue: QueueName,
    pub(crate) shape: ShapeId,
    pub(crate) rank: QueueOrder,
    /// Whether it is evaluated only since it may preempt: its shape is infeasible, and it can get no
    /// reservation.
    pub(crate) only_takes: bool,
}

/// The job of a queue that is to be evaluated next, if there is one.
pub(crate) type Answer<'a> = Option<(&'a QueueOrder, ShapeId)>;

/// The queues that are asked, wherever they are in the order.
pub(crate) enum AskedQueues {
    Everybody,
    /// The dirty ones, and those with a job of a feasible shape.
    Open,
    /// The dirty ones and these, with all queues above them.
    These(BTreeSet<QueueId>),
}

/// The next job to evaluate: the first one of the queue that goes first.
pub(crate) fn next_candidate(engine: &mut Engine) -> Option<HeadCandidate> {
    rank_queues(engine);
    let feasible = feasible::feasible(engine.inputs());
    debug_assert_eq!(
        feasible::wrongly_feasible(engine.inputs(), &feasible),
        Vec::<String>::new()
    );
    let reopened = (
        engine.pending.shapes.reopened(),
        engine.pending.freed.generation(),
    );
    let (found, nobody) = ask_in_order(engine.inputs(), &feasible, reopened);
    for queue in nobody {
        engine.pending.heads.note_none(queue);
        // A reservation cannot move to other nodes until more becomes free again.
        let name = engine.quota.name(queue);
        engine.pending.queues.forget_reminders(name);
    }
    if found.is_none() {
        engine.pending.heads.note_exhausted(reopened);
    }
    found
}

/// Moves the queues about which something changed to their places in the order.
pub(crate) fn rank_queues(engine: &mut Engine) {
    wake::mark_reservable_dirty(engine);
    let mut dirty = engine.pending.queues.take_dirty();
    for queue in &dirty {
        decide::drop_over_limit(engine, queue);
    }
    dirty.append(&mut engine.pending.queues.take_dirty());
    for queue in dirty {
        let shapes: BTreeSet<ShapeId> =
            window::shapes_of(engine.inputs(), &window::front(engine.inputs(), &queue)).collect();
        // Slots of an unreservable shape are never asked for.
        for shape in &shapes {
            if engine.pending.shapes.infeasible(*shape).is_some() {
                reserve::guess_scopes(engine, *shape);
            }
        }
        engine.pending.queues.note_fronts(&queue, shapes);
        engine.quota.unrank(&queue);
        wake::mark_dirty(engine, &queue);
    }
    for id in engine.quota.take_unranked() {
        wake::note_satisfied(engine, id);
        let front = front_of(engine.inputs(), id);
        engine.quota.rank(id, &front);
    }
}

/// The next job to evaluate, if there is one, and the queues that were asked and had none.
pub(crate) fn ask_in_order(
    inputs: Inputs<'_>,
    feasible: &FeasibleShapes<'_>,
    reopened: (u64, u64),
) -> (Option<HeadCandidate>, Vec<QueueId>) {
    let asked = to_be_asked(inputs, feasible, reopened);
    let settled = feasible::is_settled(inputs, feasible);
    let behind = Cell::new(false);
    // A round asks for queues of equal rank more than once; each is searched once.
    let answers: RefCell<Hashed<QueueId, Answer<'_>>> = RefCell::default();
    let heads = &inputs.pending.heads;
    let is_skipped = |id: QueueId| match &asked {
        AskedQueues::These(few) => behind.get() && !few.contains(&id) && !heads.is_dirty_within(id),
        AskedQueues::Everybody | AskedQueues::Open => false,
    };
    let answer_of = |id: QueueId| {
        let queue = inputs.quota.name(id);
        if settled && !behind.get() {
            behind.set(is_behind_all(inputs, feasible, queue));
        }
        match behind.get() {
            false => candidate_of(inputs, queue, feasible),
            true => answer_if_asked(inputs, &asked, id, feasible),
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
            || window::may_reserve(inputs, &window::front(inputs, queue), rank, shape)
            || pending_queue
                .is_some_and(|pending_queue| is_due(inputs, queue, pending_queue, shape));
        Some(HeadCandidate {
            queue: queue.clone(),
            shape,
            rank: rank.clone(),
            only_takes: !goes,
        })
    });
    let nobody = answers.into_iter().filter(|(_, answer)| answer.is_none());
    let nobody = nobody.map(|(id, _)| id);
    let news = nobody.filter(|id| !inputs.pending.heads.has_answered(*id));
    (found, news.collect())
}

pub(crate) fn to_be_asked(
    inputs: Inputs<'_>,
    feasible: &FeasibleShapes<'_>,
    reopened: (u64, u64),
) -> AskedQueues {
    if inputs.pending.heads.is_asking_windows() {
        return AskedQueues::Everybody;
    }
    let exhausted = inputs.pending.heads.is_exhausted(reopened);
    let open = || feasible.open.values().filter(|_| !exhausted);
    if open().map(|queues| queues.len()).sum::<usize>() > MANY {
        return AskedQueues::Open;
    }
    let mut few = BTreeSet::new();
    for queue in open().copied().flatten() {
        few.extend(inputs.quota.path_of(*queue));
    }
    AskedQueues::These(few)
}

/// The job of a queue behind all reservations that make a shape infeasible, if the queue is asked.
pub(crate) fn answer_if_asked<'a>(
    inputs: Inputs<'a>,
    asked: &AskedQueues,
    id: QueueId,
    feasible: &FeasibleShapes<'_>,
) -> Answer<'a> {
    let is_asked = match asked {
        AskedQueues::These(few) => few.contains(&id) || inputs.pending.heads.is_dirty(id),
        AskedQueues::Everybody | AskedQueues::Open => true,
    };
    is_asked
        .then(|| answer_behind(inputs, id, feasible))
        .flatten()
}

/// The next job of a queue behind all reservations that make a shape infeasible. If the queue had
/// none when it was last asked and has not changed since, only jobs whose shape became feasible are
/// looked at, and those in its reservation window if priorities of reservations changed.
pub(crate) fn answer_behind<'a>(
    inputs: Inputs<'a>,
    id: QueueId,
    feasible: &FeasibleShapes<'_>,
) -> Answer<'a> {
    let queue = inputs.quota.name(id);
    let ordering = inputs.quota.ordering(queue);
    let strict = ordering == QueueOrdering::StrictFifo;
    if inputs.pending.heads.is_dirty(id) || (strict && !inputs.pending.heads.has_answered(id)) {
        return candidate_of(inputs, queue, feasible);
    }
    // Only jobs in the reservation window have a priority that could have changed.
    let claims = !inputs.pending.heads.has_answered(id);
    if !claims && !feasible.are_open_in(id) {
        return None;
    }
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let opened = if !strict && feasible.open.len() <= FEW_OPEN {
        let open = feasible.open.keys();
        open.filter_map(|shape| pending_queue.first_active(*shape))
            .min()
    } else {
        pending_queue.candidate(ordering, |_, shape| feasible.is_open(shape))
    };
    let claimed = claims.then(|| first_with_a_claim(inputs, queue)).flatten();
    let first = opened.into_iter().chain(claimed).min();
    let found =
        first.filter(|(rank, _)| request::over_pending_limit(inputs, queue, rank).is_none());
    debug_assert!(!claims || found == candidate_of(inputs, queue, feasible));
    found
}

/// The first job in the window of a queue that can get a reservation.
pub(crate) fn first_with_a_claim<'a>(inputs: Inputs<'a>, queue: &QueueName) -> Answer<'a> {
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let front = window::front(inputs, queue);
    let firsts =
        window::shapes_of(inputs, &front).filter_map(|shape| pending_queue.first_active(shape));
    firsts
        .filter(|(rank, shape)| window::may_reserve(inputs, &front, rank, *shape))
        .min()
}

/// Whether all jobs of a queue are behind all reservations that make a shape infeasible.
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
    if inputs.pending.queues.is_dirty()
        || inputs.quota.has_unranked()
        || inputs
            .reservations
            .is_retry_due(inputs.pending.freed.generation())
    {
        return Vec::new();
    }
    let feasible = feasible::feasible(inputs);
    let reopened = (
        inputs.pending.shapes.reopened(),
        inputs.pending.freed.generation(),
    );
    let asked = to_be_asked(inputs, &feasible, reopened);
    if matches!(asked, AskedQueues::Everybody) || !feasible::is_settled(inputs, &feasible) {
        return Vec::new();
    }
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
            let gives = answer_if_asked(inputs, &asked, id, &feasible);
            let gives = gives.map(|(rank, _)| &rank.key);
            (has != gives).then(|| format!("queue {queue}: has {has:?}, gives {gives:?}"))
        });
    forgotten.collect()
}

/// Up to this many active classes of a queue are gone through in order.
pub(crate) const FEW_ACTIVE: usize = 32;

/// How the next job of a queue is searched; the result does not depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// Through all classes in order.
    InOrder,
    /// Through the classes that are known to be worth it.
    ByName,
    /// The one that likely costs less.
    Cheaper,
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

/// The next job of a queue, if there is one. Jobs beyond the limit of pending jobs are left out:
/// they wait for a place in the queue.
pub(crate) fn candidate_of<'a>(
    inputs: Inputs<'a>,
    queue: &QueueName,
    feasible: &FeasibleShapes<'_>,
) -> Option<(&'a QueueOrder, ShapeId)> {
    let found = candidate_by(inputs, queue, feasible, Way::Cheaper);
    // The searches can differ only where one of them finds a job.
    debug_assert_eq!(found, candidate_by(inputs, queue, feasible, Way::InOrder));
    debug_assert_eq!(found, candidate_by(inputs, queue, feasible, Way::ByName));
    found
}

/// The same, searched in this way.
pub(crate) fn candidate_by<'a>(
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
        // Evaluate a StrictFIFO head once in any case: if it exceeds its capability it must not block
        // the queue, and whether its shape is feasible does not say that.
        (strict && !pending_queue.was_evaluated(shape))
            || feasible::may_find_room(inputs, feasible, queue, rank, shape)
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
        Way::Cheaper => few * 2 + FEW_ACTIVE > pending_queue.active(),
    };
    let candidate = if strict || in_order {
        pending_queue.candidate(ordering, may)
    } else {
        // No other class is worth an evaluation.
        let named = feasible
            .open
            .keys()
            .chain(kept)
            .chain(pending_queue.due().keys())
            .chain(looking.into_iter().flatten());
        let named = named.copied().chain(window::shapes_of(inputs, &front));
        let firsts = named.filter_map(|shape| pending_queue.first_active(shape));
        firsts.filter(|(rank, shape)| may(rank, *shape)).min()
    }?;
    let competes = request::over_pending_limit(inputs, queue, candidate.0).is_none();
    competes.then_some(candidate)
}

/// Whether a class is evaluated once more, whatever is known of its shape.
pub(crate) fn is_due(
    inputs: Inputs<'_>,
    queue: &QueueName,
    pending_queue: &PendingQueue,
    shape: ShapeId,
) -> bool {
    match pending_queue.due().get(&shape) {
        Some(Recheck::Surely) => true,
        Some(Recheck::IfNearer) => feasible::nodes_are_nearer(inputs, queue, shape),
        None => false,
    }
}

/// The first active job of a queue, if it is within the limit of pending jobs.
pub(crate) fn head_of<'a>(inputs: Inputs<'a>, queue: &QueueName) -> Option<&'a QueueOrder> {
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let (head, _) = pending_queue.candidate(inputs.quota.ordering(queue), |_, _| true)?;
    request::over_pending_limit(inputs, queue, head)
        .is_none()
        .then_some(head)
}
