//! The pending jobs of one queue: its classes, in order, parked or active.
//!
//! It answers questions. What moves jobs in and out, wakes classes and parks them is
//! [`crate::pending::queues::PendingQueues`], which keeps its indexes over all queues in step.

use crate::api::facts::QueueOrdering;
use crate::api::job::QueueOrder;
use crate::api::reason::Reason;
use crate::pending::inadmissible::{Inadmissible, RequeueCondition};
use crate::pending::position_index::PositionIndex;
use crate::pending::shapes::ShapeId;
use crate::quota::QueueId;
use std::collections::{BTreeMap, BTreeSet};

/// With so few active classes besides those that may be feasible, all are asked: that is as fast.
const FEW: usize = 4;

/// The pending jobs of one queue that have one request shape.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingClass {
    pub(super) jobs: BTreeSet<QueueOrder>,
    pub(super) state: ClassState,
    /// What it was last blocked by.
    pub(super) last: Option<Reason>,
}

/// When the first job of a class is evaluated.
#[derive(Debug, Clone, Default)]
pub(super) enum ClassState {
    /// Not evaluated since it was woken: if its shape is feasible.
    #[default]
    Woken,
    /// Once, whatever is known of its shape.
    Recheck,
    /// Its shape was found infeasible: when the shape is feasible.
    ShapeInfeasible,
    /// When what it waits for has changed.
    Parked(Inadmissible),
    /// The headroom that it waited for is free: as after any other wake, unless another job uses it before.
    Freed(Box<FreedClass>),
}

/// A class that was woken by headroom that other classes wait for, too.
#[derive(Debug, Clone)]
pub(super) struct FreedClass {
    /// Why it was parked.
    pub(super) parked: Inadmissible,
    /// Which of its conditions is met: so much headroom.
    pub(super) met: RequeueCondition,
}

impl PendingClass {
    pub(super) fn is_parked(&self) -> bool {
        matches!(self.state, ClassState::Parked(_))
    }

    /// Whether it is parked and may be admitted some day as things are.
    pub(super) fn is_admissible_later(&self) -> bool {
        matches!(&self.state, ClassState::Parked(parked) if parked.admissible_later)
    }
}

/// The pending jobs of one queue.
#[derive(Debug, Clone)]
pub(crate) struct PendingQueue {
    pub(super) id: QueueId,
    pub(super) ranks: PositionIndex,
    pub(super) classes: BTreeMap<ShapeId, PendingClass>,
    /// The first job of each active class.
    pub(super) active: BTreeSet<(QueueOrder, ShapeId)>,
    /// The first job of each class that is parked and may be admitted some day.
    pub(super) admissible_later: BTreeSet<(QueueOrder, ShapeId)>,
    /// Classes that are rechecked if the reservation of one of their jobs should move to nodes that
    /// were freed, which is found out when the queue is asked: jobs before them may take these nodes.
    pub(super) may_move: BTreeSet<ShapeId>,
    /// Classes that are evaluated once, whatever is known of their shapes.
    pub(super) rechecked: BTreeSet<ShapeId>,
}

impl PendingQueue {
    pub(super) fn new(id: QueueId) -> Self {
        Self {
            id,
            ranks: PositionIndex::default(),
            classes: BTreeMap::new(),
            active: BTreeSet::new(),
            admissible_later: BTreeSet::new(),
            may_move: BTreeSet::new(),
            rechecked: BTreeSet::new(),
        }
    }

    /// The number of its queue.
    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    /// All jobs in order.
    pub(crate) fn ranks(&self) -> &PositionIndex {
        &self.ranks
    }

    /// The jobs of a class, in order.
    pub(crate) fn class(&self, shape: ShapeId) -> impl Iterator<Item = &QueueOrder> {
        let class = self.classes.get(&shape);
        class.into_iter().flat_map(|class| &class.jobs)
    }

    /// The job of a class after `rank`.
    pub(crate) fn after(&self, shape: ShapeId, rank: &QueueOrder) -> Option<&QueueOrder> {
        use std::ops::Bound::{Excluded, Unbounded};
        let class = self.classes.get(&shape)?;
        class.jobs.range((Excluded(rank), Unbounded)).next()
    }

    /// The job that is evaluated next, if there is one: the first of those that are active and
    /// `feasible`. In a StrictFIFO queue only the head may be.
    pub(crate) fn candidate(
        &self,
        ordering: QueueOrdering,
        feasible: impl Fn(&QueueOrder, ShapeId) -> bool,
    ) -> Option<(&QueueOrder, ShapeId)> {
        let strict = ordering == QueueOrdering::StrictFifo;
        let mut active = self.active.iter().take(if strict { 1 } else { usize::MAX });
        let (rank, shape) = active.find(|(rank, shape)| feasible(rank, *shape))?;
        let ahead = self.admissible_later.first();
        let behind = ahead.is_some_and(|(ahead, _)| ahead < rank);
        (!strict || !behind).then_some((rank, *shape))
    }

