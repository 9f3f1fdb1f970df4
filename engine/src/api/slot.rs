//! Slots for reservations.

use facts::{PoolClass, QueueName};
use serde::{Deserialize, Serialize};

/// A resource that only a limited number of reservations may use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum ReservationSlot {
    /// The nodes of a class.
    Class(PoolClass),
    /// The headroom of a queue.
    Headroom(QueueName),
}
