//! What a parked class waits for.

use crate::amounts::resources::ResourceName;
use crate::api::ids::{PoolClass, QueueName};
use crate::api::reason::Reason;
use crate::api::slot::ReservationSlot;

/// Something that a parked class waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequeueCondition {
    /// Any headroom of a queue, or another limit of it.
    Quota(QueueName),
    /// So much headroom of one bound. The needs come last, so that the classes that wait for the
    /// least of a bound are first.
    Headroom {
        queue: QueueName,
        /// The class of pools that is bounded; `None`: the queue as a whole.
        class: Option<PoolClass>,
        resource: ResourceName,
        needs: i128,
    },
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
}

/// Why a class is parked.
#[derive(Debug, Clone)]
pub(crate) struct Inadmissible {
    /// In one word.
    pub(crate) reason: Reason,
    /// Whether it may be admitted some day as things are: then it is ahead of the jobs behind it.
    pub(crate) admissible_later: bool,
    /// What it waits for.
    pub(crate) conditions: Vec<RequeueCondition>,
}
