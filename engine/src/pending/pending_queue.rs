//! The pending jobs of one queue: its classes, in order, parked or active.
//!
//! It answers questions. What moves jobs in and out, wakes classes and parks them is
//! [`crate::pending::queues::PendingQueues`], which keeps its indexes over all queues in step.

use crate::api::job::{OwnedTurn, QueueOrder, TurnOrder, UserId};
use crate::api::slot::ReservationSlot;
use crate::pending::inadmissible::{Inadmissible, RequeueCondition};
use crate::pending::ranks::Ranks;
use crate::pending::shapes::{ShapeId, SlotSetId};
use crate::quota::QueueId;
use facts::{QueueOrdering, Reason};
use std::collections::{BTreeMap, BTreeSet};

/// So many classes at most are passed in a search for jobs that may get a reservation.
const PASSED: usize = 64;

/// The pending jobs of one queue that have one request shape; where the order is by users, those of one user.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingClass {
    pub(super) jobs: BTreeSet<QueueOrder>,
    pub(super) state: ClassState,
    /// The slots that reservations for its jobs take.
    pub(super) slots: SlotSetId,
    /// What it was last blocked by.
    pub(super) last: Option<Reason>,
    /// The share of its user, where the order is by users: by it its first job is listed.
    pub(super) share: u64,
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

    /// Returns true if it is parked and may be admitted some day as things are.
    pub(super) fn is_admissible_later(&self) -> bool {
        matches!(&self.state, ClassState::Parked(parked) if parked.admissible_later)
    }
}

/// The pending jobs of one queue.
#[derive(Debug, Clone)]
pub(crate) struct PendingQueue {
    pub(super) id: QueueId,
    pub(super) ranks: Ranks,
    pub(super) classes: BTreeMap<ShapeId, PendingClass>,
    /// The first job of each active class, but for those that are passed over.
    pub(super) asked: BTreeSet<(OwnedTurn, ShapeId)>,
    /// The first job of each active class whose shape was infeasible when a search for the next head asked it: it is
    /// not asked again before that changes ([`crate::pending::queues`]).
    pub(super) passed: BTreeSet<(OwnedTurn, ShapeId)>,
    /// The first job of each class that is parked and may be admitted some day.
    pub(super) admissible_later: BTreeSet<(OwnedTurn, ShapeId)>,
    /// The first jobs of all these classes, by the slots that reservations for them take.
    pub(super) by_slots: BTreeMap<SlotSetId, BTreeSet<(OwnedTurn, ShapeId)>>,
    /// Classes that are rechecked if the reservation of one of their jobs should move to nodes that
    /// were freed, which is found out when the queue is asked: jobs before them may take these nodes.
    pub(super) may_move: BTreeSet<ShapeId>,
    /// Classes that are evaluated once, whatever is known of their shapes.
    pub(super) rechecked: BTreeSet<ShapeId>,
}

/// The slots that the first jobs of a queue take, up to so many for each slot.
pub(crate) struct SlotsTaken<'a> {
    most: usize,
    taken: BTreeMap<&'a ReservationSlot, usize>,
    /// How many jobs take any.
    jobs: usize,
    /// How many of them may take any slot, since it is not known which.
    of_any: usize,
}

impl<'a> SlotsTaken<'a> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            taken: BTreeMap::new(),
            jobs: 0,
            of_any: 0,
        }
    }

    /// Takes the slots of the next job, if all of them are free. Whether they were.
    pub(crate) fn take(&mut self, slots: Option<&'a BTreeSet<ReservationSlot>>) -> bool {
        let slots = slots.filter(|slots| !slots.is_empty());
        let is_free = match slots {
            Some(slots) => {
                let mut slots = slots.iter();
                slots.all(|slot| self.taken.get(slot).unwrap_or(&0) + self.of_any < self.most)
            }
            None => self.jobs < self.most,
        };
        if is_free {
            self.jobs += 1;
            self.of_any += usize::from(slots.is_none());
            for slot in slots.into_iter().flatten() {
                *self.taken.entry(slot).or_default() += 1;
            }
        }
        is_free
    }
}

