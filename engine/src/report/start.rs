//! When a pending job may start: an estimate for users, never for decisions.
//!
//! The running jobs end as predicted, and the jobs ahead start in their order as soon as enough is free. This
//! is computed for each queue on the path that has a bound, and for the fleet, in the resource that the job
//! is best known by; the latest of these starts counts. A job with a reservation starts as the reservation
//! says. What this leaves out (nodes, other queues, jobs that pass each other, jobs yet to come) shows in how
//! past estimates erred, and [`crate::forecast::StartForecasts`] makes a range of that.

use crate::api::decision::{EstimateSource, StartEstimate};
use crate::capacity::leading;
use crate::jobs::job::{Job, PendingEntry};
use crate::quota::ROOT;
use crate::report::ahead::SUMMED;
use crate::resources::ResourceName;
use crate::state::Inputs;
use facts::{JobKey, QueueName, counted};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The most running jobs whose ends are read. Those that are left out are taken to stay.
const ENDS: usize = 4_096;

/// A job that runs: in how many milliseconds it should end, what it gives back then, and its queue.
struct RunningJob<'a> {
    ends_in: i64,
    amount: i64,
    queue: &'a QueueName,
}

/// A job ahead: what it needs, and for how many milliseconds, if that is known.
struct WaitingJob {
    amount: i64,
    runs: Option<i64>,
}

/// The estimate for a pending job; `None` if it is not pending, or could not start whatever ends.
pub(crate) fn estimate(inputs: Inputs<'_>, key: &JobKey) -> Option<StartEstimate> {
    let line = inputs.jobs.line_of(key)?;
    let job = inputs.jobs.get(key)?;
    let shape = inputs.pending.shapes.get(line.shape)?;
    if inputs.quota.problem(&line.queue).is_some() {
        return None;
    }
    let resource = leading(&shape.total)?;
    let amount = shape.total.amount_of(resource).0;
    let said = |source, wait_ms, basis| {
        Some(StartEstimate {
            queue: line.queue.clone(),
            amount,
            waited_ms: inputs.now.millis_since(job.queued_at),
            source,
            wait_ms,
            basis,
        })
    };
    let reserved = inputs.reservations.of(key);
    if let Some(start) = reserved.and_then(|reserved| reserved.start) {
        let wait = start.millis_since(inputs.now);
        let basis =
            "what becomes free is reserved for it, by the expected ends of running jobs".to_owned();
        return said(EstimateSource::Reservation, Some(wait), basis);
    }
    let (position, ahead) = jobs_ahead(inputs, line, resource);
    let running = running(inputs, resource);
    let waits = waits(inputs, line, (resource, amount), &ahead, &running)?;
    let beyond = position.saturating_sub(1).saturating_sub(ahead.len());
    let wait = waits.map(|wait| scaled(wait, ahead.len(), beyond));
    let counts = format!(
        "{} ahead and {} running",
        counted(position.saturating_sub(1), "job"),
        running.len()
    );
    match wait {
        Some(wait) => said(
            EstimateSource::Work,
            Some(wait),
            format!("{counts}, by their expected run times"),
        ),
        None => said(
            EstimateSource::Unknown,
            None,
            format!("{counts}; too few of their run times are known"),
        ),
    }
}

/// The position of a pending job, and the first jobs ahead of it.
fn jobs_ahead(
    inputs: Inputs<'_>,
    line: &PendingEntry,
    resource: &ResourceName,
) -> (usize, Vec<WaitingJob>) {
    let Some(pending_queue) = inputs.pending.queues.pending_queue(&line.queue) else {
        return (1, Vec::new());
    };
    let ranks = pending_queue.ranks();
    let position = ranks.position(&line.rank).unwrap_or(1);
    let first = ranks.iter().take(position.saturating_sub(1).min(SUMMED));
    let waiting = first.filter_map(|rank| {
        let job = inputs.jobs.get(&rank.key)?;
        let entry = job.derived.line.as_ref()?;
        let shape = inputs.pending.shapes.get(entry.shape)?;
        Some(WaitingJob {
            amount: shape.total.amount_of(resource).0,
            runs: expected_run(job),
        })
    });
    (position, waiting.collect())
}

/// The run time that is expected of a job: declared, or the mean of similar ones.
fn expected_run(job: &Job) -> Option<i64> {
    let predicted = job.forecast.and_then(|forecast| forecast.mean_ms());
    job.duration.or(predicted)
}

