//! Quantities of resources, and the small containers that hold them.

pub(crate) mod bisect;
pub(crate) mod hashed;
pub mod quantity;
pub(crate) mod rare;
pub(crate) mod resource_ids;
pub mod resources;
pub(crate) mod sharded;
pub(crate) mod small_map;
pub(crate) mod texts;
pub(crate) mod totals;
