//! The quota store: the tree of queues with their bounds and charges, and the order of siblings.
//!
//! Its inputs are the objects of queues, the totals of the fleet, charges and counts of jobs, and
//! the first jobs of each queue. It answers whether a charge is allowed (`check.rs`, `limits.rs`),
//! which queue is next (`sibling_order.rs`), and what usage would be after a hypothetical change
//! (`overlay.rs`). It uses `api` and `amounts` and knows no other store.

mod accounts;
mod assumed_usage;
mod audit;
mod bounds;
mod check;
mod decay;
mod fair_share;
mod idle;
mod limits;
mod owners;
mod pool_limits;
mod queue;
mod scopes;
mod shortfall;
mod sibling_order;
mod store;
#[cfg(test)]
pub(crate) mod testing;
mod tree;
mod usage;
mod users;
mod validity;

pub(crate) use assumed_usage::ScopedResource;
pub(crate) use decay::DecayedUsageSnapshot;
pub(crate) use limits::{LimitReached, OwnedRequest};
pub(crate) use owners::{ChargeOwner, Limited};
pub(crate) use queue::QueueId;
pub(crate) use shortfall::Shortfall;
#[cfg(test)]
pub(crate) use shortfall::ShortfallDetail;
pub(crate) use sibling_order::{QueueHeads, RankMoves, Round};
pub(crate) use store::{Quota, ROOT};
pub(crate) use tree::Path;
pub(crate) use users::UserUsageSnapshot;
