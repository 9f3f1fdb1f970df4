//! Converts the mirror into facts for the engine: what a job requests, what was admitted, what runs of it,
//! and what members make of it.
//!
//! ```text
//! mirror: binding, template, namespace, policies ─► job, holds ─┐
//!         record, Works ─► adopted, running ────────────────────┴─► reconcile ─► engine
//! ```
//!
//! Everything is computed from a [`view::View`], which changes nothing. It must never write a binding, and never decide
//! about a job.

pub(crate) mod adopted;
pub(crate) mod discretion;
pub(crate) mod holds;
pub(crate) mod job;
pub(crate) mod member_rules;
pub(crate) mod queue_rights;
pub(crate) mod running;
pub(crate) mod view;
