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
//! process writes what. [`term`] starts a leader's term.
//!
//! This crate must never choose: each write was decided elsewhere, and is done as a whole or not at all. It
//! must never write without the version of the decision, nor outside of a term. No other code may write a
//! binding, except the webhook's gate, and `muster uninstall`, which runs while no other process of Muster does.

mod ack;
mod commit;
pub mod overrides;
pub mod placement;
pub mod refusal;
pub mod term;

pub use ack::ack;
pub use commit::{
    CommitOptions, CommitOutcome, Committer, Intent, Write, WriteFailure, WriteKind, WrittenBinding,
};
