//! A clock that no one can set: elapsed time that counts while the machine sleeps, and a wall clock that
//! does not jump.
//!
//! ```text
//! monotonic clock + time slept ─► elapsed ─┐
//!                                          ├─► Clock::now: starts at the wall clock, then elapses,
//! wall clock ─► at most 1 % of that towards it ─┘   and follows the wall clock slowly
//! ```
//!
//! The duration between two readings is accurate to one part in a hundred, whatever happens to the wall
//! clock meanwhile, and no reading is before an earlier one. So deadlines may be compared with it. After a
//! wall clock that was an hour wrong is corrected, this clock is correct after 100 hours, or after a
//! restart.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// One part in `SLEW` of the elapsed time moves the clock towards the wall clock.
const SLEW: i32 = 100;

/// Returns how long the machine has slept since it started. On Linux the instants of `std` and tokio stand
/// still meanwhile (`CLOCK_MONOTONIC`); on other systems this is zero.
#[must_use]
pub fn slept() -> Duration {
    #[cfg(target_os = "linux")]
    {
        use nix::time::{ClockId, clock_gettime};
        let read = |clock| clock_gettime(clock).map(Duration::from);
        // The monotonic clock is read first, so that the difference is never too small.
        if let (Ok(running), Ok(all)) = (
            read(ClockId::CLOCK_MONOTONIC),
            read(ClockId::CLOCK_BOOTTIME),
        ) {
            return all.saturating_sub(running);
        }
    }
    Duration::ZERO
}

type Source = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// See the module's documentation. Clones share the clock.
#[derive(Clone)]
pub struct Clock {
    wall: Source,
    state: Arc<Mutex<ClockState>>,
}

struct ClockState {
    /// The time last shown.
    shown: Timestamp,
    at: Instant,
    slept: Duration,
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Creates a clock that starts at the machine's wall clock.
    #[must_use]
    pub fn new() -> Self {
        Self::following(Timestamp::now)
    }

    /// Creates a clock that starts at the time of `wall` and follows it.
    pub fn following(wall: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let state = ClockState {
            shown: wall(),
            at: Instant::now(),
            slept: slept(),
        };
        Self {
            wall: Arc::new(wall),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let mut state = self.state.lock();
        let (at, slept) = (Instant::now(), slept());
        let elapsed = at.saturating_duration_since(state.at) + slept.saturating_sub(state.slept);
        let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::ZERO);
        let reached = state.shown.saturating_add(elapsed).unwrap_or(state.shown);
        let apart = (self.wall)().duration_since(reached);
        let most = elapsed / SLEW;
        let shown = reached
            .saturating_add(apart.clamp(-most, most))
            .unwrap_or(reached);
        // An excess from two readings of one moment is not counted twice.
        let slept = slept.max(state.slept);
        *state = ClockState { shown, at, slept };
        shown
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    /// Returns true if the difference can come from reading two clocks one after the other.
    fn near(one: Timestamp, other: Timestamp) -> bool {
        one.duration_since(other).abs() < SignedDuration::from_millis(100)
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_of_the_wall_clock_moves_no_deadline() {
        for jump_s in [3_600, -3_600] {
            let ahead = Arc::new(AtomicI64::new(0));
            let (began, start) = (Timestamp::now(), Instant::now());
            let wall = {
                let ahead = ahead.clone();
                move || {
                    let elapsed = SignedDuration::try_from(start.elapsed()).unwrap();
                    let ahead = SignedDuration::from_secs(ahead.load(Ordering::Relaxed));
                    began + elapsed + ahead
                }
            };
            let clock = Clock::following(wall);
            tokio::time::sleep(Duration::from_secs(60)).await;
            let before = clock.now();
            assert!(near(before, began + SignedDuration::from_secs(60)));
            ahead.store(jump_s, Ordering::Relaxed);
            assert!(near(clock.now(), before), "nothing elapsed");
            let mut last = before;
            for _ in 0..600 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let now = clock.now();
                assert!(now > last);
                last = now;
            }
            let elapsed = 600 + 6 * jump_s.signum();
            let right = before + SignedDuration::from_secs(elapsed);
            assert!(near(last, right), "1 % of 600 s: {before} {last}");
            // It reaches the wall clock in the end, and stays there.
            tokio::time::sleep(Duration::from_secs(400_000)).await;
            let now = clock.now();
            let wall = began
                + SignedDuration::try_from(start.elapsed()).unwrap()
                + SignedDuration::from_secs(jump_s);
            assert!(near(now, wall), "{now} {wall}");
        }
    }

    #[test]
    fn a_machine_that_runs_does_not_sleep() {
        let before = slept();
        std::thread::sleep(Duration::from_millis(20));
        assert!(slept().saturating_sub(before) < Duration::from_millis(10));
    }
}
