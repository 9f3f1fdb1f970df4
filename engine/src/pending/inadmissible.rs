//! What parked classes and resting preemptors wait for.

use crate::api::slot::ReservationSlot;
use facts::{PoolClass, QueueName, Reason, ResourceName, Time};
use serde::{Deserialize, Serialize};

/// Something that a parked class waits for, or a preemptor that rests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum RequeueCondition {
    /// Any headroom of a queue, or another limit of it.
    Quota(QueueName),
    /// So much headroom of one bound.
    Headroom(QueueNeed),
    /// Other bounds of a queue: as they are, no job of the class can ever be admitted.
    Bounds(QueueName),
    /// More capacity on a node that could take one of its pods.
    Room,
    /// Another fleet: a node or cluster that came or changed.
    Fleet,
    /// Another set of reservations.
    Reservation,
    /// A slot for a reservation of headroom. A job that lost a slot of a class of pools is asked as a
    /// job of the reservation window instead.
    Slot(ReservationSlot),
    /// Other victims than there were when it searched, and not before this time.
    Victims(Time),
    /// This time: a victim is not protected by the minimum run time of its queue any more.
    Time(Time),
    /// So much that a queue deserves and does not use: then a queue on its path may reclaim.
    Entitlement(QueueNeed),
    /// A charge to a queue that became less, while so much of what it is guaranteed is not used.
    Guarantee(QueueNeed),
}

impl RequeueCondition {
    /// Returns what a queue needs to have, where the condition is that it has it.
    pub(super) fn need(&self) -> Option<&QueueNeed> {
        match self {
            Self::Headroom(need) | Self::Entitlement(need) | Self::Guarantee(need) => Some(need),
            _ => None,
        }
    }
}

/// So much of a resource that a queue needs to have. The amount comes last, so that what needs the least
/// of a resource comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct QueueNeed {
    pub(crate) queue: QueueName,
    /// In this class of pools; `None`: in the queue as a whole.
    pub(crate) class: Option<PoolClass>,
    pub(crate) resource: ResourceName,
    pub(crate) needs: i128,
}

/// Why a class is parked.
#[derive(Debug, Clone)]
pub(crate) struct Inadmissible {
    /// In one word.
    pub(crate) reason: Reason,
    /// True if it may be admitted some day as things are: then it is ahead of the jobs behind it.
    pub(crate) admissible_later: bool,
    /// What it waits for.
    pub(crate) conditions: Vec<RequeueCondition>,
}
