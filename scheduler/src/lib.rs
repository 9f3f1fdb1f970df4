//! The scheduler is a dispatcher: it carries out what the engine decided, and decides nothing.
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
//! It runs in one of two ways with the same code:
//!
//! - In the controller's process, [`Scheduler`] is the handle: the controller passes it a
//!   [`PlacementRequest`] and gets back the write or a [`Refusal`] in memory. The controller needs nothing
//!   else of this crate, and nothing of it if the scheduler runs in another process.
//! - As a [`process`] of its own, plans come as admission records, and it writes the answers.
//!
//! It must never place a job without an admission record, never choose the clusters of a job (it carries a
//! plan out as a whole or refuses it), and never update an object in a member.

mod carry_out;
mod demand;
mod live;
mod metrics;
mod pools;
mod prepare;
pub mod process;

pub use carry_out::{PlacementRequest, Refusal, Scheduler, SchedulerOptions};
