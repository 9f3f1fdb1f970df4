//! Sums of resources, by name and by number, and the small containers that hold the state of the engine.

pub(crate) mod bisect;
pub(crate) mod hashed;
pub(crate) mod rare;
pub(crate) mod resource_ids;
pub(crate) mod sharded;
pub(crate) mod totals;
