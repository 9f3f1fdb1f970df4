//! The jobs ahead of a pending job, and its expected start: for users only, not for decisions.
//!
//! They come from the order, predictions and reservations on which decisions rest. In a long queue
//! only the first jobs are summed and the others are assumed to be similar, so that the cost is
//! bounded.

use crate::amounts::resources::Resources;
use crate::amounts::texts::counted;
use crate::api::decision::{Ahead, StartRange};
use crate::api::ids::{QueueName, Time};
use crate::api::job::QueueOrder;
use crate::jobs::job::Job;
use crate::state::Inputs;

/// The most jobs ahead whose work is summed.
const SUMMED: usize = 1_000;

/// Sums over the first jobs of a queue.
#[derive(Default)]
struct WorkAhead {
    devices: i128,
    device_seconds: i128,
    /// The number of jobs without a known run time.
    unknown: usize,
}

impl WorkAhead {
    fn add(&mut self, job: &Job, total: &Resources) {
        let devices = devices(total);
        let seconds = job.forecast.and_then(|forecast| forecast.mean);
        self.devices += devices;
        self.device_seconds += devices * i128::from(seconds.unwrap_or_default());
        self.unknown += usize::from(seconds.is_none());
    }

    /// Devices and device-seconds of `jobs` jobs, if all are like the first `summed`.
    fn scaled(&self, jobs: usize, summed: usize) -> (i64, i64) {
        let scale = |sum: i128| {
            let jobs = i128::try_from(jobs).unwrap_or(i128::MAX);
            let summed = i128::try_from(summed.max(1)).unwrap_or(i128::MAX);
            crate::amounts::totals::clamp(sum.saturating_mul(jobs) / summed).0
        };
        (scale(self.devices), scale(self.device_seconds))
    }
}

/// The jobs ahead of the one at `position` of its queue, and its expected start.
pub(crate) fn outlook_of(
    inputs: Inputs<'_>,
    queue: &QueueName,
    rank: &QueueOrder,
    position: usize,
) -> (Ahead, Option<StartRange>) {
    let jobs = position.saturating_sub(1);
    let work = work_ahead(inputs, queue, jobs.min(SUMMED));
    let (devices, device_seconds) = work.scaled(jobs, jobs.min(SUMMED));
    let ahead = Ahead {
        jobs: u32::try_from(jobs).unwrap_or(u32::MAX),
        devices,
        device_seconds,
    };
    let start = match inputs.reservations.of(&rank.key) {
        Some(reservation) => start_by_ends(inputs, reservation.start),
        None => start_by_work(inputs, queue, ahead, &work),
    };
    (ahead, start)
}

/// The work of the first `most` jobs of a queue.
fn work_ahead(inputs: Inputs<'_>, queue: &QueueName, most: usize) -> WorkAhead {
    let mut work = WorkAhead::default();
    let pending_queue = inputs.pending.queues.pending_queue(queue);
    let ranks = pending_queue
        .into_iter()
        .flat_map(|queue| queue.ranks().iter());
    let jobs = ranks
        .take(most)
        .filter_map(|rank| inputs.jobs.get(&rank.key));
    for job in jobs {
        let entry = job.derived.line.as_ref();
        if let Some(shape) = entry.and_then(|entry| inputs.pending.shapes.get(entry.shape)) {
            work.add(job, &shape.total);
        }
    }
    work
}

/// The expected start of a job with a reservation: when the jobs that it waits for should end.
fn start_by_ends(inputs: Inputs<'_>, start: Option<Time>) -> Option<StartRange> {
    let basis = match start {
        Some(_) => {
            "what frees is kept for it; by the ends of running jobs, declared or as long as nine of ten like runs took"
        }
        None => "what frees is kept for it; a run time that it waits for is not known",
    };
    Some(StartRange {
        earliest: inputs.now,
        latest: start.map(|start| start.max(inputs.now)),
        basis: basis.to_owned(),
    })
}

/// The expected start of a job without a reservation: when the jobs ahead would have run on the
/// devices that its queue may use.
fn start_by_work(
    inputs: Inputs<'_>,
    queue: &QueueName,
    ahead: Ahead,
    work: &WorkAhead,
) -> Option<StartRange> {
    let may_use = devices_of(inputs, queue);
    if ahead.jobs == 0 || may_use <= 0 {
        return None;
    }
    let seconds = i128::from(ahead.device_seconds) / may_use;
    let millis = i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
    let known = work.unknown == 0;
    let basis = if known {
        format!(
            "{} ahead, {} device-hours by their expected run times, on {may_use} devices",
            counted(ahead.jobs, "job"),
            ahead.device_seconds / 3_600
        )
    } else {
        format!(
            "{} ahead; the run times of some are not known",
            counted(ahead.jobs, "job")
        )
    };
    Some(StartRange {
        earliest: inputs.now,
        latest: known.then(|| inputs.now.after(millis)),
        basis,
    })
}

/// The number of devices that a queue may use: its capability, at most all of the fleet.
fn devices_of(inputs: Inputs<'_>, queue: &QueueName) -> i128 {
    let bound = devices(&inputs.quota.real_capability(queue));
    let all = devices(&inputs.quota.fleet());
    if bound > 0 { bound.min(all) } else { all }
}

/// The number of devices in `resources`.
fn devices(resources: &Resources) -> i128 {
    let named = resources.iter().filter(|(name, _)| name.is_device());
    named.map(|(_, amount)| i128::from(amount.0)).sum()
}
