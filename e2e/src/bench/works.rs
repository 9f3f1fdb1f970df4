//! (b) The whole path: from a queue that opens, or a Karmada scheduler that resumes, until the
//! Works of all jobs are applied in their members.

use std::time::Instant;

use serde::Serialize;

use super::QUIET;
use super::admission::{self, Gated};
use super::cost::{self, CpuCost, Memory, Moment};
use super::load::Batch;
use super::plane::BenchPlane;
use super::report::{middle_rate, rate, round};
use crate::harness::muster::ProcessRole;

/// The rates of jobs from a decision to their members.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Carried {
    pub(super) jobs: usize,
    /// Jobs over the time until the last binding had clusters; `None` if they had clusters before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) placed_per_second: Option<f64>,
    /// Jobs over the time until the last Work was applied.
    pub(super) applied_per_second: f64,
    /// The same rate without the first and the last tenth.
    pub(super) applied_middle_per_second: f64,
    pub(super) seconds: f64,
    pub(super) cost: CpuCost,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) muster_memory: Option<Memory>,
}

/// The numbers of jobs that Muster admits: first gated, then the queue opens.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThroughMuster {
    pub(super) gated: Gated,
    pub(super) carried: Carried,
}

/// Measures the path through Muster.
pub(super) async fn muster(
    plane: &BenchPlane,
    batch: &Batch,
    jobs: usize,
) -> anyhow::Result<ThroughMuster> {
    let gated = admission::gate(plane, batch, jobs).await?;
    let (moment, start) = (Moment::now(&plane.testbed), Instant::now());
    batch.capability(plane, jobs).await?;
    let mut carried = carried(plane, batch, jobs, start, &moment).await?;
    carried.muster_memory = Some(cost::memory(&plane.testbed, ProcessRole::All.process()));
    Ok(ThroughMuster { gated, carried })
}

/// Measures karmada-controller-manager alone: the Works of jobs that were admitted while it was
/// paused.
pub(super) async fn controller_manager_alone(
    plane: &BenchPlane,
    batch: &Batch,
    jobs: usize,
) -> anyhow::Result<Carried> {
    let (moment, start) = (Moment::now(&plane.testbed), Instant::now());
    let carried = carried(plane, batch, jobs, start, &moment).await?;
    Ok(Carried {
        placed_per_second: None,
        ..carried
    })
}

/// Measures Karmada's scheduler, which resumes after all bindings exist. Muster must not run.
pub(super) async fn karmada(plane: &BenchPlane, jobs: usize) -> anyhow::Result<Carried> {
    plane.pause_karmada_scheduler(true)?;
    let batch = Batch::of_karmada(plane, "bench-karmada").await?;
    batch.submit(plane, 0..jobs).await?;
    plane
        .all(&batch.name, jobs, "there", |sighting| Some(sighting.first))
        .await?;
    // `rest` cannot be used here, since it waits for Muster.
    while plane.seen.lock().quiet_for() < QUIET {
        tokio::time::sleep(QUIET / 10).await;
    }
    let (moment, start) = (Moment::now(&plane.testbed), Instant::now());
    plane.pause_karmada_scheduler(false)?;
    carried(plane, &batch, jobs, start, &moment).await
}

async fn carried(
    plane: &BenchPlane,
    batch: &Batch,
    jobs: usize,
    start: Instant,
    moment: &Moment,
) -> anyhow::Result<Carried> {
    let applied = plane
        .all(&batch.name, jobs, "applied", |sighting| sighting.applied)
        .await?;
    let cost = moment.cost(&plane.testbed);
    let placed = plane
        .all(&batch.name, jobs, "placed", |sighting| sighting.placed)
        .await?;
    let until = |times: &[Instant]| {
        times.last().map_or_else(
            || start.elapsed(),
            |last| last.saturating_duration_since(start),
        )
    };
    Ok(Carried {
        jobs,
        placed_per_second: Some(rate(jobs, until(&placed))),
        applied_per_second: rate(jobs, until(&applied)),
        applied_middle_per_second: middle_rate(&applied),
        seconds: round(until(&applied).as_secs_f64()),
        cost,
        muster_memory: None,
    })
}
