//! The run time that is predicted for a job.

use crate::forecast::{Prediction, Runner};
use crate::jobs::job::Job;
use crate::state::Inputs;

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
