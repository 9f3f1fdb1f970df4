//! Who is judged next, without asking every queue.
//!
//! The first that may be judged, of the queue that goes first, is found by asking queues in
//! order. A queue has to be asked only if its answer may be another than when it last had
//! nobody:
//! - something about its waiting jobs changed since (it was *stirred*), or something may be kept
//!   for one of them for which nothing could be;
//! - a shape that somebody in it has might find room again (a door opened);
//! - it stands before one of those whose reservations stop a shape: it may take what they keep;
//! - claims to reservations are others ([`crate::reservation::window`]): then who stands in front is asked once.
//!
//! So a round costs what may have changed, not the number of queues. Whatever else lets a job
//! go has to stir its queue or open its shape.

use crate::amounts::hashed::{Hashed, HashedSet};
use crate::api::facts::QueueOrdering;
use crate::api::ids::QueueName;
use crate::api::job::QueueOrder;
use crate::cycle::decide;
use crate::pending::infeasible;
use crate::pending::infeasible::FeasibleShapes;
use crate::pending::shapes::ShapeId;
use crate::quota::{Path, QueueId, Round};
use crate::reservation::reserve;
use crate::reservation::window;
use crate::state::{Engine, Inputs};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// Where more queues than this have a shape that might find room, they are asked in order until
/// one has somebody, since that will be soon.
const MANY: usize = 64;

/// Where no more shapes than this might find room, they are looked up in a queue; else its jobs
/// are gone through.
const FEW_OPEN: usize = 8;

/// What is known of who has nobody to be judged.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadSelector {
    /// Queues that were stirred since they last had nobody.
    dirty: DirtyQueues,
    /// Openings and growths of nodes at which all who might find room were asked in vain.
    in_vain: Option<(u64, u64)>,
    /// Whether claims are others: who stands in front of each queue has to be asked.
    everybody: bool,
    /// Queues that were, and had nobody.
    answered: HashedSet<QueueId>,
    /// Queues that held less than they deserve when they were last ranked.
    unsatisfied: BTreeSet<QueueId>,
}

impl HeadSelector {
    /// Anybody's claim may be better now.
    pub(crate) fn ask_fronts(&mut self) {
        self.everybody = true;
        self.answered.clear();
    }

    /// A queue had nobody.
    fn note_nobody(&mut self, queue: QueueId) {
        self.dirty.remove(queue);
        if self.everybody {
            self.answered.insert(queue);
        }
    }

    /// Whether a queue had nobody when it was last asked, and nothing about it has changed since.
    fn has_answered(&self, queue: QueueId) -> bool {
        !self.dirty.contains(queue) && (!self.everybody || self.answered.contains(&queue))
    }
}

/// Queues that were stirred, each with those above it, and how many below each were. A number that
/// another queue gets later has that one asked once too often.
#[derive(Debug, Clone, Default)]
struct DirtyQueues {
    paths: Hashed<QueueId, Path>,
    below: Hashed<QueueId, u32>,
}

impl DirtyQueues {
    fn contains(&self, queue: QueueId) -> bool {
        self.paths.contains_key(&queue)
    }

    fn insert(&mut self, queue: QueueId, path: Path) {
        self.remove(queue);
        for id in &path {
            *self.below.entry(*id).or_default() += 1;
        }
        self.paths.insert(queue, path);
    }

    fn remove(&mut self, queue: QueueId) {
        for id in self.paths.remove(&queue).into_iter().flatten() {
            if let Some(count) = self.below.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    self.below.remove(&id);
                }
            }
        }
    }
}

/// Who is judged next.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) queue: QueueName,
    pub(crate) shape: ShapeId,
    pub(crate) rank: QueueOrder,
    /// Whether it is judged only since it may take something back: there is no room for what it
    /// wants, nor may anything be kept for it.
    pub(crate) only_takes: bool,
}

/// The job of a queue that is to be judged next, if any may be.
type Answer<'a> = Option<(&'a QueueOrder, ShapeId)>;

/// The queues that are asked wherever they stand.
enum Asked {
    Everybody,
    /// The stirred ones, and those in which somebody has a shape that might find room.
    Open,
    /// The stirred ones and these, given with all above them.
    SmallMap(BTreeSet<QueueId>),
}

/// The first of the queue that goes first.
pub(crate) fn next_candidate(engine: &mut Engine) -> Option<Candidate> {
    rank_queues(engine);
    let feasible = infeasible::feasible(engine.inputs());
    debug_assert_eq!(
        infeasible::wrong_doors(engine.inputs(), &feasible),
        Vec::<String>::new()
    );
    let reopened = (
        engine.pending.shapes.reopened(),
        engine.pending.freed.count(),
    );
    let (found, nobody) = ask_in_order(engine.inputs(), &feasible, reopened);
    for queue in nobody {
        engine.pending.heads.note_nobody(queue);
        // Nodes come no nearer until more becomes free again.
        let name = engine.quota.name(queue);
        engine.pending.queues.forget_reminders(name);
    }
    if found.is_none() {
        engine.pending.heads.in_vain = Some(reopened);
        engine.pending.heads.everybody = false;
    }
    found
}

