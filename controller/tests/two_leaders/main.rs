//! Two whole controllers on one fake control plane, in virtual time. The test stops the leader before one
//! of its writes, for longer than its Lease lasts. The other replica leads, and jobs with precedence
//! arrive. Then the first replica continues, and its pending write arrives. Whichever write that was, the
//! queue never exceeds its quota.
//!
//! `MUSTER_SEEDS=10000 cargo test -p controller --test two_leaders` runs more seeds, and
//! `MUSTER_SEEDS=200..400` runs that range.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod plane;
mod restart;

use plane::{BOUND, plane};
use std::ops::Range;
use std::time::Duration;
use tokio::time::sleep;

/// Number of seeds by default.
const SEEDS: u64 = 200;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Runs one seed and returns the most jobs that were placed.
async fn play(seed: u64, with_ledger: bool) -> usize {
    let mut random = Random(seed);
    let plane = plane();
    let (old, _old) = plane.controller("host", with_ledger);
    sleep(Duration::from_millis(500)).await;
    let (_new, _other) = plane.controller("host", with_ledger);
    sleep(Duration::from_secs(3)).await;
    let first = plane.holder();
    assert!(
        first
            .as_str()
            .is_some_and(|holder| holder.starts_with("host_")),
        "{first}"
    );

    old.stop_after(usize::try_from(random.below(40)).unwrap());
    for name in ["a", "b", "c", "d", "e", "f"] {
        plane.job(name, 2026);
        sleep(Duration::from_millis(random.below(20))).await;
    }
    sleep(Duration::from_secs(2)).await;
    old.stop();
    for name in ["first-a", "first-b", "first-c", "first-d"] {
        plane.job(name, 2025);
    }
    plane
        .until("another leads", Duration::from_secs(25), |plane| {
            plane.holder() != first
        })
        .await;
    sleep(Duration::from_millis(random.below(15_000))).await;
    let mut most = plane.placed().len();
    old.thaw();
    for _ in 0..200 {
        sleep(Duration::from_millis(100)).await;
        most = most.max(plane.placed().len());
        if plane.closed_one() {
            most = most.max(BOUND + 1);
        }
    }
    let placed = plane.placed();
    assert!(placed.len() >= BOUND, "seed {seed}: they go on, {placed:?}");
    let _ = &plane.member;
    most
}

fn seeds() -> Range<u64> {
    let Ok(asked) = std::env::var("MUSTER_SEEDS") else {
        return 0..SEEDS;
    };
    let (from, until) = asked.split_once("..").unwrap_or(("0", &asked));
    let number = |text: &str| {
        let number = text.parse();
        number.unwrap_or_else(|_| panic!("MUSTER_SEEDS={asked:?} is no number N and no range N..M"))
    };
    number(from)..number(until)
}

fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn a_leader_stopped_at_any_write_never_exceeds_the_quota_with_a_new_leader() {
    for seed in seeds() {
        let most = in_virtual_time(play(seed, true));
        assert!(most <= BOUND, "seed {seed}: {most} of {BOUND}");
    }
}

/// Shows that the ledger is needed: without it the same seeds exceed the quota.
#[test]
fn without_the_ledger_the_quota_is_exceeded() {
    let over = (0..60).any(|seed| in_virtual_time(play(seed, false)) > BOUND);
    assert!(over, "this test shows nothing any more");
}
