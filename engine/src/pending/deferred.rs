//! Classes whose jobs have others evicted only when nothing else is left to evaluate.
//!
//! A job that only reservations keep from free nodes may find them free later in the same call, when a reservation has
//! given way to that of another job. What was evicted for it before would have been evicted for nothing.

use crate::pending::shapes::ShapeId;
use facts::QueueName;
use std::collections::BTreeSet;

/// The classes that wait for all others, and those whose turn it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeferredPreemption {
    waiting: BTreeSet<(QueueName, ShapeId)>,
    granted: BTreeSet<(QueueName, ShapeId)>,
}

impl DeferredPreemption {
    /// Has a class wait, unless it is its turn. Returns whether it waits.
    pub(crate) fn defer(&mut self, queue: &QueueName, shape: ShapeId) -> bool {
        let class = (queue.clone(), shape);
        let waits = !self.granted.remove(&class);
        if waits {
            self.waiting.insert(class);
        }
        waits
    }

    /// Returns true if a class waits for all others.
    pub(crate) fn waits(&self, queue: &QueueName, shape: ShapeId) -> bool {
        !self.waiting.is_empty() && self.waiting.contains(&(queue.clone(), shape))
    }

    /// All others were evaluated: it is the turn of the classes that waited, which are returned.
    pub(crate) fn grant(&mut self) -> BTreeSet<(QueueName, ShapeId)> {
        self.granted = std::mem::take(&mut self.waiting);
        self.granted.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::testing::demand;
    use crate::pending::shapes::Shapes;
    use crate::pending::testing::shape;

    #[test]
    fn a_class_waits_once_for_all_others() {
        let shape = Shapes::default().acquire(shape(demand(1, "cpu 1")));
        let queue = QueueName::from("q");
        let mut deferred = DeferredPreemption::default();
        assert!(deferred.defer(&queue, shape) && deferred.waits(&queue, shape));
        assert_eq!(deferred.grant(), BTreeSet::from([(queue.clone(), shape)]));
        assert!(!deferred.waits(&queue, shape) && !deferred.defer(&queue, shape));
        // It has had its turn, and waits again.
        assert!(deferred.defer(&queue, shape));
        deferred.grant();
        assert_eq!(deferred.grant(), BTreeSet::new());
        assert!(deferred.defer(&queue, shape));
    }
}
