//! The sort key of reservations if there are fewer slots than jobs for them, and the jobs of a queue
//! that can get one.

use crate::api::ids::QueueName;
use crate::api::job::QueueOrder;
use smallvec::SmallVec;
use std::cmp::Reverse;
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

/// The priority of a reservation: the policy is the order of the fields, the least is the highest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReservationPriority<'a> {
    /// Of the queues from below the root down, higher first.
    pub(crate) priorities: SmallVec<[Reverse<i32>; 8]>,
    /// Whether its queue holds all that it deserves.
    pub(crate) satisfied: bool,
    pub(crate) rank: &'a QueueOrder,
}
