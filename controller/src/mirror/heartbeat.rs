//! What a job says of its progress.

use engine::Time;

/// The heartbeat of a job, and how old it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Heartbeat {
    /// Its last heartbeat, if there was one.
    pub(crate) at: Option<Time>,
    /// Milliseconds after which it is stuck without another one; `None` if it never is.
    pub(crate) timeout_ms: Option<i64>,
}

impl Heartbeat {
    /// Returns when the attempt that runs since `begun` is stuck. A heartbeat of an earlier attempt, or of a clock
    /// that is ahead, counts as one at the nearest time of this attempt.
    pub(crate) fn stuck_at(self, begun: Time, now: Time) -> Option<Time> {
        let last = self.at.map_or(begun, |at| at.min(now)).max(begun);
        Some(last.after(self.timeout_ms?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_counts_within_its_attempt_only() {
        let stuck_at = |at: Option<i64>, timeout_ms| {
            let heartbeat = Heartbeat {
                at: at.map(Time),
                timeout_ms,
            };
            heartbeat.stuck_at(Time(100), Time(200)).map(|at| at.0)
        };
        assert_eq!(stuck_at(Some(150), Some(50)), Some(200));
        assert_eq!(
            stuck_at(Some(10), Some(50)),
            Some(150),
            "an earlier attempt"
        );
        assert_eq!(
            stuck_at(Some(900), Some(50)),
            Some(250),
            "a clock that is ahead"
        );
        assert_eq!(stuck_at(None, Some(50)), Some(150));
        assert_eq!(stuck_at(Some(150), None), None);
    }
}