/// Whether a queue holds what it deserves may be another: its claims are then.
fn note_satisfied(engine: &mut Engine, id: QueueId) {
    let unsatisfied = engine.quota.is_below_deserved(id);
    if unsatisfied == engine.pending.heads.unsatisfied.contains(&id) {
        return;
    }
    if unsatisfied {
        engine.pending.heads.unsatisfied.insert(id);
    } else {
        engine.pending.heads.unsatisfied.remove(&id);
    }
    let name = engine.quota.name(id);
    // Those whose claims are worse than the holder's was may have better ones now.
    if !unsatisfied && engine.reservations.holders_in(name).next().is_some() {
        engine.pending.heads.ask_fronts();
    }
    engine
        .pending
        .heads
        .dirty
        .insert(id, engine.quota.path_of(id));
}

/// The answers of all queues may be others, whatever anybody wants.
pub(crate) fn stir_all(engine: &mut Engine) {
    let queues = engine
        .pending
        .queues
        .pending_queues()
        .map(|(queue, _)| queue.clone());
    for queue in queues.collect::<Vec<_>>() {
        mark_dirty(engine, &queue);
    }
}

/// The answer of a queue may be another.
fn mark_dirty(engine: &mut Engine, queue: &QueueName) {
    // One without a number has no jobs.
    if let Some(id) = engine.quota.id(queue) {
        engine
            .pending
            .heads
            .dirty
            .insert(id, engine.quota.path_of(id));
    }
}

/// Something may be kept after all for jobs for which nothing could be: their queues' answers
/// may be others.
fn stir_hopeful(engine: &mut Engine) {
    for key in engine
        .reservations
        .take_hopeful(engine.pending.freed.count())
    {
        let line = engine.jobs.line_of(&key);
        if let Some(queue) = line.map(|line| line.queue.clone()) {
            mark_dirty(engine, &queue);
        }
    }
}

/// Puts those queues in their places about which something changed.
pub(crate) fn rank_queues(engine: &mut Engine) {
    stir_hopeful(engine);
    let mut dirty = engine.pending.queues.take_dirty();
    for queue in &dirty {
        decide::drop_over_limit(engine, queue);
    }
    dirty.append(&mut engine.pending.queues.take_dirty());
    for queue in dirty {
        let shapes: BTreeSet<ShapeId> =
            window::shapes_of(engine.inputs(), &window::front(engine.inputs(), &queue)).collect();
        // Of those for whom nothing can be kept that is never asked.
        for shape in &shapes {
            if engine.pending.shapes.infeasible(*shape).is_some() {
                reserve::guess_scopes(engine, *shape);
            }
        }
        engine.pending.queues.note_fronts(&queue, shapes);
        engine.quota.unrank(&queue);
        mark_dirty(engine, &queue);
    }
    for id in engine.quota.take_unranked() {
        note_satisfied(engine, id);
        let front = decide::front_of(engine.inputs(), id);
        engine.quota.rank(id, &front);
    }
}