impl PendingQueue {
    pub(super) fn new(id: QueueId) -> Self {
        Self {
            id,
            ranks: Ranks::default(),
            classes: BTreeMap::new(),
            asked: BTreeSet::new(),
            passed: BTreeSet::new(),
            admissible_later: BTreeSet::new(),
            by_slots: BTreeMap::new(),
            may_move: BTreeSet::new(),
            rechecked: BTreeSet::new(),
        }
    }

    /// The number of its queue.
    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    /// All jobs in order.
    pub(crate) fn ranks(&self) -> &Ranks {
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
        let mut active = self.active().take(if strict { 1 } else { usize::MAX });
        let (first, shape) = active.find(|(first, shape)| feasible(&first.rank, *shape))?;
        let ahead = self.admissible_later.first();
        let behind = ahead.is_some_and(|(ahead, _)| ahead < first);
        (!strict || !behind).then_some((&first.rank, *shape))
    }

    /// The same in a queue that any job may leave first, without asking the classes that are passed over: of these,
    /// besides those that may move, only those of the shapes `besides` are feasible. They are asked only before the
    /// first of the others that is.
    pub(crate) fn candidate_among_asked(
        &self,
        besides: impl Iterator<Item = ShapeId>,
        feasible: impl Fn(&QueueOrder, ShapeId) -> bool,
    ) -> Option<(&QueueOrder, ShapeId)> {
        let is_feasible = |(rank, shape): &(&QueueOrder, ShapeId)| feasible(rank, *shape);
        let mut asked = self
            .asked
            .iter()
            .map(|(first, shape)| (&first.rank, *shape));
        let found = asked.find(is_feasible);
        let end = found.map(|one| self.place(one));
        let besides = besides.chain(self.may_move.iter().copied());
        let besides = besides.filter_map(|shape| self.first_active(shape));
        let besides = besides.filter(|one| end.as_ref().is_none_or(|end| self.place(*one) < *end));
        besides
            .filter(is_feasible)
            .chain(found)
            .min_by_key(|one| self.place(*one))
    }

    fn place<'a>(&'a self, (rank, shape): (&'a QueueOrder, ShapeId)) -> (TurnOrder<'a>, ShapeId) {
        (self.turn(rank), shape)
    }

