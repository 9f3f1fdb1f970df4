//! Virtual time around the engine: what the live controller would have decided, in seconds.
//!
//! ```text
//! fleet ─┐                    arrivals, ends ──► Event ──► Engine
//! queues ├─► Scenario ─► Simulation ◄── Decision ────────────┘
//! jobs ──┘                    └─► Record ─► Metrics ─► table, JSON, charts
//! ```
//!
//! The engine is the very one that runs live; this crate plays the members (what is released
//! runs at once and ends when its time is over) and keeps the books. There are no pods: the
//! assumed pods of a plan use its capacity until the job ends. It must never decide anything itself.

pub mod charts;
mod command;
mod error;
pub mod fair;
pub mod fragmentation;
pub mod input;
mod members;
pub mod metrics;
pub mod record;
pub mod report;
pub mod run;
pub mod scenario;

pub use command::{Simulate, SimulationError};
pub use error::InputError;
