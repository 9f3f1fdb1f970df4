//! Code that the end-to-end tests, the demo and the benchmarks share: Muster's process in a
//! testbed, objects as JSON, jobs to submit, waiting, and an auditor.
//!
//! The harness uses Muster as its users do, by its binary and by what it writes to the API. It must
//! not use Muster's code, because a check must be independent of what it checks.

pub mod audit;
pub mod earlier;
pub mod health;
pub mod jobs;
pub mod kinds;
pub mod muster;
pub mod objects;
pub mod percentile;
pub mod record;
pub mod report;
pub mod soak;
pub mod tenant;
pub mod turns;
pub mod wait;