    /// Returns which of these shapes have classes that are passed over; it may name others of the shapes too.
    pub(crate) fn passed_among<'a>(
        &'a self,
        shapes: &'a BTreeSet<ShapeId>,
    ) -> impl Iterator<Item = ShapeId> + 'a {
        // The shorter list is walked.
        let few = self.passed.len() <= shapes.len();
        let passed = self.passed.iter().filter(move |_| few);
        let passed = passed.map(|(_, shape)| *shape);
        let passed = passed.filter(|shape| shapes.contains(shape));
        let all = (!few).then_some(shapes).into_iter().flatten().copied();
        passed.chain(all)
    }

    /// The first job of each active class, in order.
    pub(super) fn active(&self) -> impl Iterator<Item = &(OwnedTurn, ShapeId)> {
        self.asked.union(&self.passed)
    }

    /// How many active classes are not passed over.
    pub(crate) fn asked_len(&self) -> usize {
        self.asked.len()
    }

    /// The shapes of the active classes that are not passed over, in the order of their first jobs.
    pub(crate) fn asked_shapes(&self) -> impl Iterator<Item = ShapeId> {
        self.asked.iter().map(|(_, shape)| *shape)
    }

    /// The shapes of the active classes, in the order of their first jobs.
    pub(crate) fn active_shapes(&self) -> impl Iterator<Item = ShapeId> {
        self.active().map(|(_, shape)| *shape)
    }

    /// The first job of a class, if the class is active.
    pub(crate) fn first_active(&self, shape: ShapeId) -> Option<(&QueueOrder, ShapeId)> {
        let class = self.classes.get(&shape)?;
        let first = class.jobs.first().filter(|_| !class.is_parked());
        first.map(|rank| (rank, shape))
    }

    /// Returns true if the first job of a class is evaluated whatever is known of its shape. In a StrictFIFO
    /// queue each head is, once.
    pub(crate) fn is_due(&self, shape: ShapeId, strict: bool) -> bool {
        let class = self.classes.get(&shape);
        class.is_some_and(|class| match &class.state {
            ClassState::Woken | ClassState::Freed(_) => strict,
            ClassState::Recheck => true,
            ClassState::ShapeInfeasible | ClassState::Parked(_) => false,
        })
    }

    /// Returns true if the reservation of a job of a class may move to nodes that were freed.
    pub(crate) fn may_move(&self, shape: ShapeId) -> bool {
        self.may_move.contains(&shape)
    }

    /// Of the jobs that may be admitted some day, parked or active, the first `most` for each slot, without those that
    /// are to be `passed`. A job takes all slots of its set, and any slot while that is not known.
    pub(crate) fn window<'a>(
        &'a self,
        most: usize,
        slots_of: impl Fn(SlotSetId) -> Option<&'a BTreeSet<ReservationSlot>>,
        passed: impl Fn(&QueueOrder) -> bool,
    ) -> Vec<&'a QueueOrder> {
        let sets = self.by_slots.iter();
        let firsts = sets.map(|(set, heads)| {
            let jobs = self.first_of(heads, most, &passed);
            (slots_of(*set), jobs)
        });
        let mut jobs: Vec<(&QueueOrder, Option<&BTreeSet<ReservationSlot>>)> = firsts
            .flat_map(|(slots, jobs)| jobs.into_iter().map(move |rank| (rank, slots)))
            .collect();
        jobs.sort_unstable_by_key(|(rank, _)| self.turn(rank));
        let mut taken = SlotsTaken::new(most);
        let window = jobs.into_iter().filter(|(_, slots)| taken.take(*slots));
        window.map(|(rank, _)| rank).collect()
    }

    /// The class whose first job is first of those for which the slots of a reservation are not known, unless many
    /// other classes are before it.
    pub(crate) fn first_without_slots(&self) -> Option<ShapeId> {
        let heads = self.by_slots.get(&SlotSetId::default())?;
        let first = heads.first()?;
        let before = |heads: &BTreeSet<_>| heads.range(..first).take(PASSED).count();
        let before: usize = self.by_slots.values().map(before).sum();
        (before < PASSED).then_some(first.1)
    }

    /// The first `most` jobs of some classes, given by their first jobs.
    fn first_of(
        &self,
        heads: &BTreeSet<(OwnedTurn, ShapeId)>,
        most: usize,
        passed: impl Fn(&QueueOrder) -> bool,
    ) -> Vec<&QueueOrder> {
        // The classes whose first jobs are first: what this costs grows as `most` does.
        let mut classes = BTreeMap::new();
        for (_, shape) in heads.iter().take(most + PASSED) {
            if classes.len() >= most {
                break;
            }
            let mut jobs = self.class(*shape).filter(|rank| !passed(rank)).take(most);
            if let Some(first) = jobs.next() {
                classes.insert(self.turn(first), jobs);
            }
        }
        let mut firsts = Vec::new();
        while firsts.len() < most
            && let Some((first, mut behind)) = classes.pop_first()
        {
            firsts.push(first.rank);
            if let Some(next) = behind.next() {
                classes.insert(TurnOrder::of(next, first.share), behind);
            }
        }
        firsts
    }

    /// The first of the jobs that may be admitted some day, parked or active.
    pub(crate) fn first_that_may_go(&self) -> Option<&QueueOrder> {
        let parked = self.admissible_later.first().map(|(first, _)| first);
        let active = self.active().next().map(|(first, _)| first);
        let first = parked.into_iter().chain(active).min();
        first.map(|first| &first.rank)
    }

    /// The share by which the jobs of a user come among those of others.
    pub(crate) fn share_of(&self, user: UserId) -> u64 {
        self.ranks.share(user)
    }

    /// The place of a job among those of all users.
    pub(crate) fn turn<'a>(&self, rank: &'a QueueOrder) -> TurnOrder<'a> {
        TurnOrder::of(rank, self.ranks.share(rank.user))
    }

    /// The entry of the first job of a class in the ordered sets.
    pub(super) fn entry(&self, shape: ShapeId, first: QueueOrder) -> (OwnedTurn, ShapeId) {
        let class = self.classes.get(&shape);
        let share = class.map_or(0, |class| class.share);
        (OwnedTurn::of(first, share), shape)
    }

    /// Lists the first job of a class, active or admissible later.
    pub(super) fn list(&mut self, shape: ShapeId, first: QueueOrder, active: bool) {
        let entry = self.entry(shape, first.clone());
        let list = match active {
            true => &mut self.asked,
            false => &mut self.admissible_later,
        };
        list.insert(entry);
        self.list_by_slots(shape, first);
    }

    /// Users have other shares: their classes move among those of other users. Whether any did.
    pub(crate) fn set_shares(&mut self, shares: &BTreeMap<UserId, u64>) -> bool {
        let mut moved = BTreeSet::new();
        for (user, share) in shares {
            if self.ranks.set_share(*user, *share) {
                moved.insert(*user);
            }
        }
        if moved.is_empty() {
            return false;
        }
        let of_moved = self.classes.iter().filter_map(|(shape, class)| {
            let first = class.jobs.first()?;
            moved.contains(&first.user).then(|| (*shape, first.clone()))
        });
        for (shape, first) in of_moved.collect::<Vec<_>>() {
            let listed = self.classes.get(&shape).map(|class| {
                let parked = class.is_parked();
                (!parked || class.is_admissible_later()).then_some(!parked)
            });
            self.unlist(shape, Some(first.clone()));
            let share = self.ranks.share(first.user);
            if let Some(class) = self.classes.get_mut(&shape) {
                class.share = share;
            }
            if let Some(active) = listed.flatten() {
                self.list(shape, first, active);
            }
        }
        true
    }

    /// The first active job by the order of one user.
    pub(crate) fn earliest_active(&self) -> Option<&QueueOrder> {
        self.active().map(|(first, _)| &first.rank).min()
    }

    /// A class was evaluated, or is gone.
    pub(super) fn forget_recheck(&mut self, shape: ShapeId) {
        self.may_move.remove(&shape);
        self.rechecked.remove(&shape);
    }

    /// Takes the first job of a class off the indexes; whether it was active.
    pub(super) fn unlist(&mut self, shape: ShapeId, first: Option<QueueOrder>) -> bool {
        first.is_some_and(|first| {
            let entry = self.entry(shape, first);
            self.unlist_by_slots(&entry);
            self.admissible_later.remove(&entry);
            self.asked.remove(&entry) || self.passed.remove(&entry)
        })
    }

    fn unlist_by_slots(&mut self, entry: &(OwnedTurn, ShapeId)) {
        let slots = self.classes.get(&entry.1).map(|class| class.slots);
        if let Some(slots) = slots
            && let Some(heads) = self.by_slots.get_mut(&slots)
        {
            heads.remove(entry);
            if heads.is_empty() {
                self.by_slots.remove(&slots);
            }
        }
    }

    /// Lists the first job of a class by the slots that reservations for it take.
    pub(super) fn list_by_slots(&mut self, shape: ShapeId, first: QueueOrder) {
        let slots = self.classes.get(&shape).map(|class| class.slots);
        let entry = self.entry(shape, first);
        let heads = self.by_slots.entry(slots.unwrap_or_default()).or_default();
        heads.insert(entry);
    }

    /// Reservations for a class take other slots. Whether that was another set.
    pub(super) fn set_slots(&mut self, shape: ShapeId, slots: SlotSetId) -> bool {
        let Some(class) = self
            .classes
            .get(&shape)
            .filter(|class| class.slots != slots)
        else {
            return false;
        };
        let is_listed = !class.is_parked() || class.is_admissible_later();
        let first = class.jobs.first().cloned().filter(|_| is_listed);
        let entry = first.map(|first| self.entry(shape, first));
        if let Some(entry) = &entry {
            self.unlist_by_slots(entry);
        }
        if let Some(class) = self.classes.get_mut(&shape) {
            class.slots = slots;
        }
        if let Some(entry) = entry {
            self.by_slots.entry(slots).or_default().insert(entry);
        }
        true
    }
}
