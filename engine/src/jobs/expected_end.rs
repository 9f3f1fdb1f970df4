//! The expected end of a charged job.

use super::job::Job;
use facts::Time;

/// When a job is expected to end; `None` if it is not charged, or nothing is known of its run time. A time that has
/// passed has to be estimated again.
///
/// A declared run time counts until the job has run for that long. After that, and where none is declared, the run
/// time counts that was expected when it was last estimated.
pub(crate) fn expected_end(job: &Job, now: Time) -> Option<Time> {
    let released = job.released.as_deref().filter(|r| r.charged())?;
    let begun = released.begun();
    let declared = job.duration.map(|millis| begun.after(millis.max(1)));
    let expected = released.expected_ms.map(|millis| begun.after(millis));
    let later = declared.filter(|end| *end > now);
    later.or(expected).or(declared)
}
