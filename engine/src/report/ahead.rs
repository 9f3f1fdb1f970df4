//! The jobs ahead of a pending job: for users only, not for decisions.
//!
//! They come from the order and the predictions on which decisions rest. In a long queue only the first
//! jobs are summed and the others are assumed to be similar, so that the cost is bounded.

use crate::api::decision::Ahead;
use crate::jobs::job::Job;
use crate::state::Inputs;
use facts::{QueueName, Resources};

/// The most jobs ahead whose work is summed.
pub(super) const SUMMED: usize = 1_000;

/// Sums over the first jobs of a queue.
#[derive(Default)]
struct WorkAhead {
    devices: i128,
    device_seconds: i128,
}

impl WorkAhead {
    fn add(&mut self, job: &Job, total: &Resources) {
        let devices = devices(total);
        let seconds = job.forecast.and_then(|forecast| forecast.mean);
        self.devices += devices;
        self.device_seconds += devices * i128::from(seconds.unwrap_or_default());
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

/// The jobs ahead of the one at `position` of its queue.
pub(crate) fn ahead_of(inputs: Inputs<'_>, queue: &QueueName, position: usize) -> Ahead {
    let jobs = position.saturating_sub(1);
    let work = work_ahead(inputs, queue, jobs.min(SUMMED));
    let (devices, device_seconds) = work.scaled(jobs, jobs.min(SUMMED));
    Ahead {
        jobs: u32::try_from(jobs).unwrap_or(u32::MAX),
        devices,
        device_seconds,
    }
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

/// The number of devices in `resources`.
fn devices(resources: &Resources) -> i128 {
    let named = resources.iter().filter(|(name, _)| name.is_device());
    named.map(|(_, amount)| i128::from(amount.0)).sum()
}
