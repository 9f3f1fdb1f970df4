//! Classes that are woken by what one of them can take: headroom of a queue, or a slot for a reservation.
//!
//! Many classes may wait for a little of what all queues share. To evaluate each of them would cost a search for
//! the next head each. So a class that is woken this way keeps what it waited for, and is parked again as it was
//! if another job has taken that before the class was evaluated.

use super::{PendingQueues, class_mut};
use crate::amounts::resources::ResourceName;
use crate::api::ids::{PoolClass, QueueName};
use crate::api::slot::ReservationSlot;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::pending_queue::{ClassState, FreedClass};
use crate::pending::shapes::ShapeId;

impl PendingQueues {
    /// Wakes what waits for no more headroom of a queue's bounds than there is, until that headroom is used.
    pub(crate) fn wake_for_headroom(
        &mut self,
        queue: &QueueName,
        headroom: impl Fn(Option<&PoolClass>, &ResourceName) -> i128,
    ) {
        let kind = RequeueCondition::Headroom;
        for condition in self.waiting.met(kind, queue, headroom) {
            self.wake_freed(&condition);
        }
    }

    /// Rechecks what waits for a slot, until that is taken.
    pub(crate) fn recheck_for_slot(&mut self, slot: &ReservationSlot) {
        self.wake_freed(&RequeueCondition::Slot(slot.clone()));
    }

    /// Headroom of a queue was used. Classes that were woken by it, and not evaluated since, are blocked as
    /// before: they are parked as they were, unless their shape is infeasible.
    pub(crate) fn park_for_headroom(
        &mut self,
        queue: &QueueName,
        headroom: impl Fn(Option<&PoolClass>, &ResourceName) -> i128,
        is_infeasible: impl Fn(ShapeId) -> bool,
    ) {
        let kind = RequeueCondition::Headroom;
        for condition in self.freed.unmet(kind, queue, headroom) {
            self.park_freed(&condition, &is_infeasible);
        }
    }

    /// A slot was taken. The same for classes that were woken by it.
    pub(crate) fn park_for_slot(
        &mut self,
        slot: &ReservationSlot,
        is_infeasible: impl Fn(ShapeId) -> bool,
    ) {
        self.park_freed(&RequeueCondition::Slot(slot.clone()), &is_infeasible);
    }

    /// A class is evaluated now: it is not parked again for what woke it.
    pub(crate) fn begin_evaluation(&mut self, queue: &QueueName, shape: ShapeId) {
        let class = class_mut(&mut self.by_name, queue, shape);
        if class.is_some_and(|class| matches!(class.state, ClassState::Freed(_))) {
            self.activate(queue, shape);
        }
    }

    fn wake_freed(&mut self, condition: &RequeueCondition) {
        for (queue, shape) in self.waiting.take(condition) {
            self.note_freed(&queue, shape, condition);
        }
    }

    fn park_freed(
        &mut self,
        condition: &RequeueCondition,
        is_infeasible: &impl Fn(ShapeId) -> bool,
    ) {
        let again = self.freed.of(condition);
        let again = again.filter(|(_, shape)| !is_infeasible(*shape)).cloned();
        for (queue, shape) in again.collect::<Vec<_>>() {
            self.park_again(&queue, shape);
        }
    }

    /// Wakes a class by a condition that is met. One that was woken already is evaluated in any case.
    fn note_freed(&mut self, queue: &QueueName, shape: ShapeId, met: &RequeueCondition) {
        let Some(class) = class_mut(&mut self.by_name, queue, shape) else {
            return;
        };
        let first = class.jobs.first().cloned();
        let (parked, first) = match (std::mem::take(&mut class.state), first) {
            (ClassState::Parked(parked), Some(first)) => (parked, first),
            (other, _) => {
                class.state = other;
                return match met {
                    RequeueCondition::Slot(_) => self.recheck(queue, shape),
                    _ => self.activate(queue, shape),
                };
            }
        };
        let met = met.clone();
        let waiter = (queue.clone(), shape);
        self.freed.add(&waiter, &met);
        class.state = ClassState::Freed(Box::new(FreedClass { parked, met }));
        self.woken.insert(waiter);
        if let Some(pending_queue) = self.by_name.get_mut(queue) {
            let was_active = pending_queue.unlist(shape, Some(first.clone()));
            pending_queue.active.insert((first, shape));
            let id = pending_queue.id;
            self.note_active(id, shape, was_active, true);
        }
        self.note_changed(queue);
    }

    /// Parks a class as it was before it was woken.
    fn park_again(&mut self, queue: &QueueName, shape: ShapeId) {
        let class = class_mut(&mut self.by_name, queue, shape);
        let Some(class) = class else { return };
        match std::mem::take(&mut class.state) {
            ClassState::Freed(freed) => {
                let FreedClass { parked, met } = *freed;
                let waiter = (queue.clone(), shape);
                self.freed.remove(&waiter, &met);
                self.waiting.add(&waiter, &met);
                let first = class.jobs.first().cloned();
                let admissible_later = parked.admissible_later;
                class.state = ClassState::Parked(parked);
                self.list_parked(queue, shape, first, admissible_later);
            }
            other => class.state = other,
        }
    }
}
