//! Whether a queued job may be evaluated, its order in its queue, and the shape of its request.

use crate::api::job::{PredictedRunTime, QueueOrder};
use crate::jobs::ageing;
use crate::jobs::job::Job;
use crate::jobs::runtime::stopped;
use crate::pending::shapes::RequestShape;
use crate::state::Inputs;
use facts::{JobKey, QueueName, QueueOrdering, Reason};
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
        user: inputs.quota.user_in(&job.queue, &job.user),
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
    let apart = apart(inputs, &job.queue);
    let shape = RequestShape {
        demand: Arc::clone(demand),
        total: demand.total()?,
        user: apart.0.then(|| Arc::clone(&job.user)),
        namespace: apart.1.then(|| Arc::clone(&key.namespace)),
        duration: declared(job).or_else(|| job.forecast.and_then(PredictedRunTime::high_ms)),
        max_clusters: max_clusters(inputs, &job.queue),
        avoid: job.cold.avoid.keys().cloned().collect(),
        preempts: inputs.jobs.preempts(job),
    };
    Some((job.queue.clone(), rank_of(inputs, key, job), shape))
}

/// The queue, sort key and shape with which a job is listed as pending.
pub(crate) fn listed_as<'a>(
    inputs: Inputs<'a>,
    job: &'a Job,
) -> Option<(&'a QueueName, &'a QueueOrder, &'a RequestShape)> {
    let entry = job.derived.line.as_ref()?;
    let shape = inputs.pending.shapes.get(entry.shape)?;
    Some((&entry.queue, &entry.rank, shape.as_ref()))
}

/// The declared run time of a job in milliseconds, as it counts: rounded up.
pub(super) fn declared(job: &Job) -> Option<i64> {
    job.duration.map(rounded_up)
}

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// The steps in which declared run times count, in milliseconds.
const STEPS: [i64; 21] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    30 * MINUTE,
    HOUR,
    6 * HOUR,
    24 * HOUR,
];

/// A declared run time in milliseconds as it counts where a job passes reservations: rounded up to a step of at most
/// an eighth of it, as Slurm does with `bf_resolution`. Jobs that each declare a time of their own have few shapes, and
/// what people write (45 minutes, 36 hours) counts as it is.
fn rounded_up(declared: i64) -> i64 {
    let step = STEPS.into_iter().rev().find(|step| *step <= declared / 8);
    let step = step.unwrap_or(1);
    let over = declared.rem_euclid(step);
    match over {
        0 => declared,
        _ => declared.saturating_add(step - over),
    }
}

/// Returns whether the jobs of a queue are evaluated apart by their users, and by their namespaces.
pub(crate) fn apart(inputs: Inputs<'_>, queue: &QueueName) -> (bool, bool) {
    let limited = inputs.quota.limited_owners(queue);
    let users = limited.any_of_users() || inputs.quota.orders_users(queue);
    (users, limited.namespaces)
}

/// The most clusters of one job, from the policy of `queue`.
pub(crate) fn max_clusters(inputs: Inputs<'_>, queue: &QueueName) -> Option<u32> {
    inputs.quota.policy(queue)?.max_clusters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_declare_counts_as_it_is_and_the_rest_is_rounded_up_by_an_eighth_at_most() {
        let written = [
            1,
            7,
            90,
            200,
            250,
            300,
            45 * 60,
            75 * 60,
            5_400,
            36 * 3_600,
            7 * 86_400,
        ]
        .map(|s| s * SECOND);
        assert_eq!(written.map(rounded_up), written);
        let rounded = [3_601, 3_900, 5_401, 28_599].map(|s| rounded_up(s * SECOND) / SECOND);
        assert_eq!(rounded, [3_900, 3_900, 6_000, 28_800]);
        assert_eq!(
            [i64::MIN, -1, 0, i64::MAX].map(rounded_up),
            [i64::MIN, -1, 0, i64::MAX]
        );
        let mut shapes = std::collections::BTreeSet::new();
        for millis in (1..100 * HOUR).step_by(7_919) {
            let rounded = rounded_up(millis);
            assert!(
                (millis..=millis + millis / 8).contains(&rounded),
                "{millis} {rounded}"
            );
            shapes.insert(rounded);
        }
        assert!(shapes.len() < 400, "{}", shapes.len());
    }
}
