//! The cycle: events in, decisions out. The only folder that changes the stores.
//!
//! `events` takes in what became known and `decide` moves what can move; both change stores through
//! `lifecycle`, `reserve` and `preempt`, and `react` says what each change wakes.

mod after_displacing;
pub(crate) mod decide;
mod displace;
mod elastic;
pub(crate) mod events;
pub(crate) mod fleet;
mod lifecycle;
pub(crate) mod next_head;
pub(crate) mod pod_charges;
mod pods;
mod preempt;
pub(crate) mod react;
mod recovery;
mod replan;
mod reserve;
mod resize;
mod resync;
mod rules;
pub(crate) mod spare;
pub(crate) mod start;
pub(crate) mod sync;
mod timers;
mod unreservable;
mod users;
pub(crate) mod wake;
