//! The watches that send inputs, and what a change of an object that is no job does to the mirror and the engine.
//!
//! ```text
//! watches, members, answers ─► Input ─► core ─► ingest ─► mirror, engine ─► work queue
//! ```
//!
//! This module must never write to the API server or decide on a job; it marks the jobs to reconcile.

pub(crate) mod fault_policies;
mod member_rules;
pub(crate) mod readiness;
pub(crate) mod sources;
pub(crate) mod template_watches;
pub(crate) mod unselected_kinds;
pub(crate) mod watches;
