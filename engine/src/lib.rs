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
mod plugins;
mod pod_charges;
mod preemption;
mod quota;
mod report;
mod reservation;
mod state;
#[cfg(test)]
mod testing;
mod timers;

pub use api::decision;
pub use api::job::JobState;
pub use audit::snapshot::Snapshot;
pub use config::EngineConfig;
pub use forecast::starts::{FaredRange, StartForecasts, StartResult, WAIT_STAGES};
pub use jobs::job::JobView;
pub use report::advise::AdviceClass;
pub use report::fleet::FleetView;
pub use report::pods::{PodsView, still_end};
pub use state::{Changed, Engine};

pub use decision::{Blocker, Decision, Decisions, Explanation, QueueUsage};

/// The inputs, for crates that use the engine.
pub use facts::{
    self, Actor, Amount, Attempt, ClusterName, Event, JobKey, NextStep, NodeName, PoolClass,
    Progress, Quantity, QueueName, Reason, ResourceName, Resources, Time, Uid, counted, event,
    faults, ids, listed, matching, pod_rules, quantity, reason, resources,
};
