//! Which of the jobs that ended a list has.
//!
//! A table is for people and leaves out what ended long ago, as `squeue` does; a program that reads json, yaml or names
//! gets everything, unless it asks for less.

use super::ListedJob;
use crate::args::{Format, JobsCommand};
use jiff::Timestamp;

/// For how long a table shows a job that has ended.
const SHOWN_SECONDS: i64 = 60 * 60;

/// Removes the jobs that ended too long ago. Returns how many were left out that the user did not ask to leave out.
pub(super) fn hide(jobs: &mut Vec<ListedJob>, command: &JobsCommand, now: Timestamp) -> usize {
    let is_table = matches!(command.list.output.format, Format::Table | Format::Wide);
    let wants_ended = command.all || command.filter.status.iter().any(|status| status.is_over());
    let within = match command.since {
        Some(span) => span.seconds(),
        None if wants_ended || !is_table => return 0,
        None => SHOWN_SECONDS,
    };
    let before = jobs.len();
    jobs.retain(|job| ended_seconds_ago(job, now).is_none_or(|ago| ago <= within));
    match command.since {
        Some(_) => 0,
        None => before - jobs.len(),
    }
}

/// Returns how long ago a job ended; nothing of one that goes on, or of which that is not known.
fn ended_seconds_ago(job: &ListedJob, now: Timestamp) -> Option<i64> {
    let finished = job.federation()?.timeline.finished.as_ref();
    let finished = finished.filter(|_| job.status().is_over())?;
    Some(now.as_second() - finished.0.as_second())
}
