//! What all Muster processes share.
//!
//! ```text
//! kubeconfig ─► client ─┬► watch ──► deltas into a component's index
//!                       ├► lease ──► Leadership: may we write? Ledger: which writes are open
//!                       ├► status_writer ◄── newest status per object
//!                       ├► rights ──► who may use a queue
//!                       ├► pages ──► lists, a page at a time
//!                       ├► kinds ──► where objects of a kind are
//!                       └► apply ◄── manifests
//! task: a panic ends the process. clock: time that does not jump
//! telemetry, traces, metrics, process_metrics, health, shutdown: logs, numbers, probes and the end of a process
//! metrics_access: who may read the numbers
//! ```
//!
//! It knows Kubernetes but no queues: it must never decide anything about a job, and no call may hang: each
//! request has a deadline of its own.

pub mod alerts;
pub mod apply;
pub mod client;
pub mod clock;
pub mod health;
pub mod kinds;
pub mod lease;
pub mod metrics;
pub mod metrics_access;
pub mod pages;
pub mod process_metrics;
pub mod rights;
pub mod shutdown;
pub mod status_writer;
pub mod task;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod traces;
pub mod watch;

pub use client::{connect, install_crypto, with_deadline};
pub use health::{Health, ReadyFlag};
pub use lease::{Leadership, Term};
pub use metrics::Registry;
pub use metrics_access::MetricsAccess;
pub use rights::{Principal, RightsCache};
pub use status_writer::{StatusTarget, StatusWriter};
pub use watch::{Delta, ObjectKey, WatchOptions, watch};
