//! The values that the parts of the controller pass to each other.
//!
//! ```text
//! ingest, effects ─► Input ─► core, reconcile ─► ReconcileAction ─► effects, status
//! ```
//!
//! They are data: nothing here reads or changes the state of the controller. So every folder may import this one, and
//! it imports only what names the things that they are about.

pub(crate) mod action;
pub(crate) mod enforcement;
pub(crate) mod input;
pub(crate) mod job_answer;
pub(crate) mod job_event;
pub(crate) mod unbound_pods;
