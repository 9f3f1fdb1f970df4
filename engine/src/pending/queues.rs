//! Pending jobs by queue, in classes of one request shape.
//!
//! What blocks the first job of a class blocks those behind it: a class is evaluated by its first job,
//! and is parked and woken as one. A parked class is listed under each condition that it waits for.

mod due;
mod freed;
mod passed;
mod shares;
#[cfg(test)]
mod tests;
mod windows;

use crate::amounts::hashed::{Hashed, HashedSet};
use crate::api::job::QueueOrder;
use crate::api::slot::ReservationSlot;
use crate::pending::inadmissible::{Inadmissible, RequeueCondition};
use crate::pending::pending_queue::{ClassState, PendingClass, PendingQueue};
use crate::pending::shapes::{ShapeId, SlotSetId};
use crate::pending::waiting_list::WaitingList;
use crate::quota::QueueId;
use due::DueWakes;
use facts::{QueueName, Reason};
use std::collections::{BTreeMap, BTreeSet};

/// The pending jobs of all queues.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingQueues {
    pub(super) by_name: Hashed<QueueName, PendingQueue>,
    /// The parked classes, by what they wait for.
    pub(super) waiting: WaitingList<(QueueName, ShapeId)>,
    /// The classes that were woken by freed headroom, by that. They are listed as waiting under their other
    /// conditions.
    pub(super) freed: WaitingList<(QueueName, ShapeId)>,
    /// What was noted to be woken.
    due: DueWakes,
    /// Classes that were woken since this was last taken.
    woken: BTreeSet<(QueueName, ShapeId)>,
    /// Queues whose jobs or classes changed since this was last taken.
    changed: BTreeSet<QueueName>,
    /// The shapes of all classes, each with the queues that have one.
    pub(super) with_shape: BTreeSet<(ShapeId, QueueName)>,
    /// The shapes of active classes, and in which queues they are.
    pub(super) active: BTreeMap<ShapeId, HashedSet<QueueId>>,
    /// The shapes of classes that are passed over, each with its queue. Some may be asked again since.
    pub(super) passed: BTreeSet<(ShapeId, QueueName)>,
    /// The shapes in the reservation window of each queue.
    pub(super) windows: Hashed<QueueName, BTreeSet<ShapeId>>,
    /// The shapes in these windows, each with the queues that have it in theirs.
    pub(super) in_window: BTreeMap<ShapeId, HashedSet<QueueName>>,
}

impl PendingQueues {
    pub(crate) fn pending_queue(&self, queue: &QueueName) -> Option<&PendingQueue> {
        self.by_name.get(queue)
    }

    /// In no order.
    pub(crate) fn pending_queues(&self) -> impl Iterator<Item = (&QueueName, &PendingQueue)> {
        self.by_name.iter()
    }

    /// Takes the first of the queues whose jobs or classes changed and that were not taken since, at most so many.
    pub(crate) fn take_changed(&mut self, most: usize) -> BTreeSet<QueueName> {
        let rest = self.changed.iter().nth(most).cloned();
        let rest = rest.map(|first| self.changed.split_off(&first));
        std::mem::replace(&mut self.changed, rest.unwrap_or_default())
    }

    /// Queues that [`Self::take_changed`] would name.
    pub(crate) fn changed(&self) -> &BTreeSet<QueueName> {
        &self.changed
    }

    /// Returns true if [`Self::take_changed`] would name any.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Classes that were woken since the last call.
    pub(crate) fn take_woken(&mut self) -> BTreeSet<(QueueName, ShapeId)> {
        std::mem::take(&mut self.woken)
    }

    /// A job joins a queue, which keeps its number as long as it has jobs. Its class wakes if the job
    /// is first in it.
    pub(crate) fn insert(
        &mut self,
        queue: &QueueName,
        id: QueueId,
        (shape, slots): (ShapeId, SlotSetId),
        rank: &QueueOrder,
    ) {
        self.note_changed(queue);
        let pending_queue = self.by_name.entry(queue.clone());
        let pending_queue = pending_queue.or_insert_with(|| PendingQueue::new(id));
        pending_queue.ranks.insert(rank.clone());
        let class = pending_queue.classes.entry(shape);
        let share = pending_queue.ranks.share(rank.user);
        let with_shape = &mut self.with_shape;
        let class = class.or_insert_with(|| {
            with_shape.insert((shape, queue.clone()));
            PendingClass {
                slots,
                share,
                ..PendingClass::default()
            }
        });
        let before = class.jobs.first().cloned();
        class.jobs.insert(rank.clone());
        if before.as_ref().is_none_or(|first| rank < first) {
            let was_active = pending_queue.unlist(shape, before);
            let id = pending_queue.id;
            self.note_active(id, shape, was_active, false);
            self.activate(queue, shape);
        }
    }

