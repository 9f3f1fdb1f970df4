//! The quota store: the tree of queues, what each may have and what is charged to it, and which
//! goes first among its siblings.
//!
//! In come the objects of queues, the totals of the fleet, charges and counts of jobs, and the
//! first jobs of each queue; out go the answers to "may this be charged?" (`check.rs`,
//! `limits.rs`), "which queue is next?" (`sibling_order.rs`) and "what would it be entitled to?"
//! (`assumed_usage.rs`). It knows the amounts and the facts of the API, and no other store; it decides
//! nothing about a job.

mod accounts;
mod assumed_usage;
mod audit;
mod bounds;
mod check;
mod decay;
mod fair_share;
mod idle;
mod limits;

mod queue;
mod scopes;
mod shortfall;
mod sibling_order;
mod store;
#[cfg(test)]
pub(crate) mod testing;
mod tree;
mod usage;
mod validity;

pub(crate) use assumed_usage::ScopedResource;
pub(crate) use decay::DecayedUsageSnapshot;
pub(crate) use limits::LimitReached;
pub(crate) use queue::QueueId;
pub(crate) use shortfall::Shortfall;
#[cfg(test)]
pub(crate) use shortfall::ShortfallDetail;
pub(crate) use sibling_order::{QueueHeads, Round};
pub(crate) use store::{Quota, ROOT};
pub(crate) use tree::Path;
