//! The reservation windows of queues, as they were last noted.

use super::PendingQueues;
use crate::pending::pending_queue::{PendingClass, PendingQueue};
use crate::pending::shapes::ShapeId;
use crate::quota::QueueId;
use facts::QueueName;
use std::collections::BTreeSet;

impl PendingQueues {
    /// Notes the shapes in the reservation window of a queue.
    pub(crate) fn note_window(&mut self, queue: &QueueName, shapes: BTreeSet<ShapeId>) {
        if self.window(queue).unwrap_or(&BTreeSet::new()) == &shapes {
            return;
        }
        for shape in self.windows.remove(queue).into_iter().flatten() {
            if let Some(queues) = self.in_window.get_mut(&shape) {
                queues.remove(queue);
                if queues.is_empty() {
                    self.in_window.remove(&shape);
                }
            }
        }
        for shape in &shapes {
            let queues = self.in_window.entry(*shape).or_default();
            queues.insert(queue.clone());
        }
        if !shapes.is_empty() {
            self.windows.insert(queue.clone(), shapes);
        }
    }

    /// The shapes in the reservation window of a queue, as last noted. A class is in it if its first job is.
    pub(crate) fn window(&self, queue: &QueueName) -> Option<&BTreeSet<ShapeId>> {
        self.windows.get(queue)
    }

    /// The queues with jobs in their reservation window, in no order.
    pub(crate) fn with_window(&self) -> impl Iterator<Item = &QueueName> {
        self.windows.keys()
    }

    /// Returns true if a job in a reservation window has this shape.
    pub(crate) fn is_in_window(&self, shape: ShapeId) -> bool {
        self.in_window.contains_key(&shape)
    }

    /// The shapes of the jobs in reservation windows.
    pub(crate) fn in_window(&self) -> impl Iterator<Item = ShapeId> {
        self.in_window.keys().copied()
    }

    /// The queues in whose reservation window an active class of a shape is, in no order.
    pub(crate) fn with_active_in_window(&self, shape: ShapeId) -> impl Iterator<Item = QueueId> {
        self.active_in_window(shape).map(|(_, queue)| queue.id())
    }

    fn active_in_window(
        &self,
        shape: ShapeId,
    ) -> impl Iterator<Item = (&QueueName, &PendingQueue)> {
        let queues = self.in_window.get(&shape).into_iter().flatten();
        let queues = queues.filter_map(|name| Some((name, self.by_name.get(name)?)));
        queues.filter(move |(_, queue)| queue.first_active(shape).is_some())
    }

    /// Has all queues looked at again in whose reservation window an active class of a shape is.
    pub(crate) fn note_window_changed(&mut self, shape: ShapeId) {
        let active = self.active_in_window(shape);
        let active: Vec<QueueName> = active.map(|(name, _)| name.clone()).collect();
        active.iter().for_each(|queue| self.note_changed(queue));
    }

    /// Wakes the parked classes in all reservation windows.
    pub(crate) fn wake_windows(&mut self) {
        let queues: Vec<QueueName> = self.windows.keys().cloned().collect();
        queues.iter().for_each(|queue| self.wake_window(queue));
    }

    /// Wakes the parked classes in the reservation window of a queue.
    pub(crate) fn wake_window(&mut self, queue: &QueueName) {
        let classes = self.by_name.get(queue).map(|of_queue| &of_queue.classes);
        let is_parked = |shape: &&ShapeId| {
            let class = classes.and_then(|classes| classes.get(*shape));
            class.is_some_and(PendingClass::is_parked)
        };
        let window = self.windows.get(queue).into_iter().flatten();
        let parked: Vec<ShapeId> = window.filter(is_parked).copied().collect();
        for shape in parked {
            self.activate(queue, shape);
        }
    }
}
