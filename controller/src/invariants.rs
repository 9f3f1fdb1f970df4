//! The engine checked against itself on a timer: every derived number recomputed from the facts.
//!
//! The recomputation reads all jobs and nodes, so it is made on a copy, in a thread of its own;
//! only the copying holds decisions up. Its time is measured, and the next check put off until
//! that is a thousandth of the time between: a million queued jobs are checked less often than
//! a thousand, and neither is felt.

use crate::core::Core;
use engine::Time;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Milliseconds between two checks at least.
const EVERY_MS: i64 = 300_000;
/// Of the time between two checks, one part in so many may be spent on copying.
const SHARE: i64 = 1_000;

/// When the next check is due.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    due: Time,
    running: Option<JoinHandle<()>>,
}

impl Timer {
    /// Whether a check is to be made now; one that has not ended yet is not overtaken.
    fn is_due(&self, now: Time) -> bool {
        now >= self.due && self.running.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Puts the next check off, decisions having been held up for so long.
    fn put_off(&mut self, now: Time, held_up: Duration) {
        let millis = i64::try_from(held_up.as_millis()).unwrap_or(i64::MAX);
        self.due = now.after(millis.saturating_mul(SHARE).max(EVERY_MS));
    }
}

impl Core {
    /// Has the engine's numbers checked, if that is due.
    pub(crate) fn check_invariants(&mut self, now: Time) {
        if !self.invariants.is_due(now) {
            return;
        }
        let started = Instant::now();
        let engine = self.reconciler.engine.clone();
        let held_up = started.elapsed();
        self.invariants.put_off(now, held_up);
        self.metrics
            .invariant_check_seconds
            .observe(held_up.as_secs_f64());
        let violated = self.metrics.invariant_violations.clone();
        let check = tokio::task::spawn_blocking(move || {
            for violation in engine.check_invariants() {
                tracing::error!(violation, "an invariant of the engine is broken");
                violated.inc();
            }
        });
        self.invariants.running = Some(check);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn checks_take_no_more_than_their_share() {
        let mut timer = Timer::default();
        assert!(timer.is_due(Time(0)));
        timer.put_off(Time(0), Duration::from_millis(2));
        assert!(!timer.is_due(Time(EVERY_MS - 1)) && timer.is_due(Time(EVERY_MS)));
        timer.put_off(Time(0), Duration::from_secs(1));
        assert!(!timer.is_due(Time(999_999)) && timer.is_due(Time(1_000_000)));
        timer.running = Some(tokio::spawn(std::future::pending()));
        assert!(!timer.is_due(Time(2_000_000)), "one is not overtaken");
    }
}
