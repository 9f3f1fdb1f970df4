//! The expected end of a charged job.

use super::job::Job;
use crate::api::ids::Time;

/// An estimate of the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpectedEnd {
    /// Until when the estimate is valid.
    pub(crate) until: Time,
    /// True if the job is expected to end at `until`; else its end is not known before.
    pub(crate) known: bool,
}

impl ExpectedEnd {
    /// The expected end of a job; `None` if it neither declares a run time nor has a predicted one.
    ///
    /// The run time `t` is valid until the job has run for `t`. Then the end is not known until it
    /// has run for 2 `t`; then it is expected to run for 4 `t`, and so on.
    pub(crate) fn of(job: &Job, now: Time) -> Option<Self> {
        let released = job.released.as_deref().filter(|r| r.charged())?;
        let expected = job.duration.or(released.expected_ms)?.max(1);
        let begun = released.begun();
        let elapsed = now.millis_since(begun);
        let (mut span, mut known) = (expected, true);
        while elapsed >= span && span < i64::MAX {
            span = span.saturating_mul(2);
            known = !known;
        }
        Some(Self {
            until: begun.after(span),
            known,
        })
    }

    /// When the job is expected to end, if that is known.
    pub(crate) fn end(self) -> Option<Time> {
        self.known.then_some(self.until)
    }
}
