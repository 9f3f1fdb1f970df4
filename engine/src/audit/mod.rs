//! Recomputes all that is derived, and dumps an engine as data.

pub(crate) mod invariants;
pub(crate) mod snapshot;
