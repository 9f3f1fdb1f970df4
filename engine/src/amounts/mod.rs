//! Quantities of resources, and the small containers that hold them.

pub(crate) mod hashed;
pub mod quantity;
pub(crate) mod rare;
pub mod resources;
pub(crate) mod small_map;
pub(crate) mod tally;
pub(crate) mod texts;
