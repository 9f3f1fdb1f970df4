//! Counts evaluations without result, to find jobs that have each other evaluated in a circle.
//!
//! There is no such circle: an evaluation parks its class until something changes. Debug builds assert
//! that no class is evaluated again and again between two admissions. A release build ends the call, so
//! that a defect does not stop all other work.

use crate::api::ids::QueueName;
use crate::pending::shapes::ShapeId;
use std::collections::BTreeMap;

/// The most evaluations of one class between two admissions. Each reservation that is set or dropped
/// meanwhile may cause one, and there are as many as queues with conservative backfill may have.
const MOST_OF_CLASS: usize = 512;

/// The evaluations since the last admission.
#[derive(Debug, Default)]
pub(super) struct Fruitless {
    all: usize,
    /// By class, in debug builds.
    of_class: BTreeMap<(QueueName, ShapeId), usize>,
}

impl Fruitless {
    /// Counts an evaluation of a class. Returns the number of all.
    pub(super) fn count(&mut self, queue: &QueueName, shape: ShapeId) -> usize {
        self.all += 1;
        if cfg!(debug_assertions) {
            let count = self.of_class.entry((queue.clone(), shape)).or_default();
            *count += 1;
            assert!(
                *count <= MOST_OF_CLASS,
                "{shape:?} of queue {queue} is evaluated in a circle"
            );
        }
        self.all
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
            assert_eq!(fruitless.count(&queue, shape), index + 1);
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
