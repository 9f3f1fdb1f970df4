//! The reservations: their owners, nodes and slots.

pub(crate) mod priority;
pub(crate) mod store;
