//! Checks the engine on a timer: recomputes every derived number from the facts.
//!
//! A check reads all jobs and nodes, so it runs on a copy in a thread of its own; only the copying delays
//! decisions. The time of copying is measured, and the next check is delayed until that time is at most a
//! thousandth of the time between checks. With a million queued jobs checks are therefore rarer than with a
//! thousand.

use crate::metrics::ControllerMetrics;
use engine::{Engine, Time};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// At most one part in `SHARE` of the time between checks goes into copying.
const SHARE: i64 = 1_000;

/// When the next check is due.
#[derive(Debug)]
pub(crate) struct Timer {
    /// Minimum of milliseconds between two checks.
    every_ms: i64,
    due: Time,
    running: Option<JoinHandle<()>>,
}

impl Timer {
    /// Returns a timer of checks that are at least `every` apart; the first one is due at once.
    pub(crate) fn new(every: Duration) -> Self {
        Self {
            every_ms: i64::try_from(every.as_millis()).unwrap_or(i64::MAX),
            due: Time::default(),
            running: None,
        }
    }

    /// Returns true if a check is due and the previous one has ended.
    fn is_due(&self, now: Time) -> bool {
        now >= self.due && self.running.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Schedules the next check after one that delayed decisions by `held_up`.
    fn put_off(&mut self, now: Time, held_up: Duration) {
        let millis = i64::try_from(held_up.as_millis()).unwrap_or(i64::MAX);
        self.due = now.after(millis.saturating_mul(SHARE).max(self.every_ms));
    }

    /// Starts a check of the engine's numbers if one is due.
    pub(crate) fn check(&mut self, engine: &Engine, metrics: &ControllerMetrics, now: Time) {
        if !self.is_due(now) {
            return;
        }
        let started = Instant::now();
        let engine = engine.clone();
        let held_up = started.elapsed();
        self.put_off(now, held_up);
        metrics
            .invariant_check_seconds
            .observe(held_up.as_secs_f64());
        let violated = metrics.invariant_violations.clone();
        let checked = metrics.invariant_checks.clone();
        let check = tokio::task::spawn_blocking(move || {
            for violation in engine.check_invariants() {
                tracing::error!(violation, "an invariant of the engine is broken");
                violated.inc();
            }
            checked.inc();
        });
        self.running = Some(check);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn checks_use_at_most_their_share_of_time() {
        let mut timer = Timer::new(Duration::from_secs(300));
        assert!(timer.is_due(Time(0)));
        timer.put_off(Time(0), Duration::from_millis(2));
        assert!(!timer.is_due(Time(299_999)) && timer.is_due(Time(300_000)));
        timer.put_off(Time(0), Duration::from_secs(1));
        assert!(!timer.is_due(Time(999_999)) && timer.is_due(Time(1_000_000)));
        timer.running = Some(tokio::spawn(std::future::pending()));
        assert!(!timer.is_due(Time(2_000_000)), "one is not overtaken");
    }
}
