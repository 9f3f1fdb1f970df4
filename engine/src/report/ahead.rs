//! Who stands before a waiting job, and when it may start: for people only.
//!
//! Read from the same line, forecasts and reservations that decisions rest on. Of a long line
//! only the first are summed and the rest taken to be like them, so that asking for the last
//! of a million costs no more than for the thousandth. No decision is ever taken from this.

use crate::amounts::resources::Resources;
use crate::api::decision::{Ahead, StartRange};
use crate::api::ids::{QueueName, Time};
use crate::api::job::QueueOrder;
use crate::jobs::job::Job;
use crate::state::Inputs;

/// Of so many jobs ahead the work is summed; beyond, what they ask for on average.
const SUMMED: usize = 1_000;

/// Sums over the first jobs of a line.
#[derive(Default)]
struct WorkAhead {
    devices: i128,
    device_seconds: i128,
    /// Jobs whose run time is not known.
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

    /// As if all `jobs` were like the `summed` first.
    fn scaled(&self, jobs: usize, summed: usize) -> (i64, i64) {
        let scale = |sum: i128| {
            let jobs = i128::try_from(jobs).unwrap_or(i128::MAX);
            let summed = i128::try_from(summed.max(1)).unwrap_or(i128::MAX);
            crate::amounts::totals::clamp(sum.saturating_mul(jobs) / summed).0
        };
        (scale(self.devices), scale(self.device_seconds))
    }
}

/// What stands before the job at `position` of its queue's line, and when it is expected
/// to start.
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
        Some(kept) => start_by_ends(inputs, kept.start),
        None => start_by_work(inputs, queue, ahead, &work),
    };
    (ahead, start)
}

fn work_ahead(inputs: Inputs<'_>, queue: &QueueName, most: usize) -> WorkAhead {
    let mut work = WorkAhead::default();
    let ranks = inputs
        .pending
        .queues
        .pending_queue(queue)
        .map(|pending_queue| pending_queue.ranks().iter());
    for rank in ranks.into_iter().flatten().take(most) {
        let Some(job) = inputs.jobs.get(&rank.key) else {
            continue;
        };
        let line = job.derived.line.as_ref();
        if let Some(shape) = line.and_then(|line| inputs.pending.shapes.get(line.shape)) {
            work.add(job, &shape.total);
        }
    }
    work
}

/// Of a job for which what frees is kept: when the ends that it waits for are expected.
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

/// Of a job further behind: when those ahead would be through, on what its queue may use.
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
            "{} jobs ahead, {} device-hours by their expected run times, on {may_use} devices",
            ahead.jobs,
            ahead.device_seconds / 3_600
        )
    } else {
        format!(
            "{} jobs ahead; the run times of some are not known",
            ahead.jobs
        )
    };
    Some(StartRange {
        earliest: inputs.now,
        latest: known.then(|| inputs.now.after(millis)),
        basis,
    })
}

/// Devices that a queue may use at most: its bound, or all there are.
fn devices_of(inputs: Inputs<'_>, queue: &QueueName) -> i128 {
    let bound = devices(&inputs.quota.real_capability(queue));
    let all = devices(&inputs.quota.fleet());
    if bound > 0 { bound.min(all) } else { all }
}

/// All devices that are named.
fn devices(resources: &Resources) -> i128 {
    let named = resources.iter().filter(|(name, _)| name.is_device());
    named.map(|(_, amount)| i128::from(amount.0)).sum()
}
