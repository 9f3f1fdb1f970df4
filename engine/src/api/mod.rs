//! The outputs of the engine, and what its stores call jobs, charges and reservations. Its inputs are the crate
//! [`facts`].

pub(crate) mod charge;
pub mod decision;
pub(crate) mod job;
pub(crate) mod slot;
