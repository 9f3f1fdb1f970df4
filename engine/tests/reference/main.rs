//! The engine against oracles that share only its types.
//!
//! - [`agree`]: a slow, obvious reading of the rules (queue tree, bounds, order, room by brute
//!   force) says who is released next; the engine must name the same job, every time.
//! - [`easy`]: the textbook EASY backfill of one queue.
//! - [`fair`]: exact hierarchical weighted water filling.
//! - [`reservation`]: the nodes that are kept for the head of a queue, by rack and within a bound, and who may
//!   pass it.
//! - [`invalid`]: which queues of a tree that contradicts itself take jobs.
//! - [`pools`]: bounds on classes of GPUs, in all clusters or in some.
//! - [`reclaim`]: what one queue may and must evict from others, by trying every set.
//! - [`optimum`]: mixed integer programs for placement, division and victims.
//!
//! No code here may come from the engine: otherwise both could be wrong in the same way.
//! `PROPTEST_CASES` sets the number of cases; every build runs a few.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub
)]

mod agree;
mod case;
mod easy;
#[path = "../engine/facts.rs"]
#[allow(
    dead_code,
    reason = "the stories of the other test use more of this language"
)]
mod facts;
mod fair;
mod fraction;
mod invalid;
mod model;
mod optimum;
mod pools;
mod random;
mod reclaim;
mod reservation;
mod room;
mod tree;
#[path = "../engine/world.rs"]
#[allow(
    dead_code,
    reason = "the stories of the other test use more of this language"
)]
mod world;

/// The number of random cases: `few`, unless `PROPTEST_CASES` has another number.
fn cases(few: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(few)
}
