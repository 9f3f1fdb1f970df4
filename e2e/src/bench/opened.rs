//! The cost of the ledger: admissions per second with and without it, in turns on one plane, so
//! that both see the same machine.
//!
//! All jobs are gated before. In each turn one of the two processes leads and the queue opens for a
//! part of the jobs. karmada-controller-manager is paused, as in the admission measurement.
//! other process leading; karmada-controller-manager is paused, as where admission is measured alone.

use std::time::Instant;

use serde::Serialize;
use testbed::KARMADA_CONTROLLER_MANAGER;

use super::QUIET;
use super::admission::gate;
use super::load::Batch;
use super::plane::BenchPlane;
use super::report::{rate, round};
use crate::harness::muster::ProcessRole;

/// The two processes that take turns.
const TURNS: [ProcessRole; 2] = [ProcessRole::AllUnregistered, ProcessRole::WithoutLedger];

/// The results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LedgerCost {
    jobs_a_turn: usize,
    /// Admissions per second of each turn.
    with_ledger: Vec<f64>,
    without_ledger: Vec<f64>,
    /// The ratio of both medians.
    ratio: f64,
    /// Bindings opened per write of the ledger, and the mean time of a write, over all turns with
    /// it.
    opened_per_write: f64,
    write_ms: f64,
}

/// Measures `rounds` turns of each process, with `jobs` jobs per turn.
pub(super) async fn compare(
    plane: &BenchPlane,
    rounds: usize,
    jobs: usize,
) -> anyhow::Result<LedgerCost> {
    let batch = Batch::managed(plane, "bench-ledger").await?;
    gate(plane, &batch, 2 * rounds * jobs).await?;
    plane.muster.stop(&plane.testbed, ProcessRole::All).await?;
    plane.testbed.pause(KARMADA_CONTROLLER_MANAGER)?;
    let measured = turns(plane, &batch, rounds, jobs).await;
    plane.testbed.resume(KARMADA_CONTROLLER_MANAGER)?;
    plane.muster.start(&plane.testbed, ProcessRole::All).await?;
    measured
}

async fn turns(
    plane: &BenchPlane,
    batch: &Batch,
    rounds: usize,
    jobs: usize,
) -> anyhow::Result<LedgerCost> {
    let mut rates = [Vec::new(), Vec::new()];
    let (mut writes, mut opened, mut seconds) = (0.0, 0.0, 0.0);
    for turn in 0..2 * rounds {
        // The order of the two changes, so that neither always gets the fuller plane.
        let which = (turn + turn / 2) % 2;
        let part = TURNS[which];
        plane.muster.start(&plane.testbed, part).await?;
        tokio::time::sleep(2 * QUIET).await;
        let (before, until) = (turn * jobs, (turn + 1) * jobs);
        let start = Instant::now();
        batch.capability(plane, until).await?;
        let admitted = plane
            .all(&batch.name, until, "admitted", |sighting| sighting.admitted)
            .await?;
        let took = admitted
            .last()
            .map_or(start.elapsed(), |last| *last - start);
        rates[which].push(rate(until - before, took));
        let metrics = plane.muster.metrics(&plane.testbed, part).await?;
        let metric = |name| crate::harness::muster::metric(&metrics, name).unwrap_or_default();
        writes += metric("muster_ledger_write_seconds_count");
        seconds += metric("muster_ledger_write_seconds_sum");
        opened += metric("muster_ledger_opened_total");
        plane.muster.stop(&plane.testbed, part).await?;
    }
    let [with_ledger, without_ledger] = rates;
    Ok(LedgerCost {
        jobs_a_turn: jobs,
        ratio: round(middle(&with_ledger) / middle(&without_ledger)),
        with_ledger,
        without_ledger,
        opened_per_write: round(opened / f64::max(writes, 1.0)),
        write_ms: round(1_000.0 * seconds / f64::max(writes, 1.0)),
    })
}

fn middle(rates: &[f64]) -> f64 {
    let mut rates = rates.to_vec();
    rates.sort_by(f64::total_cmp);
    let n = rates.len();
    match n {
        0 => 0.0,
        _ => f64::midpoint(rates[(n - 1) / 2], rates[n / 2]),
    }
}
