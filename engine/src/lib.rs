//! The decision core of Muster: facts and `now` in, decisions with reasons out.
//!
//! ```text
//! apply(Event) ──► model: queues ─ accounts ─ jobs ─ pools of nodes ──► decide(now) ──► Decisions
//!                                                        └───────────► explain(job), usage(queue)
//! ```
//!
//! It must never do I/O, read a clock, draw a random number, or count with floats: the same
//! events give the same decisions, byte for byte, in the live controller, in simulation and
//! in tests.

mod amounts;
mod api;
mod audit;
mod backfill;
pub mod capacity;
mod config;
mod cycle;
mod eligibility;
mod engine;
mod evaluation;
mod forecast;
mod jobs;
mod overlay;
mod pending;
mod placement;
pub mod plugins;
mod preemption;
mod quota;
mod report;
mod reservation;
mod state;
#[cfg(test)]
mod testing;

pub use amounts::{quantity, resources};
pub use api::job::JobState;
pub use api::{decision, event, facts, ids, matching, reason};
pub use audit::snapshot::Snapshot;
pub use config::EngineConfig;
pub use jobs::job::JobView;
pub use state::{Changed, Engine};

pub use decision::{Blocker, Decision, Decisions, Explanation, QueueUsage};
pub use event::{Event, Progress};
pub use ids::{Attempt, ClusterName, JobKey, NodeName, PoolClass, QueueName, Time, Uid};
pub use quantity::{Amount, Quantity};
pub use reason::Reason;
pub use resources::{ResourceName, Resources};