/// The charged jobs whose ends are expected.
fn running<'a>(inputs: Inputs<'a>, resource: &ResourceName) -> Vec<RunningJob<'a>> {
    let ends = inputs.jobs.ends_after(inputs.now).take(ENDS);
    let jobs = ends.filter_map(|(_, key)| {
        let job = inputs.jobs.get(key)?;
        let released = job.released.as_deref()?;
        let (queue, pools) = job.derived.has.charge.as_ref()?;
        let charges = pools.values().map(|charge| charge.amount_of(resource).0);
        let expected = expected_run(job).or(released.expected_ms)?;
        let elapsed = inputs.now.millis_since(released.begun());
        // A job that has run longer than expected is taken to run as long again.
        let left = if elapsed < expected {
            expected - elapsed
        } else {
            elapsed
        };
        Some(RunningJob {
            ends_in: left.max(1),
            amount: charges.sum(),
            queue,
        })
    });
    jobs.filter(|job| job.amount > 0).collect()
}

/// After how many milliseconds the job would start by each bound, the longest of them: `None` if it exceeds
/// one, `Some(None)` if that depends on ends that are not known.
fn waits(
    inputs: Inputs<'_>,
    line: &PendingEntry,
    (resource, amount): (&ResourceName, i64),
    ahead: &[WaitingJob],
    running: &[RunningJob<'_>],
) -> Option<Option<i64>> {
    let mut longest = Some(0);
    for queue in inputs.quota.path(&line.queue) {
        let bound = inputs.quota.real_capability(&queue);
        let bound = bound.iter().find(|(name, _)| *name == resource);
        let bound = bound.map(|(_, amount)| amount.0);
        let fleet = (queue.as_str() == ROOT).then(|| inputs.quota.fleet().amount_of(resource).0);
        let Some(most) = bound.into_iter().chain(fleet).min() else {
            continue;
        };
        if amount > most {
            return None;
        }
        let charged = inputs.quota.charged(&queue).amount_of(resource).0;
        let within = running.iter();
        let within = within.filter(|job| inputs.quota.is_within(job.queue, &queue));
        let wait = starts_after(most, charged, within, ahead, amount);
        longest = longest.zip(wait).map(|(one, other)| one.max(other));
    }
    Some(longest)
}

/// After how many milliseconds `amount` is free, if the jobs ahead start in their order.
fn starts_after<'a>(
    most: i64,
    charged: i64,
    running: impl Iterator<Item = &'a RunningJob<'a>>,
    ahead: &[WaitingJob],
    amount: i64,
) -> Option<i64> {
    let mut free = most.saturating_sub(charged);
    let mut ends: BinaryHeap<Reverse<(i64, i64)>> = running
        .map(|job| Reverse((job.ends_in, job.amount)))
        .collect();
    let mut now = 0_i64;
    let own = WaitingJob { amount, runs: None };
    let fits = ahead.iter().filter(|job| job.amount <= most);
    for job in fits.chain([&own]) {
        while free < job.amount {
            let Reverse((end, freed)) = ends.pop()?;
            now = now.max(end);
            free = free.saturating_add(freed);
        }
        free -= job.amount;
        if let Some(runs) = job.runs {
            ends.push(Reverse((now.saturating_add(runs), job.amount)));
        }
    }
    Some(now)
}

/// A wait behind `known` jobs, if `beyond` more like them are ahead.
fn scaled(wait: i64, known: usize, beyond: usize) -> i64 {
    let all = i128::try_from(known + beyond).unwrap_or(i128::MAX);
    let known = i128::try_from(known.max(1)).unwrap_or(i128::MAX);
    match beyond {
        0 => wait,
        _ => i64::try_from(i128::from(wait).saturating_mul(all) / known).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(amount: i64, runs: Option<i64>) -> WaitingJob {
        WaitingJob { amount, runs }
    }

    #[test]
    fn jobs_start_in_their_order_as_running_ones_end() {
        let queue = QueueName::from("q");
        let job = |ends_in, amount| RunningJob {
            ends_in,
            amount,
            queue: &queue,
        };
        let running = [job(100, 4), job(50, 2), job(300, 2)];
        let after =
            |ahead: &[WaitingJob], amount| starts_after(8, 8, running.iter(), ahead, amount);
        assert_eq!(after(&[], 2), Some(50));
        assert_eq!(after(&[], 6), Some(100));
        assert_eq!(after(&[], 8), Some(300));
        // Two run for 10, then the next two fit, and so on.
        assert_eq!(
            after(&[waiting(2, Some(10)), waiting(2, Some(10))], 2),
            Some(70)
        );
        // It never gives back what it takes: the others must do.
        assert_eq!(after(&[waiting(2, None)], 2), Some(100));
        assert_eq!(after(&[waiting(4, None), waiting(4, None)], 1), None);
        // A job that never fits holds up none.
        assert_eq!(after(&[waiting(9, Some(10))], 2), Some(50));
        assert_eq!(starts_after(8, 5, running.iter(), &[], 3), Some(0));
    }

    #[test]
    fn long_queues_are_scaled() {
        assert_eq!(scaled(100, 0, 0), 100);
        assert_eq!(scaled(1_000, 1_000, 9_000), 10_000);
        assert_eq!(scaled(i64::MAX, 1, 1), i64::MAX);
    }
}
