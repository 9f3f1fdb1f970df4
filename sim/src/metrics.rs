//! The metrics of a run.
//!
//! Completion time is from arrival to end. Wait is the part of it in which the job was not
//! admitted. Utilization is counted in the arrival window only, since after the last arrival a
//! fleet empties under every scheduler.

use crate::fault_metrics::FaultMetrics;
use crate::record::{Decided, Measure, RunRecord};
use crate::run::RunOutcome;
use crate::scenario::Scenario;
use crate::starts::StartAccuracy;
use serde::Serialize;
use std::collections::BTreeMap;

/// The shortest run time that the bounded slowdown divides by.
const SLOWDOWN_FLOOR_MS: i64 = 10_000;
/// The size, in thousandths of devices (cores), from which a job counts as big.
const BIG: i64 = 8_000;

/// Count, average and quantiles of durations in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Distribution {
    /// The number of values.
    pub count: usize,
    /// The average.
    pub average: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

/// The metrics of a run. Times are in seconds, amounts in devices (cores if there are no devices).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunMetrics {
    /// The unit of amounts.
    pub measure: Measure,
    /// Jobs that arrived.
    pub jobs: usize,
    /// Jobs that ended.
    pub finished: usize,
    /// Jobs that never started.
    pub never_started: usize,
    /// Time from the first arrival to the last end.
    pub makespan: f64,
    /// Time from arrival to end.
    pub completion: Distribution,
    /// Time from arrival to end in which the job was not admitted.
    pub wait: Distribution,
    /// The wait of jobs of at least 8 devices.
    pub wait_big: Distribution,
    /// Completion time over run time, where a run counts as at least 10 s.
    pub slowdown: Distribution,
    /// The used share of the capacity, from the first to the last arrival.
    pub use_in_window: f64,
    /// The share of free devices that the job mix cannot use, averaged over the arrival window.
    pub fragmentation: f64,
    /// Jain's index of the ratio of use to fair share, averaged over the arrival window.
    pub jain: Option<f64>,
    /// The share of the capacity by which queues differ from their fair shares, averaged over the
    /// arrival window.
    pub unfairness: f64,
    /// The maximum of `unfairness`.
    pub unfairness_max: f64,
    /// Device-hours of work that were lost to evictions.
    pub lost_hours: f64,
    /// Device-hours of all work.
    pub work_hours: f64,
    /// Jobs that were split over several clusters.
    pub splits: usize,
    /// The most clusters that one job used.
    pub most_clusters: u32,
    /// Decisions by kind.
    pub decisions: Decided,
    /// Waits by job size.
    pub wait_by_size: Vec<SizeWait>,
    /// Metrics by queue.
    pub queues: Vec<QueueMetrics>,
    /// How expected starts fared, by the wait so far; empty if jobs were not asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<StartAccuracy>,
    /// Metrics of faults; `None` in a run without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultMetrics>,
}

/// The wait of jobs of similar size.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SizeWait {
    /// The range of sizes: `1`, `2`, `3-4`, ...
    pub size: String,
    /// Their wait.
    pub wait: Distribution,
}

/// The metrics of one queue's jobs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueMetrics {
    /// The queue.
    pub name: String,
    /// Completion times of its jobs.
    pub completion: Distribution,
    /// Waits of its jobs.
    pub wait: Distribution,
    /// The average use over the arrival window.
    pub in_use: f64,
}

impl Distribution {
    /// Converts milliseconds to a spread in seconds.
    pub(crate) fn of_millis(millis: impl IntoIterator<Item = i64>) -> Self {
        Self::of(millis.into_iter().map(|millis| millis as f64 / 1000.0))
    }

    fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut all: Vec<f64> = values.into_iter().collect();
        all.sort_by(f64::total_cmp);
        let rank = |permille: usize| {
            let last = all.len().saturating_sub(1);
            all.get(last * permille / 1000).copied().unwrap_or_default()
        };
        Self {
            count: all.len(),
            average: all.iter().sum::<f64>() / all.len().max(1) as f64,
            p50: rank(500),
            p99: rank(990),
            max: rank(1000),
        }
    }
}

/// A job that ended.
struct Done<'a> {
    completion_ms: i64,
    waited_ms: i64,
    run_ms: i64,
    size: i64,
    queue: &'a str,
}

