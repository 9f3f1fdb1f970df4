//! Classes that are woken by freed headroom of a queue, until it is used.
//!
//! Many classes may wait for a little of what all queues share. To evaluate each of them would cost a search for
//! the next head each. So a class that is woken this way keeps what it waited for, and is parked again as it was
//! if another job has used that headroom before the class was evaluated.

use super::{PendingQueues, class_mut};
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::pending_queue::{ClassState, FreedClass};
use crate::pending::shapes::ShapeId;
use facts::{PoolClass, QueueName, ResourceName};

impl PendingQueues {
    /// Wakes what waits for no more headroom of a queue's bounds than there is, until that headroom is used: at most so
    /// many classes. Returns how many.
    pub(super) fn wake_for_headroom(
        &mut self,
        queue: &QueueName,
        most: usize,
        headroom: impl Fn(Option<&PoolClass>, &ResourceName) -> i128,
    ) -> usize {
        let mut count = 0;
        let kind = RequeueCondition::Headroom;
        for condition in self.waiting.met(kind, queue, headroom) {
            while count < most
                && let Some((queue, shape)) = self.waiting.take_first(&condition)
            {
                count += 1;
                self.note_freed(&queue, shape, &condition);
            }
        }
        count
    }

    /// Headroom of a queue was used. Classes that were woken by it, and not evaluated since, are blocked as
    /// before: they are parked as they were, unless their shape is infeasible; at most so many. Returns how many.
    pub(super) fn park_for_headroom(
        &mut self,
        queue: &QueueName,
        most: usize,
        headroom: impl Fn(Option<&PoolClass>, &ResourceName) -> i128,
        is_infeasible: impl Fn(ShapeId) -> bool,
    ) -> usize {
        if self.freed.is_empty() {
            return 0;
        }
        let mut count = 0;
        let kind = RequeueCondition::Headroom;
        for condition in self.freed.unmet(kind, queue, headroom) {
            let again = self.freed.of(&condition);
            let again = again.filter(|(_, shape)| !is_infeasible(*shape));
            let again: Vec<_> = again.take(most - count).cloned().collect();
            count += again.len();
            for (queue, shape) in again {
                self.park_again(&queue, shape);
            }
        }
        count
    }

    /// A class is evaluated now: it is not parked again for what woke it.
    pub(crate) fn begin_evaluation(&mut self, queue: &QueueName, shape: ShapeId) {
        let class = class_mut(&mut self.by_name, queue, shape);
        if class.is_some_and(|class| matches!(class.state, ClassState::Freed(_))) {
            self.activate(queue, shape);
        }
    }

    /// Wakes a class by a condition that is met. One that was woken already is evaluated in any case.
    fn note_freed(&mut self, queue: &QueueName, shape: ShapeId, met: &RequeueCondition) {
        let Some(class) = class_mut(&mut self.by_name, queue, shape) else {
            return;
        };
        match std::mem::take(&mut class.state) {
            ClassState::Parked(parked) => {
                let waiter = (queue.clone(), shape);
                self.freed.add(&waiter, met);
                self.woken.insert(waiter);
                let met = met.clone();
                class.state = ClassState::Freed(Box::new(FreedClass { parked, met }));
                self.list_active(queue, shape);
            }
            other => {
                class.state = other;
                self.activate(queue, shape);
            }
        }
    }

    /// Parks a class as it was before it was woken.
    fn park_again(&mut self, queue: &QueueName, shape: ShapeId) {
        let Some(class) = class_mut(&mut self.by_name, queue, shape) else {
            return;
        };
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
