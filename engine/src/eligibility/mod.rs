//! Which clusters a placement selects.

pub(crate) mod store;
