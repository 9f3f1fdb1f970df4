//! The sort key of reservations if there are fewer slots than jobs for them, and the jobs of a queue
//! that can get one.

use crate::api::job::QueueOrder;
use facts::QueueName;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The jobs of a queue that can get a reservation, in their order.
pub(crate) struct ReservationWindow<'a> {
    pub(crate) queue: &'a QueueName,
    pub(crate) jobs: Vec<&'a QueueOrder>,
}

impl ReservationWindow<'_> {
    pub(crate) fn contains(&self, rank: &QueueOrder) -> bool {
        self.jobs.contains(&rank)
    }

    /// A copy of its jobs, which outlives a change of the stores.
    pub(crate) fn into_jobs(self) -> BTreeSet<QueueOrder> {
        self.jobs.into_iter().cloned().collect()
    }
}

/// The priorities of the queues from below the root down to one, higher first. Below that, each is 0 as of a queue
/// without a priority: how deep a queue is gives it no priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuePriorities(SmallVec<[i32; 8]>);

impl QueuePriorities {
    pub(crate) fn new(priorities: impl Iterator<Item = i32>) -> Self {
        let mut priorities: SmallVec<_> = priorities.collect();
        while priorities.last() == Some(&0) {
            priorities.pop();
        }
        Self(priorities)
    }

    fn at(&self, depth: usize) -> i32 {
        self.0.get(depth).copied().unwrap_or(0)
    }
}

impl Ord for QueuePriorities {
    fn cmp(&self, other: &Self) -> Ordering {
        let depths = 0..self.0.len().max(other.0.len());
        let mut levels = depths.map(|depth| other.at(depth).cmp(&self.at(depth)));
        levels
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for QueuePriorities {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The priority of a reservation: the policy is the order of the fields, the least is the highest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReservationPriority<'a> {
    pub(crate) queues: QueuePriorities,
    /// True if its queue holds all that it deserves.
    pub(crate) satisfied: bool,
    pub(crate) rank: &'a QueueOrder,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_come_by_the_first_priority_that_differs() {
        let of = |priorities: &[i32]| QueuePriorities::new(priorities.iter().copied());
        for (first, second) in [
            (vec![1], vec![0, 9]),
            (vec![0, 9], vec![0]),
            (vec![0], vec![-1]),
            (vec![0], vec![0, -1]),
            (vec![2, 0, 1], vec![2]),
        ] {
            assert_eq!(of(&first).cmp(&of(&second)), Ordering::Less, "{first:?}");
            assert_eq!(of(&second).cmp(&of(&first)), Ordering::Greater);
        }
        for (one, other) in [
            (vec![0], vec![0, 0, 0]),
            (vec![], vec![0]),
            (vec![3], vec![3, 0]),
        ] {
            assert_eq!(of(&one), of(&other));
            assert_eq!(of(&one).cmp(&of(&other)), Ordering::Equal);
        }
    }
}
