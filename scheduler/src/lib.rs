//! The scheduler: a dispatcher, which carries out what the engine decided. It decides nothing.
//!
//! ```text
//! members ─► live: a view of its own ─► GpuPools, for people
//!                     │
//! plan (admission, demand) ─► carry_out: checked on that view ─► prepare: Queue and
//!      PriorityClass in the members ─► binding_writer::overrides: a gang's parts, and the Services
//!      by which its pods are found ─► a Write, or a Refusal with its reason
//!                                         │
//! bindings ◄── binding_writer::Committer ◄┘ (the one who gave the plan submits it)
//! ```
//!
//! It runs in one of two ways, and the code between is the same:
//!
//! - In the controller's process: [`Scheduler`] is its handle, to which a [`PlacementRequest`] is given, and
//!   from which the write or a [`Refusal`] comes back in memory. The controller needs nothing else
//!   of this crate, and nothing of it where the scheduler is apart.
//! - As a [`process`] of its own: plans come as admission records, and it writes the answers.
//!
//! It must never place what has no admission record, never choose for itself where a job
//! goes (it carries a plan out whole or refuses it), and never update anything in a member.

mod carry_out;
mod demand;
mod live;
mod metrics;
mod pools;
mod prepare;
pub mod process;

pub use carry_out::{PlacementRequest, Refusal, Scheduler, SchedulerOptions};
