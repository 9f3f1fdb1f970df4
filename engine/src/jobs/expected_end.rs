//! When a charged job is expected to end.

use super::job::Job;
use crate::api::ids::Time;

/// What is expected of the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpectedEnd {
    /// Until when this holds.
    pub(crate) until: Time,
    /// True if the job is expected to end then; else its end is not known until then.
    pub(crate) known: bool,
}

impl ExpectedEnd {
    /// The expected end of a job, and when to work it out again; `None` if nothing is expected.
    ///
    /// What it declares or was predicted holds until it has run that long. Then its end is not
    /// known until it has run twice that; then it is taken to run twice as long again, and so on.
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
