//! Health: the fault rules in force.

pub(crate) mod store;
