//! The run time that is predicted for a job, and the one that is expected of a running job.

use crate::forecast::{Prediction, Runner, half_again};
use crate::jobs::job::Job;
use crate::state::Inputs;

/// A job is expected to run for so many milliseconds more at least.
const LEAST_MS: i64 = 500;

/// The run time that a job declares, else that of similar jobs, at most its queue's limit. `None`
/// if nothing is known.
pub(crate) fn predict(inputs: Inputs<'_>, job: &Job) -> Option<Prediction> {
    let (demand, queue) = (job.demand.as_deref()?, job.queue_now());
    let known = || {
        inputs
            .forecast
            .predict(&Runner::new(queue, &job.user, demand))
    };
    let prediction = job.duration.map(Prediction::declared).or_else(known)?;
    let limit = inputs.quota.runtime_limit(queue);
    Some(limit.map_or(prediction, |(limit, _)| prediction.at_most(limit)))
}

/// How long a job that has run for `elapsed` milliseconds is expected to run in all, at most its queue's limit.
///
/// Three of four similar runs that took longer than that had ended by then. Where fewer than two did, it is half as
/// long again as the job has run. `None` if no run of any job is known and it declares none.
pub(crate) fn expected_run(inputs: Inputs<'_>, job: &Job, elapsed: i64) -> Option<i64> {
    let queue = job.queue_now();
    let runner = job.demand.as_deref();
    let runner = runner.map(|demand| Runner::new(queue, &job.user, demand));
    let known = runner.and_then(|runner| inputs.forecast.expected(&runner, elapsed));
    let declared = job.duration.map(|_| half_again(elapsed));
    let expected = known.or(declared)?;
    let limit = inputs.quota.runtime_limit(queue);
    let expected = limit.map_or(expected, |(limit, _)| expected.min(limit));
    Some(expected.max(elapsed.saturating_add(LEAST_MS)))
}
