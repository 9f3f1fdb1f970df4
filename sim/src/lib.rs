//! Runs the engine in virtual time: seconds show what the live controller would decide over days.
//!
//! ```text
//! fleet ─┐                    arrivals, ends ──► Event ──► Engine
//! queues ├─► Scenario ─► Simulation ◄── Decision ────────────┘
//! jobs ──┘                    └─► Record ─► Metrics ─► table, JSON, charts
//! ```
//!
//! The engine is the one that runs live. This crate simulates the members (an admitted job runs at
//! once and ends when its run time is over) and records the results. Without faults there are no pods:
//! the assumed pods of a plan use its capacity until the job ends. With faults the pods run on the nodes
//! of the plan. This crate makes no decision of its own.

pub mod charts;
mod command;
mod error;
pub mod fair;
pub mod fault_metrics;
pub mod faults;
pub mod fragmentation;
pub mod input;
mod members;
pub mod metrics;
pub mod random;
pub mod record;
pub mod report;
pub mod run;
pub mod scenario;
pub mod starts;

pub use command::{Simulate, SimulationError};
pub use error::InputError;
