//! Converts the mirror into facts for the engine: what a job requests, what was admitted, what runs of it,
//! and the places of queues in the tree.
//!
//! ```text
//! mirror: binding, template, namespace, policies ─► job ─► apply ─► engine
//!         record, Works ─► adopted, running ────────────────┘
//! ```
//!
//! It must never write a binding, and never decide about a job.

pub(crate) mod adopted;
pub(crate) mod apply;
pub(crate) mod job;
pub(crate) mod member_rules;
pub(crate) mod queue_places;
pub(crate) mod queue_rights;
pub(crate) mod running;
