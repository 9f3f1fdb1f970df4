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

mod core;
pub mod decision;
pub mod event;
pub mod facts;
mod few;
mod hashed;
pub mod ids;
pub mod matching;
pub mod plugins;
pub mod quantity;
mod rare;
pub mod reason;
pub mod resources;
pub mod room;
mod tally;
mod uid;

pub use core::{Changed, Engine, EngineConfig, JobState, JobView, Snapshot};
pub use decision::{Blocker, Decision, Decisions, Explanation, QueueUsage};
pub use event::{Event, Progress};
pub use ids::{Attempt, ClusterName, JobKey, NodeName, PoolClass, QueueName, Time, Uid};
pub use quantity::{Amount, Quantity};
pub use reason::Reason;
pub use resources::{ResourceName, Resources};
