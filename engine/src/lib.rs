//! The decision core of Muster. Its inputs are facts and the time, its outputs decisions with
//! reasons.
//!
//! ```text
//! apply(Event) ──► model: queues ─ accounts ─ jobs ─ pools of nodes ──► decide(now) ──► Decisions
//!                                                        └───────────► explain(job), usage(queue)
//! ```
//!
//! It does no I/O, reads no clock, draws no random number and uses no floats: the same events give
//! the same decisions, byte for byte, in the controller, in simulation and in tests.

mod amounts;
mod api;
mod audit;
mod backfill;
pub mod capacity;
mod config;
pub mod cost;
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
mod pod_charges;
mod preemption;
mod quota;
mod report;
mod reservation;
mod state;
#[cfg(test)]
mod testing;
mod timers;

pub use amounts::texts::{counted, listed};
pub use amounts::{quantity, resources};
pub use api::job::JobState;
pub use api::{decision, event, facts, faults, ids, matching, pod_rules, reason};
pub use audit::snapshot::Snapshot;
pub use config::EngineConfig;
pub use forecast::starts::{FaredRange, StartForecasts, StartResult, WAIT_STAGES};
pub use jobs::job::JobView;
pub use report::advise::AdviceClass;
pub use report::fleet::FleetView;
pub use report::pods::PodsView;
pub use state::{Changed, Engine};

pub use decision::{Blocker, Decision, Decisions, Explanation, QueueUsage};
pub use event::{Event, Progress};
pub use ids::{Attempt, ClusterName, JobKey, NodeName, PoolClass, QueueName, Time, Uid};
pub use quantity::{Amount, Quantity};
pub use reason::{Actor, NextStep, Reason};
pub use resources::{ResourceName, Resources};
