//! Writes the binding of a job on the control plane, and the objects that belong to the binding.
//!
//! ```text
//! Intent (a Write, and the binding that it was decided on) ─► commit ──────► ResourceBinding
//! admission ─► placement: what spec.clusters says ─► Write::Place    │
//! placed binding ─► ack: what Karmada expects of a scheduler ─► Write::Ack
//! shares of a gang ─► overrides ─────────────────────────────┬──────► OverridePolicy, Services
//!                                                            ▼
//!                           the ledger: which writes are open ◄── term: a new leader takes it,
//!                                                                 and fails what is still open
//! ```
//!
//! Controller and scheduler write through this crate, in one process or in two; the leases say which
//! process writes what. [`term`] starts a leader's term, and [`uninstall`] leaves all bindings unmanaged.
//!
//! This crate must never choose: each write was decided elsewhere, and is done as a whole or not at all. It
//! must never write without the version of the decision, nor outside of a term. Apart from the webhook's
//! gate, no other code may write a binding.

mod ack;
mod commit;
pub mod overrides;
pub mod placement;
pub mod term;
pub mod uninstall;

pub use ack::ack;
pub use commit::{
    CommitOptions, CommitOutcome, Committer, Intent, Write, WriteFailure, WriteKind, WrittenBinding,
};