    /// A job leaves a queue. The jobs that are first then are evaluated again.
    pub(crate) fn remove(&mut self, queue: &QueueName, shape: ShapeId, rank: &QueueOrder) {
        self.note_changed(queue);
        let Some(pending_queue) = self.by_name.get_mut(queue) else {
            return;
        };
        let parked = pending_queue.admissible_later.first();
        let heads_parked = parked.is_some_and(|(first, _)| first.rank == *rank);
        pending_queue.ranks.remove(rank);
        let Some(class) = pending_queue.classes.get_mut(&shape) else {
            return;
        };
        let before = class.jobs.first().cloned();
        class.jobs.remove(rank);
        if before.as_ref() == Some(rank) {
            let was_active = pending_queue.unlist(shape, before);
            let id = pending_queue.id;
            self.note_active(id, shape, was_active, false);
            self.activate(queue, shape);
        }
        if heads_parked {
            self.activate_head(queue);
        }
        let pending_queue = self.by_name.get(queue);
        if pending_queue.is_some_and(|pending_queue| pending_queue.ranks.is_empty()) {
            self.by_name.remove(queue);
        }
    }

    /// Parks a class until one of its conditions has changed. Returns whether its reason is another
    /// than before.
    pub(crate) fn park(&mut self, queue: &QueueName, shape: ShapeId, parked: Inadmissible) -> bool {
        let Some(pending_queue) = self.by_name.get_mut(queue) else {
            return false;
        };
        let Some(class) = pending_queue.classes.get_mut(&shape) else {
            return false;
        };
        let changed = class.last.replace(parked.reason) != Some(parked.reason);
        let first = class.jobs.first().cloned();
        let waiter = (queue.clone(), shape);
        for condition in &parked.conditions {
            self.waiting.add(&waiter, condition);
        }
        let admissible_later = parked.admissible_later;
        class.state = ClassState::Parked(parked);
        self.list_parked(queue, shape, first, admissible_later);
        changed
    }

    /// Lists the first job of a class that was parked.
    fn list_parked(
        &mut self,
        queue: &QueueName,
        shape: ShapeId,
        first: Option<QueueOrder>,
        admissible_later: bool,
    ) {
        let Some(pending_queue) = self.by_name.get_mut(queue) else {
            return;
        };
        pending_queue.forget_recheck(shape);
        let was_active = pending_queue.unlist(shape, first.clone());
        if let Some(first) = first.filter(|_| admissible_later) {
            pending_queue.list(shape, first, false);
        }
        let id = pending_queue.id;
        self.note_active(id, shape, was_active, false);
        self.note_changed(queue);
    }

    /// Has a parked class wait for another condition, too.
    pub(crate) fn wait_also(
        &mut self,
        queue: &QueueName,
        shape: ShapeId,
        condition: RequeueCondition,
    ) {
        let class = class_mut(&mut self.by_name, queue, shape);
        if let Some(ClassState::Parked(parked)) = class.map(|class| &mut class.state) {
            self.waiting.add(&(queue.clone(), shape), &condition);
            parked.conditions.push(condition);
        }
    }

    /// Notes that the shape of a class is infeasible: the class waits until it is feasible.
    pub(super) fn wait_for_shape(&mut self, queue: &QueueName, shape: ShapeId) {
        let Some(pending_queue) = self.by_name.get_mut(queue) else {
            return;
        };
        pending_queue.forget_recheck(shape);
        if let Some(class) = pending_queue.classes.get_mut(&shape) {
            class.state = ClassState::ShapeInfeasible;
        }
    }

    /// Notes what blocks an active class. Returns whether that is another reason than before.
    pub(crate) fn note_reason(
        &mut self,
        queue: &QueueName,
        shape: ShapeId,
        reason: Reason,
    ) -> bool {
        let class = class_mut(&mut self.by_name, queue, shape);
        class.is_some_and(|class| class.last.replace(reason) != Some(reason))
    }