impl RunMetrics {
    /// Computes the metrics of a run.
    #[must_use]
    pub fn of(scenario: &Scenario, outcome: &RunOutcome) -> Self {
        let record = &outcome.record;
        let done = done(scenario, record);
        let (first, last) = scenario.window().unwrap_or_default();
        let window = last.millis_since(first).max(1);
        let samples: Vec<_> = record.samples.iter().filter(|s| s.at <= last).collect();
        let mean = |of: &dyn Fn(&crate::record::Sample) -> Option<f64>| {
            let values: Vec<f64> = samples.iter().filter_map(|sample| of(sample)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let hours = |thousandth_ms: i128| thousandth_ms as f64 / 1000.0 / 3_600_000.0;
        let work = scenario.jobs.iter().zip(&record.jobs);
        let work = work.map(|(job, record)| i128::from(job.run_ms) * i128::from(record.size));
        let capacity = record.capacity.max(1) as f64;
        let ends = record.jobs.iter().filter_map(|job| job.finished);
        let end = ends.max().unwrap_or(first);
        Self {
            measure: record.measure,
            jobs: scenario.jobs.len(),
            finished: done.len(),
            never_started: record
                .jobs
                .iter()
                .filter(|job| job.started.is_none())
                .count(),
            makespan: end.millis_since(first) as f64 / 1000.0,
            completion: Distribution::of_millis(done.iter().map(|job| job.completion_ms)),
            wait: Distribution::of_millis(done.iter().map(|job| job.waited_ms)),
            wait_big: Distribution::of_millis(
                done.iter()
                    .filter(|job| job.size >= BIG)
                    .map(|job| job.waited_ms),
            ),
            slowdown: Distribution::of(done.iter().map(Done::slowdown)),
            use_in_window: record.used_in_window as f64 / capacity / window as f64,
            fragmentation: mean(&|sample| Some(sample.unusable)).unwrap_or_default(),
            jain: mean(&|sample| sample.jain),
            unfairness: mean(&|sample| Some(sample.unfair)).unwrap_or_default(),
            unfairness_max: samples.iter().map(|s| s.unfair).fold(0.0, f64::max),
            lost_hours: hours(record.jobs.iter().map(|job| job.lost).sum()),
            work_hours: hours(work.sum()),
            splits: record.jobs.iter().filter(|job| job.clusters > 1).count(),
            most_clusters: record
                .jobs
                .iter()
                .map(|job| job.clusters)
                .max()
                .unwrap_or(0),
            decisions: record.decisions,
            wait_by_size: by_size(&done),
            queues: by_queue(scenario, &done, &samples),
            starts: outcome.starts.clone(),
            faults: outcome
                .faults
                .as_ref()
                .map(|faults| FaultMetrics::of(scenario, record, faults)),
        }
    }
}

fn done<'a>(scenario: &'a Scenario, record: &RunRecord) -> Vec<Done<'a>> {
    let jobs = scenario.jobs.iter().zip(&record.jobs);
    jobs.filter_map(|(job, record)| {
        Some(Done {
            completion_ms: record.finished?.millis_since(job.fact.queued_at),
            waited_ms: record.waited_ms,
            run_ms: job.run_ms,
            size: record.size,
            queue: job.fact.queue.as_str(),
        })
    })
    .collect()
}

impl Done<'_> {
    fn slowdown(&self) -> f64 {
        let bounded = self.run_ms.max(SLOWDOWN_FLOOR_MS);
        (self.completion_ms as f64 / bounded as f64).max(1.0)
    }
}

/// Groups jobs by size in powers of two: up to 1, 2, 4, ... devices.
fn by_size(done: &[Done<'_>]) -> Vec<SizeWait> {
    let mut groups = BTreeMap::<u64, Vec<i64>>::new();
    for job in done {
        let whole = u64::try_from(job.size).unwrap_or(0).div_ceil(1000).max(1);
        let bucket = whole.next_power_of_two();
        groups.entry(bucket).or_default().push(job.waited_ms);
    }
    let size = |bucket: u64| match bucket {
        1 | 2 => bucket.to_string(),
        _ => format!("{}-{bucket}", bucket / 2 + 1),
    };
    groups
        .into_iter()
        .map(|(bucket, waits)| SizeWait {
            size: size(bucket),
            wait: Distribution::of_millis(waits),
        })
        .collect()
}

fn by_queue(
    scenario: &Scenario,
    done: &[Done<'_>],
    samples: &[&crate::record::Sample],
) -> Vec<QueueMetrics> {
    let mut of_queue = BTreeMap::<&str, Vec<&Done<'_>>>::new();
    for job in done {
        of_queue.entry(job.queue).or_default().push(job);
    }
    let queues = scenario.queues.queues.iter().enumerate();
    queues
        .filter_map(|(index, queue)| {
            let jobs = of_queue.get(queue.name.as_str())?;
            let used: i64 = samples.iter().map(|sample| sample.queues[index]).sum();
            Some(QueueMetrics {
                name: queue.name.to_string(),
                completion: Distribution::of_millis(jobs.iter().map(|job| job.completion_ms)),
                wait: Distribution::of_millis(jobs.iter().map(|job| job.waited_ms)),
                in_use: used as f64 / 1000.0 / samples.len().max(1) as f64,
            })
        })
        .collect()
}