    /// The same in a queue that any job may leave first, without asking all of its classes: besides those that
    /// are rechecked or may move, only classes of the shapes that `may_be` names are feasible.
    pub(crate) fn candidate_among<I: Iterator<Item = ShapeId>>(
        &self,
        may_be: impl FnOnce() -> I,
        feasible: impl Fn(&QueueOrder, ShapeId) -> bool,
    ) -> Option<(&QueueOrder, ShapeId)> {
        let is_feasible = |(rank, shape): &(&QueueOrder, ShapeId)| feasible(rank, *shape);
        let in_any_case = self.rechecked.iter().chain(&self.may_move).copied();
        let named = may_be().chain(in_any_case);
        let named = named.filter_map(|shape| self.first_active(shape));
        named.filter(is_feasible).min()
    }

    /// Whether the shapes that `may_be` names are few beside all active classes.
    pub(crate) fn are_few<I: Iterator<Item = ShapeId>>(&self, may_be: impl FnOnce() -> I) -> bool {
        let left = FEW + self.rechecked.len() + self.may_move.len();
        let left = self.active.len().saturating_sub(left);
        left > 0 && may_be().take(left).count() < left
    }

    /// The first job of a class, if the class is active.
    pub(crate) fn first_active(&self, shape: ShapeId) -> Option<(&QueueOrder, ShapeId)> {
        let class = self.classes.get(&shape)?;
        let first = class.jobs.first().filter(|_| !class.is_parked());
        first.map(|rank| (rank, shape))
    }

    /// Whether the first job of a class is evaluated whatever is known of its shape. In a StrictFIFO
    /// queue each head is, once.
    pub(crate) fn is_due(&self, shape: ShapeId, strict: bool) -> bool {
        let class = self.classes.get(&shape);
        class.is_some_and(|class| match &class.state {
            ClassState::Woken | ClassState::Freed(_) => strict,
            ClassState::Recheck => true,
            ClassState::ShapeInfeasible | ClassState::Parked(_) => false,
        })
    }

    /// Whether the reservation of a job of a class may move to nodes that were freed.
    pub(crate) fn may_move(&self, shape: ShapeId) -> bool {
        self.may_move.contains(&shape)
    }

    /// The first `most` of the jobs that may be admitted some day, parked or active.
    pub(crate) fn window(&self, most: usize) -> Vec<&QueueOrder> {
        if most == 1 {
            // As it is by default: there is nothing to merge.
            return self.first_that_may_go().into_iter().collect();
        }
        let mut parked = self.admissible_later.iter().peekable();
        let mut active = self.active.iter().peekable();
        // The classes whose first jobs are first, merged: what this costs grows as `most` does.
        let mut classes = BTreeMap::new();
        for _ in 0..most {
            let parked_is_first = match (parked.peek(), active.peek()) {
                (Some(a), Some(b)) => a < b,
                (a, _) => a.is_some(),
            };
            let next = if parked_is_first {
                parked.next()
            } else {
                active.next()
            };
            let Some((_, shape)) = next else { break };
            let mut jobs = self.class(*shape);
            if let Some(first) = jobs.next() {
                classes.insert(first, jobs);
            }
        }
        let mut window = Vec::new();
        while window.len() < most
            && let Some((rank, mut behind)) = classes.pop_first()
        {
            window.push(rank);
            if let Some(next) = behind.next() {
                classes.insert(next, behind);
            }
        }
        window
    }

    /// The first of the jobs that may be admitted some day, parked or active.
    pub(crate) fn first_that_may_go(&self) -> Option<&QueueOrder> {
        let parked = self.admissible_later.first().map(|(rank, _)| rank);
        let active = self.active.first().map(|(rank, _)| rank);
        parked.into_iter().chain(active).min()
    }

    /// A class was evaluated, or is gone.
    pub(super) fn forget_recheck(&mut self, shape: ShapeId) {
        self.may_move.remove(&shape);
        self.rechecked.remove(&shape);
    }

    /// Takes the first job of a class off the indexes; whether it was active.
    pub(super) fn unlist(&mut self, shape: ShapeId, first: Option<QueueOrder>) -> bool {
        first.is_some_and(|first| {
            let entry = (first, shape);
            self.admissible_later.remove(&entry);
            self.active.remove(&entry)
        })
    }
}
