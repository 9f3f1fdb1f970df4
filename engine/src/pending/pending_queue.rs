//! The waiting jobs of one queue: its groups, in order, parked or active.
//!
//! A store, and questions to it: what moves jobs in and out, wakes groups and puts them to sleep
//! is [`crate::pending::queues::PendingQueues`], which keeps this in step with what is known of all queues.

use crate::api::facts::QueueOrdering;
use crate::api::job::QueueOrder;
use crate::api::reason::Reason;
use crate::pending::inadmissible::Inadmissible;
use crate::pending::position_index::PositionIndex;
use crate::pending::shapes::ShapeId;
use crate::quota::QueueId;
use std::collections::{BTreeMap, BTreeSet};

/// The waiting jobs of one queue who want the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingClass {
    pub(super) jobs: BTreeSet<QueueOrder>,
    pub(super) state: ClassState,
    /// What it was last blocked by.
    pub(super) last: Option<Reason>,
}

/// When the first job of a class is evaluated.
#[derive(Debug, Clone, Default)]
pub(crate) enum ClassState {
    /// Not evaluated since it was woken: if its shape is feasible.
    #[default]
    Woken,
    /// In any case, once.
    Recheck,
    /// Its shape was found infeasible: when the shape is feasible.
    ShapeInfeasible,
    /// When what it waits for has changed.
    Parked(Inadmissible),
}

impl ClassState {
    pub(super) fn is_parked(&self) -> bool {
        matches!(self, Self::Parked(_))
    }
}

/// The waiting jobs of one queue.
#[derive(Debug, Clone)]
pub(crate) struct PendingQueue {
    /// The number of its queue.
    pub(crate) id: QueueId,
    pub(crate) ranks: PositionIndex,
    pub(crate) groups: BTreeMap<ShapeId, PendingClass>,
    /// First of each group that is active.
    pub(crate) active: BTreeSet<(QueueOrder, ShapeId)>,
    /// First of each group that sleeps and could go some day.
    pub(crate) admissible_later: BTreeSet<(QueueOrder, ShapeId)>,
}

impl PendingQueue {
    pub(crate) fn new(id: QueueId) -> Self {
        Self {
            id,
            ranks: PositionIndex::default(),
            groups: BTreeMap::new(),
            active: BTreeSet::new(),
            admissible_later: BTreeSet::new(),
        }
    }

    /// The job to be evaluated next, if any may be: the first that is active and `open`. Where
    /// nobody may pass the head, only that.
    pub(crate) fn candidate(
        &self,
        ordering: QueueOrdering,
        open: impl Fn(&QueueOrder, ShapeId) -> bool,
    ) -> Option<(&QueueOrder, ShapeId)> {
        let strict = ordering == QueueOrdering::StrictFifo;
        let (rank, shape) = if strict {
            self.active
                .first()
                .filter(|(rank, shape)| open(rank, *shape))
        } else {
            self.active.iter().find(|(rank, shape)| open(rank, *shape))
        }?;
        let behind = self
            .admissible_later
            .first()
            .is_some_and(|(ahead, _)| ahead < rank);
        (!strict || !behind).then_some((rank, *shape))
    }

    /// The number of its queue.
    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    /// The first of a group, if it is active.
    pub(crate) fn first_active(&self, shape: ShapeId) -> Option<(&QueueOrder, ShapeId)> {
        let group = self.groups.get(&shape)?;
        let first = group.jobs.first().filter(|_| !group.state.is_parked());
        first.map(|rank| (rank, shape))
    }

    /// The first `most` jobs of those who could go some day, parked or active.
    pub(crate) fn front(&self, most: usize) -> BTreeSet<QueueOrder> {
        let mut inadmissible = self.admissible_later.iter().peekable();
        let mut active = self.active.iter().peekable();
        // The classes whose first are first, merged: what this costs grows as `most` does.
        let mut classes = BTreeMap::new();
        for _ in 0..most {
            let from_inadmissible = match (inadmissible.peek(), active.peek()) {
                (Some(a), Some(b)) => a < b,
                (a, _) => a.is_some(),
            };
            let next = if from_inadmissible {
                inadmissible.next()
            } else {
                active.next()
            };
            let Some((_, shape)) = next else { break };
            let mut jobs = self.group(*shape);
            if let Some(first) = jobs.next() {
                classes.insert(first, jobs);
            }
        }
        let mut front = BTreeSet::new();
        while front.len() < most
            && let Some((rank, mut behind)) = classes.pop_first()
        {
            front.insert(rank.clone());
            if let Some(next) = behind.next() {
                classes.insert(next, behind);
            }
        }
        front
    }

    /// The first of those who could go some day, parked or active.
    pub(crate) fn first_that_may_go(&self) -> Option<&QueueOrder> {
        let inadmissible = self.admissible_later.first().map(|(rank, _)| rank);
        let active = self.active.first().map(|(rank, _)| rank);
        inadmissible.into_iter().chain(active).min()
    }

    /// All in order.
    pub(crate) fn ranks(&self) -> &PositionIndex {
        &self.ranks
    }

    /// The first jobs of a group.
    pub(crate) fn group(&self, shape: ShapeId) -> impl Iterator<Item = &QueueOrder> {
        self.groups
            .get(&shape)
            .into_iter()
            .flat_map(|group| &group.jobs)
    }

    /// Whether the first job of a class is evaluated in any case; a StrictFIFO queue has each head
    /// evaluated once.
    pub(crate) fn is_due(&self, shape: ShapeId, strict: bool) -> bool {
        let class = self.groups.get(&shape);
        class.is_some_and(|class| match class.state {
            ClassState::Woken => strict,
            ClassState::Recheck => true,
            ClassState::ShapeInfeasible | ClassState::Parked(_) => false,
        })
    }

    /// Who comes after `rank` in a group.
    pub(crate) fn after(&self, shape: ShapeId, rank: &QueueOrder) -> Option<&QueueOrder> {
        use std::ops::Bound::{Excluded, Unbounded};
        let group = self.groups.get(&shape)?;
        group.jobs.range((Excluded(rank), Unbounded)).next()
    }

    /// All, by group.
    pub(crate) fn grouped(&self) -> impl Iterator<Item = &QueueOrder> {
        self.groups.values().flat_map(|group| &group.jobs)
    }

    /// Takes the first of a group off the lists; whether it was active.
    pub(crate) fn unlist(&mut self, shape: ShapeId, first: Option<QueueOrder>) -> bool {
        first.is_some_and(|first| {
            let entry = (first, shape);
            self.admissible_later.remove(&entry);
            self.active.remove(&entry)
        })
    }
}
