//! Counts evaluations without result, to find jobs that have each other evaluated in a circle.
//!
//! There is no such circle: an evaluation parks its class until something changes. Debug builds assert
//! that no class is evaluated again and again between two admissions. A release build ends the call and pauses, so
//! that a defect does not stop all other work.

use crate::amounts::hashed::Hashed;
use crate::pending::shapes::ShapeId;
use facts::QueueName;

/// The most evaluations of one class between two admissions. Each reservation that is set or dropped
/// meanwhile may cause one, and there are as many as queues with conservative backfill may have.
const MOST_OF_CLASS: usize = 512;

/// The evaluations of each class since the last admission, or since a call found nothing left to do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fruitless {
    of_class: Hashed<(QueueName, ShapeId), usize>,
}

impl Fruitless {
    /// A job was admitted, or nothing is left to evaluate: what is evaluated from now on has another cause.
    pub(crate) fn forget(&mut self) {
        self.of_class.clear();
    }

    /// Counts an evaluation of a class. Returns whether it is evaluated in a circle.
    pub(crate) fn count(&mut self, queue: &QueueName, shape: ShapeId) -> bool {
        let count = self.of_class.entry((queue.clone(), shape)).or_default();
        *count += 1;
        debug_assert!(
            *count <= MOST_OF_CLASS,
            "{shape:?} of queue {queue} is evaluated in a circle"
        );
        *count > MOST_OF_CLASS
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::JobKey;
    use crate::testing::pending;

    fn shape() -> ShapeId {
        let engine = pending();
        engine
            .jobs
            .line_of(&JobKey::new("ns", "waits"))
            .unwrap()
            .shape
    }

    #[test]
    fn evaluations_of_different_classes_are_no_circle() {
        let mut fruitless = Fruitless::default();
        let shape = shape();
        for index in 0..2 * MOST_OF_CLASS {
            let queue = QueueName::from(index.to_string().as_str());
            assert!(!fruitless.count(&queue, shape));
        }
    }

    #[test]
    #[should_panic(expected = "in a circle")]
    fn a_class_that_is_evaluated_again_and_again_is_a_circle() {
        let mut fruitless = Fruitless::default();
        let (queue, shape) = (QueueName::from("q"), shape());
        for _ in 0..=MOST_OF_CLASS {
            fruitless.count(&queue, shape);
        }
    }
}
