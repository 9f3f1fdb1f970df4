//! Backfill: reservations keep what becomes free for the first jobs that lack it; jobs behind them
//! may pass as long as they do not delay them (EASY and conservative backfill, Slurm's terms).
//!
//! Functions that plan and read; `cycle::reserve` sets and drops. In each queue the first blocked job
//! can get a reservation, or as many as its policy says; of each class of pools and each short queue
//! at most as many as it has slots ([`window`]).

pub(crate) mod assume;
mod bounded;
pub(crate) mod expected_release;
pub(crate) mod expected_start;
pub(crate) mod feasible;
pub(crate) mod offers;
pub(crate) mod plan;
pub(crate) mod reservation;
pub(crate) mod slots;
mod sooner;
pub(crate) mod spare;
mod spare_quota;
pub(crate) mod window;
pub(crate) mod withheld;