/// Who is judged next, if anybody, and the queues that were asked and had nobody.
fn ask_in_order(
    inputs: Inputs<'_>,
    feasible: &FeasibleShapes<'_>,
    reopened: (u64, u64),
) -> (Option<Candidate>, Vec<QueueId>) {
    let asked = to_be_asked(inputs, feasible, reopened);
    let settled = infeasible::is_settled(inputs, feasible);
    let behind = Cell::new(false);
    // Queues that stand alike are asked more than once in a round; each is looked at once.
    let answers: RefCell<Hashed<QueueId, Answer<'_>>> = RefCell::default();
    let dirty = &inputs.pending.heads.dirty;
    let is_skipped = |id: QueueId| match &asked {
        Asked::SmallMap(few) => {
            behind.get() && !few.contains(&id) && !dirty.below.contains_key(&id)
        }
        Asked::Everybody | Asked::Open => false,
    };
    let answer_of = |id: QueueId| {
        let queue = inputs.quota.name(id);
        if settled && !behind.get() {
            behind.set(is_behind_all(inputs, feasible, queue));
        }
        match behind.get() {
            false => decide::candidate_of(inputs, queue, feasible),
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
            || infeasible::may_find_room(inputs, feasible, queue, rank, shape)
            || window::may_reserve(inputs, &window::front(inputs, queue), rank, shape)
            || pending_queue
                .is_some_and(|pending_queue| decide::is_due(inputs, queue, pending_queue, shape));
        Some(Candidate {
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

fn to_be_asked(inputs: Inputs<'_>, feasible: &FeasibleShapes<'_>, reopened: (u64, u64)) -> Asked {
    if inputs.pending.heads.everybody {
        return Asked::Everybody;
    }
    let in_vain = inputs.pending.heads.in_vain == Some(reopened);
    let open = || feasible.open.values().filter(|_| !in_vain);
    if open().map(|queues| queues.len()).sum::<usize>() > MANY {
        return Asked::Open;
    }
    let mut few = BTreeSet::new();
    for queue in open().copied().flatten() {
        few.extend(inputs.quota.path_of(*queue));
    }
    Asked::SmallMap(few)
}

/// The answer of a queue that stands behind all whose reservations stop a shape, if it is asked
/// at all.
fn answer_if_asked<'a>(
    inputs: Inputs<'a>,
    asked: &Asked,
    id: QueueId,
    feasible: &FeasibleShapes<'_>,
) -> Answer<'a> {
    let is_asked = match asked {
        Asked::SmallMap(few) => few.contains(&id) || inputs.pending.heads.dirty.contains(id),
        Asked::Everybody | Asked::Open => true,
    };
    is_asked
        .then(|| answer_behind(inputs, id, feasible))
        .flatten()
}

/// The job to be judged next of a queue that stands behind all whose reservations stop a
/// want. Where it had nobody when it was last asked and nothing about it has changed since,
/// only those may be whose shape has opened; and those with claims, where they are others.
fn answer_behind<'a>(inputs: Inputs<'a>, id: QueueId, feasible: &FeasibleShapes<'_>) -> Answer<'a> {
    let queue = inputs.quota.name(id);
    let ordering = inputs.quota.ordering(queue);
    let strict = ordering == QueueOrdering::StrictFifo;
    if inputs.pending.heads.dirty.contains(id) || (strict && !inputs.pending.heads.has_answered(id))
    {
        return decide::candidate_of(inputs, queue, feasible);
    }
    // Claims that are others are those of who stands in front.
    let claims = !inputs.pending.heads.has_answered(id);
    if !claims && !feasible.are_open_in(id) {
        return None;
    }
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let opened = if !strict && feasible.open.len() <= FEW_OPEN {
        let open = feasible.open.keys();
        open.filter_map(|shape| pending_queue.first_awake(*shape))
            .min()
    } else {
        pending_queue.candidate(ordering, |_, shape| feasible.is_open(shape))
    };
    let claimed = claims.then(|| first_with_a_claim(inputs, queue)).flatten();
    let first = opened.into_iter().chain(claimed).min();
    let found = first.filter(|(rank, _)| decide::over_pending_limit(inputs, queue, rank).is_none());
    debug_assert!(!claims || found == decide::candidate_of(inputs, queue, feasible));
    found
}

/// The first in front of a queue for whom something may be kept.
fn first_with_a_claim<'a>(inputs: Inputs<'a>, queue: &QueueName) -> Answer<'a> {
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let front = window::front(inputs, queue);
    let firsts =
        window::shapes_of(inputs, &front).filter_map(|shape| pending_queue.first_awake(shape));
    firsts
        .filter(|(rank, shape)| window::may_reserve(inputs, &front, rank, *shape))
        .min()
}

/// Whether all jobs of a queue stand behind all whose reservations stop a shape.
fn is_behind_all(inputs: Inputs<'_>, feasible: &FeasibleShapes<'_>, queue: &QueueName) -> bool {
    let pending_queue = inputs.pending.queues.pending_queue(queue);
    let first = pending_queue.and_then(|pending_queue| pending_queue.first_that_may_go());
    match (feasible.last, first) {
        (Some(last), Some(first)) => infeasible::stands_before(inputs, last, queue, first),
        _ => true,
    }
}

/// Queues that have another to be judged than they would give; none while queues are
/// still to be put in their places.
pub(crate) fn never_asked(inputs: Inputs<'_>) -> Vec<String> {
    if inputs.pending.queues.is_dirty()
        || inputs.quota.has_unranked()
        || inputs
            .reservations
            .is_hope_due(inputs.pending.freed.count())
    {
        return Vec::new();
    }
    let feasible = infeasible::feasible(inputs);
    let reopened = (
        inputs.pending.shapes.reopened(),
        inputs.pending.freed.count(),
    );
    let asked = to_be_asked(inputs, &feasible, reopened);
    if matches!(asked, Asked::Everybody) || !infeasible::is_settled(inputs, &feasible) {
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
            let has = decide::candidate_of(inputs, queue, &feasible).map(|(rank, _)| &rank.key);
            let gives = answer_if_asked(inputs, &asked, id, &feasible);
            let gives = gives.map(|(rank, _)| &rank.key);
            (has != gives).then(|| format!("queue {queue}: has {has:?}, gives {gives:?}"))
        });
    forgotten.collect()
}
