//! The metrics of faults: what they cost, and how long recoveries took.
//!
//! The effective training time ratio (ETTR) of a job is its run time without faults over the time from
//! its first start to its end.

use crate::faults::{FaultRecord, JobFaultRecord};
use crate::metrics::Distribution;
use crate::record::RunRecord;
use crate::scenario::Scenario;
use serde::Serialize;

/// The metrics of faults. Times are in seconds, amounts in devices (cores if there are no devices).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultMetrics {
    /// Nodes that were lost.
    pub nodes_lost: u64,
    /// Devices that failed.
    pub device_faults: u64,
    /// Jobs that ended and were hit by a fault.
    pub jobs_hit: usize,
    /// Their share of all jobs that ended.
    pub jobs_hit_share: f64,
    /// How often jobs went on in the same attempt.
    pub in_place: u64,
    /// How often jobs that faults had stopped were evicted.
    pub evicted: usize,
    /// Device-hours of work that faults destroyed.
    pub lost_hours: f64,
    /// Device-hours in which jobs waited for their recovery.
    pub recovering_hours: f64,
    /// Device-hours in which jobs started again and did no new work.
    pub restarting_hours: f64,
    /// From when the engine received a loss to the eviction.
    pub seen_to_evicted: Distribution,
    /// From when all of an evicted job was gone until it ran again.
    pub gone_to_running: Distribution,
    /// From a fault until the job ran again.
    pub fault_to_running: Distribution,
    /// The ETTR of all jobs that ended.
    pub ettr: RatioRange,
    /// The ETTR of those that were hit.
    pub ettr_of_hit: RatioRange,
    /// The largest job that ended; the first of equal ones.
    pub largest: Option<JobFaultMetrics>,
    /// By how much longer all jobs took from their first start to their end than their run times, as a
    /// share of these.
    pub added_run_time: f64,
    /// The same of the jobs that were hit.
    pub added_run_time_of_hit: f64,
    /// Pods that were placed.
    pub placed: u64,
    /// Pods that were placed on a node known to be out of service.
    pub misplaced: u64,
    /// The jobs that were hit, in the scenario's order.
    pub jobs: Vec<JobFaultMetrics>,
}

/// The average, the median and the minimum of ETTRs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RatioRange {
    /// The average.
    pub average: f64,
    /// The median.
    pub p50: f64,
    /// The minimum.
    pub min: f64,
}

/// What faults cost one job.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobFaultMetrics {
    /// The job.
    pub job: String,
    /// The sum of its pods' requests.
    pub size: f64,
    /// How often it was admitted.
    pub attempts: u32,
    /// The faults that hit it.
    pub faults: u32,
    /// Device-hours of work that were lost.
    pub lost_hours: f64,
    /// The time from faults until it ran again.
    pub recovering: f64,
    /// The time in which it started again and did no new work.
    pub restarting: f64,
    /// Its run time over the time from its first start to its end.
    pub ettr: f64,
}

/// A job that ended.
struct Ran {
    wall_ms: i64,
    run_ms: i64,
    metrics: JobFaultMetrics,
}

impl FaultMetrics {
    /// Computes the metrics of a run with faults.
    #[must_use]
    pub fn of(scenario: &Scenario, record: &RunRecord, faults: &FaultRecord) -> Self {
        let hours = |own: fn(&JobFaultRecord) -> i64| {
            let jobs = faults.jobs.iter().zip(&record.jobs);
            let sum: i128 = jobs
                .map(|(job, record)| i128::from(own(job)) * i128::from(record.size))
                .sum();
            sum as f64 / 3.6e9
        };
        let ran = ran(scenario, record, faults);
        let hit = || ran.iter().filter(|job| job.metrics.faults > 0);
        let times = &faults.times;
        Self {
            nodes_lost: faults.nodes_lost,
            device_faults: faults.device_faults,
            jobs_hit: hit().count(),
            jobs_hit_share: hit().count() as f64 / ran.len().max(1) as f64,
            in_place: faults.jobs.iter().map(|job| u64::from(job.in_place)).sum(),
            evicted: times.seen_to_evicted.len(),
            lost_hours: faults.jobs.iter().map(|job| job.lost).sum::<i128>() as f64 / 3.6e9,
            recovering_hours: hours(|job| job.recovering_ms),
            restarting_hours: hours(|job| job.restarting_ms),
            seen_to_evicted: Distribution::of_millis(times.seen_to_evicted.iter().copied()),
            gone_to_running: Distribution::of_millis(times.gone_to_running.iter().copied()),
            fault_to_running: Distribution::of_millis(times.fault_to_running.iter().copied()),
            ettr: RatioRange::of(ran.iter()),
            ettr_of_hit: RatioRange::of(hit()),
            largest: largest(&ran).cloned(),
            added_run_time: added(ran.iter()),
            added_run_time_of_hit: added(hit()),
            placed: faults.placed,
            misplaced: faults.misplaced,
            jobs: hit().map(|job| job.metrics.clone()).collect(),
        }
    }
}

/// The jobs that ended, in the scenario's order.
fn ran(scenario: &Scenario, record: &RunRecord, faults: &FaultRecord) -> Vec<Ran> {
    let jobs = scenario.jobs.iter().zip(&record.jobs).zip(&faults.jobs);
    jobs.filter_map(|((sim, job), own)| {
        let wall_ms = job.finished?.millis_since(job.started?);
        let metrics = JobFaultMetrics {
            job: sim.fact.key.to_string(),
            size: job.size as f64 / 1000.0,
            attempts: own.attempts,
            faults: own.faults,
            lost_hours: own.lost as f64 / 3.6e9,
            recovering: own.recovering_ms as f64 / 1000.0,
            restarting: own.restarting_ms as f64 / 1000.0,
            ettr: sim.run_ms as f64 / wall_ms.max(1) as f64,
        };
        Some(Ran {
            wall_ms,
            run_ms: sim.run_ms,
            metrics,
        })
    })
    .collect()
}

/// The largest job; the first of equal ones.
fn largest(ran: &[Ran]) -> Option<&JobFaultMetrics> {
    let jobs = ran.iter().map(|job| &job.metrics);
    jobs.rev().max_by(|a, b| a.size.total_cmp(&b.size))
}

fn added<'a>(jobs: impl Iterator<Item = &'a Ran>) -> f64 {
    let sums = jobs.fold((0, 0), |(wall, run), job| {
        (wall + i128::from(job.wall_ms), run + i128::from(job.run_ms))
    });
    match sums {
        (_, 0) => 0.0,
        (wall, run) => (wall - run) as f64 / run as f64,
    }
}

impl RatioRange {
    fn of<'a>(jobs: impl Iterator<Item = &'a Ran>) -> Self {
        let mut all: Vec<f64> = jobs.map(|job| job.metrics.ettr).collect();
        all.sort_by(f64::total_cmp);
        let middle = all.len().saturating_sub(1) / 2;
        Self {
            average: all.iter().sum::<f64>() / all.len().max(1) as f64,
            p50: all.get(middle).copied().unwrap_or_default(),
            min: all.first().copied().unwrap_or_default(),
        }
    }
}
