//! What the number of reservations is limited for.

use crate::api::ids::{PoolClass, QueueName};
use serde::{Deserialize, Serialize};

/// What there may be only so many reservations of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum ReservationSlot {
    /// Nodes of a class.
    Class(PoolClass),
    /// Headroom of a queue.
    Headroom(QueueName),
}
