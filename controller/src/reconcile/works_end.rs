//! The Works of a job whose placement is over: when they are gone for sure, and its pods with them.

use engine::{Attempt, Time};

/// Milliseconds in which Karmada may still create Works of an evicted placement of which no Work was seen:
/// its binding controller may be in the middle of a pass.
const SETTLE_MS: i64 = 5_000;
/// Milliseconds in which Karmada removes the Works of a placement that is gone; Works left after that are
/// ones that it missed.
const SWEEP_MS: i64 = 15_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct WorksEnd {
    /// True if a Work of the present placement was seen.
    seen: bool,
    /// Since when the eviction of the job is under way.
    since: Option<Time>,
    /// Since when it has Works that should be gone.
    leftover_since: Option<Time>,
    checking: bool,
    /// The attempt of which nothing is left; its record is being written.
    gone: Option<Attempt>,
}

impl WorksEnd {
    /// Records that a Work of the present placement exists.
    pub(crate) fn seen(&mut self) {
        self.seen = true;
    }

    /// Resets what belongs to one placement.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            checking: self.checking,
            ..Self::default()
        };
    }

    /// Records that the job is being ended. Returns `Ok` once the absence of Works is conclusive, else when it
    /// will be.
    pub(crate) fn has_settled(&mut self, now: Time) -> Result<(), Time> {
        let since = *self.since.get_or_insert(now);
        let settled = since.after(SETTLE_MS);
        if self.seen || now >= settled {
            Ok(())
        } else {
            Err(settled)
        }
    }

    /// Records that Works exist that should be gone. Returns `Ok` once Karmada had time to remove them, else
    /// when it will have had.
    pub(crate) fn are_left_behind(&mut self, now: Time) -> Result<(), Time> {
        let since = *self.leftover_since.get_or_insert(now);
        let until = since.after(SWEEP_MS);
        if now >= until { Ok(()) } else { Err(until) }
    }

    /// Records that nothing of `attempt` is left.
    pub(crate) fn note_gone(&mut self, attempt: Attempt) {
        self.gone = Some(attempt);
    }

    /// Returns true if nothing of `attempt` is left.
    pub(crate) fn are_gone(&self, attempt: Attempt) -> bool {
        self.gone == Some(attempt)
    }

    /// Starts a check of the Works if none is running; returns true if it did.
    pub(crate) fn begin_check(&mut self) -> bool {
        !std::mem::replace(&mut self.checking, true)
    }

    pub(crate) fn end_check(&mut self) {
        self.checking = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000);

    #[test]
    fn works_that_were_never_seen_get_time_to_appear() {
        let mut works = WorksEnd::default();
        let settled = NOW.after(SETTLE_MS);
        assert_eq!(works.has_settled(NOW), Err(settled));
        // The time counts from the first call, however many follow.
        assert_eq!(works.has_settled(NOW.after(10)), Err(settled));
        assert_eq!(works.has_settled(settled), Ok(()));
        works.reset();
        assert_eq!(works.has_settled(settled), Err(settled.after(SETTLE_MS)));
        works.seen();
        assert_eq!(works.has_settled(settled), Ok(()));
        // What was seen of one placement says nothing about the next.
        works.reset();
        assert!(works.has_settled(settled).is_err());
    }

    #[test]
    fn one_check_runs_at_a_time() {
        let mut works = WorksEnd::default();
        assert!(works.begin_check());
        assert!(!works.begin_check());
        works.reset();
        assert!(!works.begin_check(), "it goes on");
        works.end_check();
        assert!(works.begin_check());
    }
}
