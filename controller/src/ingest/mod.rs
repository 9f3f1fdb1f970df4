//! What comes in: the watches, the inputs that they send, and what each input changes in the mirror.
//!
//! ```text
//! watches, members, answers ─► Input ─► Core::absorb ─► mirror, engine ─► dirty jobs
//! ```
//!
//! It must never write to the API server, nor decide on a job: it says which jobs to reconcile.

pub(crate) mod absorb;
pub(crate) mod input;
pub(crate) mod readiness;
pub(crate) mod sources;
pub(crate) mod template_watches;
pub(crate) mod watches;
