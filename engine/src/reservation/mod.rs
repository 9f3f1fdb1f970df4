//! The reservations that stand: for whom, of which nodes, of which slots.

pub(crate) mod priority;
pub(crate) mod store;
