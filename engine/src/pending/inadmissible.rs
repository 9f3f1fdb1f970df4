//! Why a group of waiting jobs sleeps, and what wakes it.

use crate::amounts::resources::ResourceName;
use crate::api::ids::{PoolClass, QueueName};
use crate::api::reason::Reason;
use crate::api::slot::ReservationSlot;

/// Something that a sleeping group waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequeueCondition {
    /// Any headroom of a queue, or another limit of it.
    Quota(QueueName),
    /// So much headroom of one bound. The needs come last, so that those who wait for the
    /// least of a bound stand first.
    Headroom {
        queue: QueueName,
        /// The class that is bounded; `None`: the queue as a whole.
        class: Option<PoolClass>,
        resource: ResourceName,
        needs: i128,
    },
    /// Other bounds of a queue, of which none would let it go now, whatever were free.
    Bounds(QueueName),
    /// More room on a node that could take one of its pods.
    Room,
    /// Another fleet: a node or cluster that came or changed.
    Fleet,
    /// Another set of reservations.
    Reservation,
    /// A slot for a reservation of headroom. Jobs that wait for a slot of a class of pools are asked
    /// as jobs of the reservation window instead.
    Slot(ReservationSlot),
}

/// Why a group sleeps.
#[derive(Debug, Clone)]
pub(crate) struct Inadmissible {
    /// In one word.
    pub(crate) reason: Reason,
    /// Whether it could go some day as things are: then it counts as standing ahead.
    pub(crate) admissible_later: bool,
    /// What it waits for.
    pub(crate) conditions: Vec<RequeueCondition>,
}
