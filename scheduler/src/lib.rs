//! The scheduler: it carries plans out.
//!
//! ```text
//! members (nodes, pods, Cluster objects) ─┬─► the engine, in the controller, which decides
//!                                         └─► live view ─► GpuPools, for people
//!                                                 │
//! plan (admission, demand) ─► carry_out: checked on the live view ─► prepare: Queue and
//!      PriorityClass in the members ─► overrides: a gang's parts, by its OverridePolicy
//!      ─► services: where its first pod, or each, is found from other clusters
//!      ─► placement: what spec.clusters says ─► a Write
//!                                                                               │
//! bindings ◄── commit ◄─────────────────────────────────────────────────────────┘
//! ```
//!
//! In one process with the controller ([`Scheduler`] is its handle) a plan comes and the write
//! goes back in memory; as a process of its own ([`process`]) plans come as admission records.
//! The code between is the same.
//!
//! It must never place what has no admission record, never choose for itself where a job
//! goes (it carries a plan out whole or refuses it), and never update anything in a member.

pub mod ack;
pub mod carry_out;
pub mod commit;
mod demand;
mod live;
mod metrics;
pub mod overrides;
pub mod placement;
mod pools;
mod prepare;
pub mod process;
mod services;
pub mod term;
pub mod uninstall;

pub use carry_out::{PlacementRequest, Refusal, Scheduler, SchedulerOptions};