    /// Forgets what blocks the classes that wait for a condition: their jobs are reported when they are
    /// evaluated again, even if the reason is the same, because its words may be others.
    pub(crate) fn forget_reasons(&mut self, condition: &RequeueCondition) {
        for (queue, shape) in self.waiting.of(condition) {
            if let Some(class) = class_mut(&mut self.by_name, queue, *shape) {
                class.last = None;
            }
        }
    }

    /// The shapes of the classes that wait for capacity.
    pub(crate) fn waiting_for_capacity(&self) -> impl Iterator<Item = ShapeId> {
        let waiting = self.waiting.of(&RequeueCondition::Room);
        waiting.map(|(_, shape)| *shape)
    }

    /// The classes that wait for a slot of a reservation.
    pub(crate) fn waiting_for_slot(&self, slot: ReservationSlot) -> Vec<(QueueName, ShapeId)> {
        let slot = RequeueCondition::Slot(slot);
        self.waiting.of(&slot).cloned().collect()
    }

    /// Wakes every class of a queue. Returns how many there are.
    pub(crate) fn wake_queue(&mut self, queue: &QueueName) -> usize {
        let classes = self.by_name.get(queue).map(|of_queue| &of_queue.classes);
        let shapes = classes.into_iter().flat_map(BTreeMap::keys).copied();
        let shapes: Vec<ShapeId> = shapes.collect();
        for shape in &shapes {
            self.activate(queue, *shape);
        }
        shapes.len()
    }

    /// Wakes one class, parked or not.
    pub(crate) fn activate(&mut self, queue: &QueueName, shape: ShapeId) {
        let Some(pending_queue) = self.by_name.get_mut(queue) else {
            return;
        };
        let Some(class) = pending_queue.classes.get_mut(&shape) else {
            return;
        };
        let woken = match class.state {
            ClassState::Recheck => ClassState::Recheck,
            _ => ClassState::Woken,
        };
        let state = std::mem::replace(&mut class.state, woken);
        let waiter = (queue.clone(), shape);
        unlist_waiter(&mut self.waiting, &mut self.freed, &waiter, &state);
        if matches!(state, ClassState::Parked(_)) {
            self.woken.insert(waiter);
        }
        self.list_active(queue, shape);
    }

    /// Lists the first job of a class that is not parked any more; forgets the class if it has none.
    fn list_active(&mut self, queue: &QueueName, shape: ShapeId) {
        let Some(pending_queue) = self.by_name.get_mut(queue) else {
            return;
        };
        let class = pending_queue.classes.get(&shape);
        let first = class.and_then(|class| class.jobs.first().cloned());
        let was_active = pending_queue.unlist(shape, first.clone());
        let is_active = first.is_some();
        match first {
            Some(first) => {
                pending_queue.list(shape, first, true);
            }
            None => {
                pending_queue.classes.remove(&shape);
                let gone = (shape, queue.clone());
                self.with_shape.remove(&gone);
                self.passed.remove(&gone);
                pending_queue.forget_recheck(shape);
            }
        }
        let id = pending_queue.id;
        self.note_active(id, shape, was_active, is_active);
        self.note_changed(queue);
    }

    /// Wakes one class, and has its first job evaluated once whatever is known of its shape.
    pub(crate) fn recheck(&mut self, queue: &QueueName, shape: ShapeId) {
        self.activate(queue, shape);
        if let Some(pending_queue) = self.by_name.get_mut(queue)
            && let Some(class) = pending_queue.classes.get_mut(&shape)
        {
            class.state = ClassState::Recheck;
            pending_queue.rechecked.insert(shape);
        }
    }

    /// Has a class rechecked if the reservation of one of its jobs should move to nodes that were freed.
    pub(crate) fn recheck_if_moving(&mut self, queue: &QueueName, shape: ShapeId) {
        let Some(class) = class_mut(&mut self.by_name, queue, shape) else {
            return;
        };
        if class.is_parked() {
            self.activate(queue, shape);
        }
        self.note_changed(queue);
        if let Some(pending_queue) = self.by_name.get_mut(queue) {
            pending_queue.may_move.insert(shape);
        }
    }

    /// No reservation in a queue should move to nodes that were freed until now.
    pub(crate) fn none_moves(&mut self, queue: &QueueName) {
        if let Some(pending_queue) = self.by_name.get_mut(queue) {
            pending_queue.may_move.clear();
        }
    }

