//! Which jobs may be evicted for which, and the cheapest set of victims with which the job really starts.

mod candidates;
mod chain;
pub(crate) mod choose;
pub(crate) mod entitlement;
pub(crate) mod evict;
pub(crate) mod gaps;
pub(crate) mod pending_evictions;
mod surplus;
pub(crate) mod victims;
