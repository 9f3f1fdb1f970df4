//! What Muster writes of a job on the control plane: its binding, and what goes with the binding.
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
//! Controller and scheduler write through it, in one process or in two: the leases say who writes
//! what. [`term`] is how a leader begins, [`uninstall`] how Muster leaves all bindings unmanaged.
//!
//! It must never choose: what is written was decided elsewhere, and is written whole or not at all.
//! It must never write without the version that the decision was taken on, nor outside of a term,
//! and apart from the webhook's gate nothing else may write a binding.

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