    /// Rechecks all that wait for a condition.
    pub(crate) fn recheck_waiting(&mut self, condition: &RequeueCondition) {
        for (queue, shape) in self.waiting.take(condition) {
            self.recheck(&queue, shape);
        }
    }

    /// Wakes the class whose first job is first among the parked classes of a queue.
    fn activate_head(&mut self, queue: &QueueName) {
        let pending_queue = self.by_name.get(queue);
        let head = pending_queue.and_then(|of_queue| of_queue.admissible_later.first());
        if let Some((_, shape)) = head.cloned() {
            self.activate(queue, shape);
        }
    }

    /// The shapes of active classes.
    pub(crate) fn active(&self) -> impl ExactSizeIterator<Item = ShapeId> {
        self.active.keys().copied()
    }

    /// The queues in which the class of this shape is active, if there are any.
    pub(crate) fn active_in(&self, shape: ShapeId) -> Option<&HashedSet<QueueId>> {
        self.active.get(&shape)
    }

    fn note_active(&mut self, queue: QueueId, shape: ShapeId, was: bool, is: bool) {
        if is && !was {
            self.active.entry(shape).or_default().insert(queue);
        }
        if was
            && !is
            && let Some(queues) = self.active.get_mut(&shape)
        {
            queues.remove(&queue);
            if queues.is_empty() {
                self.active.remove(&shape);
            }
        }
    }

    /// Reservations for a shape take these slots. Returns how many classes are listed by other slots than before.
    pub(super) fn note_slots(&mut self, shape: ShapeId, slots: SlotSetId) -> usize {
        let mut moved = 0;
        for name in with_shape(&self.with_shape, shape) {
            let queue = self.by_name.get_mut(name);
            if queue.is_some_and(|queue| queue.set_slots(shape, slots)) {
                moved += 1;
                self.changed.insert(name.clone());
            }
        }
        moved
    }

    /// Has all queues looked at again that have a class of a shape.
    pub(crate) fn note_shape_changed(&mut self, shape: ShapeId) {
        let queues = with_shape(&self.with_shape, shape).cloned();
        self.changed.extend(queues);
    }

    /// Nothing is known of the slots that reservations take.
    pub(super) fn forget_slots(&mut self) {
        for queue in self.by_name.values_mut() {
            let heads = std::mem::take(&mut queue.by_slots).into_values().flatten();
            let heads: BTreeSet<_> = heads.collect();
            if !heads.is_empty() {
                queue.by_slots.insert(SlotSetId::default(), heads);
            }
            for class in queue.classes.values_mut() {
                class.slots = SlotSetId::default();
            }
        }
    }

    /// Has a queue looked at again: its first job or its reservation window may be others.
    pub(crate) fn note_changed(&mut self, queue: &QueueName) {
        if !self.changed.contains(queue) {
            self.changed.insert(queue.clone());
        }
    }
}

/// Takes a class off the lists of what it waits for and of what was freed for it.
fn unlist_waiter(
    waiting: &mut WaitingList<(QueueName, ShapeId)>,
    freed: &mut WaitingList<(QueueName, ShapeId)>,
    waiter: &(QueueName, ShapeId),
    state: &ClassState,
) {
    let parked = match state {
        ClassState::Parked(parked) => parked,
        ClassState::Freed(class) => {
            freed.remove(waiter, &class.met);
            &class.parked
        }
        ClassState::Woken | ClassState::Recheck | ClassState::ShapeInfeasible => return,
    };
    for condition in &parked.conditions {
        waiting.remove(waiter, condition);
    }
}

/// The queues that have a class of a shape.
fn with_shape(
    all: &BTreeSet<(ShapeId, QueueName)>,
    shape: ShapeId,
) -> impl Iterator<Item = &QueueName> {
    let from = (shape, QueueName::from(""));
    let of_shape = all.range(from..).take_while(move |(of, _)| *of == shape);
    of_shape.map(|(_, queue)| queue)
}

fn class_mut<'a>(
    queues: &'a mut Hashed<QueueName, PendingQueue>,
    queue: &QueueName,
    shape: ShapeId,
) -> Option<&'a mut PendingClass> {
    queues.get_mut(queue)?.classes.get_mut(&shape)
}
