//! Active classes that searches for the next head pass over: their shapes are infeasible.
//!
//! A class is passed over once a search has asked it, until its shape may be feasible. So a head that is found
//! infeasible costs one question more, and not one in each search. What may have a job evaluated although its shape is
//! infeasible is asked besides (`cycle::next_head`).

use super::{PendingQueues, with_shape};
use crate::pending::pending_queue::PendingQueue;
use crate::pending::shapes::ShapeId;
use facts::QueueName;
use std::collections::BTreeSet;

impl PendingQueues {
    /// Has a class asked no more until its shape may be feasible.
    pub(crate) fn pass_over(&mut self, queue: &QueueName, shape: ShapeId) {
        let pending_queue = self.by_name.get_mut(queue);
        if pending_queue.is_some_and(|pending_queue| pending_queue.pass_over(shape)) {
            self.passed.insert((shape, queue.clone()));
        }
    }

    /// Has the classes of these shapes asked again.
    pub(crate) fn ask_again(&mut self, shapes: &BTreeSet<ShapeId>) {
        for shape in shapes {
            let queues: Vec<QueueName> = with_shape(&self.passed, *shape).cloned().collect();
            for queue in queues {
                if let Some(pending_queue) = self.by_name.get_mut(&queue) {
                    pending_queue.ask_again(*shape);
                }
                self.passed.remove(&(*shape, queue));
            }
        }
    }
}

impl PendingQueue {
    /// Returns whether the class was asked.
    fn pass_over(&mut self, shape: ShapeId) -> bool {
        let first = self.first_active(shape).map(|(first, _)| first.clone());
        let entry = first.and_then(|first| self.asked.take(&self.entry(shape, first)));
        entry.is_some_and(|entry| self.passed.insert(entry))
    }

    fn ask_again(&mut self, shape: ShapeId) {
        let first = self.first_active(shape).map(|(first, _)| first.clone());
        let entry = first.and_then(|first| self.passed.take(&self.entry(shape, first)));
        self.asked.extend(entry);
    }
}
