//! API types: Muster's own kinds, and slim read types of its neighbours'.
//!
//! Slim types decode only what Muster looks at, tolerate anything new, and are never written
//! back: every write is a patch of our own fields. The YAML of our kinds is generated from the
//! types here (`crds/yaml`), which a test keeps current.

#![allow(
    clippy::duplicated_attributes,
    reason = "clippy takes the keys of one printcolumn(...) for repetitions of another's"
)]

pub mod capacity_policy;
pub mod conditions;
pub mod devices;
pub mod duration;
pub mod gpu_pool;
pub mod karmada;
pub mod kubernetes;
pub mod loose;
pub mod names;
pub mod podgroup;
pub mod queue;
pub mod record;
pub mod yaml;
