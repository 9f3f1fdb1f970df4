//! Classes that are woken because headroom of a queue was freed, until it is used.
//!
//! Many classes may wait for a little of what all queues share, and one of them can use it. To evaluate each
//! of them would cost a search for the next head each. So a class that is woken for headroom keeps what it
//! waited for, and is parked again if another job has used that headroom before the class was evaluated.

use super::{PendingQueues, class_mut};
use crate::amounts::resources::ResourceName;
use crate::api::ids::{PoolClass, QueueName};
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::pending_queue::ClassState;
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
            for (queue, shape) in self.waiting.take(&condition) {
                self.note_headroom_freed(&queue, shape, &condition);
            }
        }
    }

    /// Headroom of a queue was used. Classes that were woken because of it, and not evaluated since, are blocked
    /// as before: they are parked as they were, unless their shape is infeasible.
    pub(crate) fn park_for_headroom(
        &mut self,
        queue: &QueueName,
        headroom: impl Fn(Option<&PoolClass>, &ResourceName) -> i128,
        is_infeasible: impl Fn(ShapeId) -> bool,
    ) {
        let kind = RequeueCondition::Headroom;
        for condition in self.headroom_freed.unmet(kind, queue, headroom) {
            let again = self.headroom_freed.of(&condition);
            let again = again.filter(|(_, shape)| !is_infeasible(*shape)).cloned();
            for (queue, shape) in again.collect::<Vec<_>>() {
                self.park_again(&queue, shape);
            }
        }
    }

    /// Wakes a parked class because of freed headroom.
    fn note_headroom_freed(&mut self, queue: &QueueName, shape: ShapeId, freed: &RequeueCondition) {
        let class = class_mut(&mut self.by_name, queue, shape);
        let parked = class.filter(|class| class.is_parked());
        let parked = parked.map(|class| (class.jobs.first().cloned(), &mut class.state));
        let Some((Some(first), state)) = parked else {
            return self.activate(queue, shape);
        };
        if let ClassState::Parked(parked) = std::mem::take(state) {
            let freed = freed.clone();
            *state = ClassState::HeadroomFreed { parked, freed };
        }
        let waiter = (queue.clone(), shape);
        self.headroom_freed.add(&waiter, freed);
        self.woken.insert(waiter);
        if let Some(pending_queue) = self.by_name.get_mut(queue) {
            let was_active = pending_queue.unlist(shape, Some(first.clone()));
            pending_queue.active.insert((first, shape));
            let id = pending_queue.id;
            self.note_active(id, shape, was_active, true);
        }
        self.note_changed(queue);
    }

    /// Parks a class as it was before the headroom was freed that is used now.
    fn park_again(&mut self, queue: &QueueName, shape: ShapeId) {
        let class = class_mut(&mut self.by_name, queue, shape);
        let Some(class) = class else { return };
        match std::mem::take(&mut class.state) {
            ClassState::HeadroomFreed { parked, freed } => {
                let waiter = (queue.clone(), shape);
                self.headroom_freed.remove(&waiter, &freed);
                self.waiting.add(&waiter, &freed);
                let first = class.jobs.first().cloned();
                let admissible_later = parked.admissible_later;
                class.state = ClassState::Parked(parked);
                self.list_parked(queue, shape, first, admissible_later);
            }
            other => class.state = other,
        }
    }
}
