//! What the end-to-end tests, the demo and the benchmarks share: Muster's process in a testbed,
//! objects as JSON, jobs to submit, waiting, and an auditor of what happened.
//!
//! Muster is known here as its users know it, by its binary and by what it writes to the API. No
//! code of Muster's may be used here: what is checked must not check itself.

pub mod audit;
pub mod earlier;
pub mod health;
pub mod jobs;
pub mod kinds;
pub mod muster;
pub mod objects;
pub mod record;
pub mod report;
pub mod tenant;
pub mod turns;
pub mod wait;
