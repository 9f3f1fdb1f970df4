//! Whether a queued job may be evaluated, its order in its queue, and the shape of its request.

use crate::api::facts::QueueOrdering;
use crate::api::ids::{JobKey, QueueName};
use crate::api::job::{PredictedRunTime, QueueOrder};
use crate::api::reason::Reason;
use crate::jobs::ageing;
use crate::jobs::job::Job;
use crate::jobs::runtime::stopped;
use crate::pending::shapes::RequestShape;
use crate::state::Inputs;
use std::cmp::Reverse;
use std::sync::Arc;

/// Why a queued job is not pending, if it is not, apart from its back-off and its queue.
pub(crate) fn obstacle(inputs: Inputs<'_>, job: &Job) -> Option<(Reason, String)> {
    if let Some(hold) = &job.cold.hold {
        return Some((hold.reason, hold.message.clone()));
    }
    if let Some(stopped) = stopped(&inputs.quota, job) {
        return Some(stopped);
    }
    let Some(demand) = &job.demand else {
        let message = "its template has not been seen yet".to_owned();
        return Some((Reason::NotEvaluated, message));
    };
    if let Some(class) = job
        .priority_class
        .as_ref()
        .filter(|_| inputs.jobs.priority_of(job).is_none())
    {
        let message = format!("priority class {class} does not exist; create it or name another");
        return Some((Reason::PriorityClassNotFound, message));
    }
    if demand.total().is_none() {
        let message = "what its pods request together is too large to be counted".to_owned();
        return Some((Reason::InvalidTemplate, message));
    }
    None
}

/// The sort key of a job in its queue.
pub(crate) fn rank_of(inputs: Inputs<'_>, key: &JobKey, job: &Job) -> QueueOrder {
    QueueOrder {
        priority: Reverse(ageing::priority(&inputs.jobs, &inputs.quota, job)),
        at: ordered_at(inputs, job),
        key: key.clone(),
    }
}

/// The time by which a job is ordered in its queue: when it was queued, to which
/// `ShortestPredicted` adds a multiple of its predicted run time. So no job is passed by one that
/// was queued later by more than that multiple.
fn ordered_at(inputs: Inputs<'_>, job: &Job) -> crate::Time {
    if inputs.quota.ordering(&job.queue) != QueueOrdering::ShortestPredicted {
        return job.queued_at;
    }
    let predicted = job.forecast.and_then(PredictedRunTime::mean_ms);
    let predicted = predicted.unwrap_or(inputs.config.assumed_runtime_ms);
    let later = predicted.saturating_mul(i64::from(inputs.config.ageing));
    job.queued_at.after(later)
}

/// The queue, sort key and shape with which a job is pending; `None` if it is not. A back-off ends
/// with its timer.
pub(crate) fn place_of(
    inputs: Inputs<'_>,
    key: &JobKey,
    job: &Job,
) -> Option<(QueueName, QueueOrder, RequestShape)> {
    let waits = job.released.is_none()
        && job.cold.back_off_until.is_none()
        && obstacle(inputs, job).is_none();
    let demand = job.demand.as_ref().filter(|_| waits)?;
    let shape = RequestShape {
        demand: Arc::clone(demand),
        total: demand.total()?,
        user: inputs
            .quota
            .counts_users(&job.queue)
            .then(|| Arc::clone(&job.user)),
        duration: job
            .duration
            .or_else(|| job.forecast.and_then(PredictedRunTime::high_ms)),
        max_clusters: max_clusters(inputs, &job.queue),
        avoid: job.cold.avoid.keys().cloned().collect(),
        preempts: inputs.jobs.preempts(job),
    };
    Some((job.queue.clone(), rank_of(inputs, key, job), shape))
}

/// The most clusters of one job, from the policy of `queue`.
pub(crate) fn max_clusters(inputs: Inputs<'_>, queue: &QueueName) -> Option<u32> {
    inputs.quota.policy(queue)?.max_clusters
}
