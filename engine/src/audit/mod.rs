//! The audit of an engine's indexes, and its snapshots.

pub(crate) mod invariants;
pub(crate) mod snapshot;
