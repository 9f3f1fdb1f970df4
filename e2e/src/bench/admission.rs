//! (a) Admission alone: a queue without quota opens for jobs that can then all start at once, while
//! karmada-controller-manager is paused. Measurements of the API server's capacity before and after
//! bracket it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use testbed::KARMADA_CONTROLLER_MANAGER;

use super::QUIET;
use super::cost::{self, CpuCost, Memory, Moment};
use super::load::Batch;
use super::plane::BenchPlane;
use super::raw::{self, Raw};
use super::report::{Milliseconds, middle_rate, per_job, rate, round};
use crate::harness::muster::ProcessRole;

/// The relative difference of the brackets above which the ratio is worthless.
const BRACKETS_DIFFER_AT_MOST: f64 = 0.25;

/// Numbers from submission to the gate.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gated {
    pub(super) jobs: usize,
    /// Templates that the API server accepted per second.
    pub(super) submitted_per_second: f64,
    /// Bindings per second that Karmada's detector created and Muster's webhook gated.
    pub(super) gated_per_second: f64,
    /// Time from the first submission until the last change, including PodGroups and statuses.
    pub(super) at_rest_after_seconds: f64,
    /// All writes of the API server until then.
    pub(super) writes_per_job: BTreeMap<String, f64>,
    pub(super) cost: CpuCost,
}

/// The numbers of admission; see the module.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionResults {
    pub(super) jobs: usize,
    pub(super) raw_before: Raw,
    pub(super) raw_after: Raw,
    /// True if both brackets are close enough for a ratio.
    pub(super) brackets_agree: bool,
    /// Jobs over the time from the queue's patch to the last binding that shows its admission.
    pub(super) admitted_per_second: f64,
    /// The same rate without the first and the last tenth.
    pub(super) middle_per_second: f64,
    /// The rate of admissions over the mean rate of raw patches.
    pub(super) ratio: f64,
    /// The same ratio of rates per CPU that other processes left idle. It corrects for a machine
    /// whose other load differs between the parts.
    pub(super) ratio_by_free_cpu: f64,
    /// Time from the queue's patch to a job's admission.
    pub(super) admitted_after: Milliseconds,
    pub(super) first_after_ms: f64,
    /// Muster's counters from the queue's patch until Muster was at rest.
    pub(super) muster_counted_per_job: BTreeMap<String, f64>,
    /// Writes of the API server in that time, from all clients.
    pub(super) writes_per_job: BTreeMap<String, f64>,
    /// The cost until the last admission.
    pub(super) cost: CpuCost,
    /// The cost until Muster was at rest.
    pub(super) cost_until_rest: CpuCost,
    pub(super) muster_memory: Memory,
}

/// Submits jobs to a closed queue and waits until all are gated and Muster is at rest.
pub(super) async fn gate(plane: &BenchPlane, batch: &Batch, jobs: usize) -> anyhow::Result<Gated> {
    let moment = Moment::now(&plane.testbed);
    let before = plane.api_writes().await?;
    let start = Instant::now();
    let submitting = batch.submit(plane, 0..jobs).await?;
    let gated = plane
        .all(&batch.name, jobs, "gated", |sighting| sighting.gated)
        .await?;
    plane.rest(QUIET).await?;
    let at_rest = start.elapsed().saturating_sub(QUIET);
    Ok(Gated {
        jobs,
        submitted_per_second: rate(jobs, submitting),
        gated_per_second: rate(jobs, since(start, &gated)),
        at_rest_after_seconds: round(at_rest.as_secs_f64()),
        writes_per_job: per_job(&plane.api_writes().await?.since(&before), jobs),
        cost: moment.cost(&plane.testbed),
    })
}

/// Opens the queue of gated jobs and measures. Afterwards karmada-controller-manager is resumed.
pub(super) async fn measure(
    plane: &BenchPlane,
    batch: &Batch,
    jobs: usize,
) -> anyhow::Result<AdmissionResults> {
    plane.testbed.pause(KARMADA_CONTROLLER_MANAGER)?;
    let measured = open(plane, batch, jobs).await;
    plane.testbed.resume(KARMADA_CONTROLLER_MANAGER)?;
    measured
}

async fn open(plane: &BenchPlane, batch: &Batch, jobs: usize) -> anyhow::Result<AdmissionResults> {
    let raw_before = raw_alone(plane, batch, "before").await?;
    let (counted, written) = (plane.muster_counters().await?, plane.api_writes().await?);
    let moment = Moment::now(&plane.testbed);
    let start = Instant::now();
    batch.capability(plane, jobs).await?;
    let admitted = plane
        .all(&batch.name, jobs, "admitted", |sighting| sighting.admitted)
        .await?;
    let cost = moment.cost(&plane.testbed);
    plane.rest(QUIET).await?;
    let cost_until_rest = moment.cost(&plane.testbed);
    let muster_counted_per_job = per_job(&plane.muster_counters().await?.since(&counted), jobs);
    let writes_per_job = per_job(&plane.api_writes().await?.since(&written), jobs);
    let muster_memory = cost::memory(&plane.testbed, ProcessRole::All.process());
    let raw_after = raw_alone(plane, batch, "after").await?;

    let admitted_per_second = rate(jobs, since(start, &admitted));
    let raw = f64::midpoint(raw_before.per_second, raw_after.per_second);
    let free = |rate: f64, cost: &CpuCost| rate / cost.left_by_others();
    let raw_free = f64::midpoint(
        free(raw_before.per_second, &raw_before.cost),
        free(raw_after.per_second, &raw_after.cost),
    );
    let differ = (raw_before.per_second - raw_after.per_second).abs() / raw;
    let after: Vec<Duration> = admitted.iter().map(|at| *at - start).collect();
    Ok(AdmissionResults {
        jobs,
        brackets_agree: differ <= BRACKETS_DIFFER_AT_MOST,
        admitted_per_second,
        middle_per_second: middle_rate(&admitted),
        ratio: round(admitted_per_second / raw),
        ratio_by_free_cpu: round(free(admitted_per_second, &cost) / raw_free),
        first_after_ms: after
            .first()
            .map_or(0.0, |time| super::report::milliseconds(*time)),
        admitted_after: Milliseconds::of(after),
        muster_counted_per_job,
        writes_per_job,
        cost,
        cost_until_rest,
        muster_memory,
        raw_before,
        raw_after,
    })
}

/// Measures raw patches with Muster paused, and then waits until Muster is at rest again, even if
/// it lost its Lease meanwhile.
async fn raw_alone(plane: &BenchPlane, batch: &Batch, round: &str) -> anyhow::Result<Raw> {
    let muster = ProcessRole::All.process();
    plane.testbed.pause(muster)?;
    let raw = raw::patch_all(plane, &batch.name, round).await;
    plane.testbed.resume(muster)?;
    // Muster needs time to notice that it lost the Lease before its readiness is checked.
    tokio::time::sleep(QUIET).await;
    plane.rest(QUIET).await?;
    raw
}

/// Returns the time from the start to the last event.
fn since(start: Instant, times: &[Instant]) -> Duration {
    times.last().map_or(Duration::ZERO, |last| *last - start)
}
