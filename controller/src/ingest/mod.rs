//! The watches, the inputs that they send, and what each input changes in the mirror.
//!
//! ```text
//! watches, members, answers ─► Input ─► Core::absorb ─► mirror, engine ─► dirty jobs
//! ```
//!
//! This module must never write to the API server or decide on a job; it marks the jobs to reconcile.

pub(crate) mod absorb;
pub(crate) mod fault_policies;
pub(crate) mod input;
pub(crate) mod readiness;
pub(crate) mod sources;
pub(crate) mod template_watches;
pub(crate) mod unselected_kinds;
pub(crate) mod watches;
