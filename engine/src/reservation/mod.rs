//! The reservations: their owners, nodes and slots.

pub(crate) mod priority;
pub(crate) mod spares;
pub(crate) mod store;
