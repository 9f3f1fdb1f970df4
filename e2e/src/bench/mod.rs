//! `make bench-e2e`: the numbers of the whole path on a real control plane.
//!
//! Single rates swing with the machine: what is compared is measured within one run, and the CPU that
//! other processes took is part of every result. The measured program is Muster's binary as its users have
//! it; what is seen comes from watches of the benchmark's own and from published metrics, and jobs'
//! charges are added up here from the records on bindings, by code that shares nothing with Muster.
//!
//! It must never measure the client limits of Karmada's parts for Muster: where they are raised, both
//! Muster and Karmada's own scheduler are measured with them raised, and both as shipped.

mod admission;
mod cost;
mod counters;
mod ledger;
mod load;
mod opened;
mod parts;
mod plane;
mod raw;
mod report;
mod seen;
mod standing;
mod watch;
mod works;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::muster::ProcessRole;
use load::Batch;
use plane::{BenchPlane, ClientLimits};
use report::BenchReport;
use standing::{ProcessEnd, StandingBatch};

/// Nothing changed for so long: at rest.
const QUIET: Duration = Duration::from_secs(4);

/// What can be chosen.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// Folder for the testbeds' state.
    pub state: PathBuf,
    /// Where the JSON goes.
    pub out: PathBuf,
    /// Jobs of admission alone, with raised limits; the other measurements have half of them.
    pub jobs: usize,
    /// Jobs of each measurement with limits as shipped; none if 0.
    pub shipped_jobs: usize,
    /// How often a job ends to see how fast the next one follows.
    pub reactions: usize,
    /// Gangs of each measurement of gangs over several clusters; none if 0.
    pub gangs: usize,
    /// Leaves everything out but those gangs.
    pub gangs_only: bool,
    /// How long rest is looked at.
    pub rest: Duration,
    /// Turns with and without the ledger, of `jobs` each, and nothing else; none if 0.
    pub ledger_rounds: usize,
}

/// Runs all measurements; says whether each has its numbers.
///
/// # Errors
/// If a testbed or Muster does not start, or the file cannot be written.
pub async fn run(options: &BenchOptions) -> anyhow::Result<bool> {
    let start = Instant::now();
    let mut report = BenchReport::create(&options.out)?;
    report.add("machine", Ok(machine(options)));
    if options.ledger_rounds > 0 {
        let (rounds, jobs) = (options.ledger_rounds, options.jobs);
        let plane = BenchPlane::up(&options.state, ClientLimits::Raised, 2 * rounds * jobs).await?;
        report.add("ledger", opened::compare(&plane, rounds, jobs).await);
        plane.testbed.down()?;
        return Ok(report.is_complete());
    }
    if !options.gangs_only {
        raised(options, &mut report).await?;
        if options.shipped_jobs > 0 {
            shipped(options, &mut report).await?;
        }
    }
    if options.gangs > 0 {
        in_parts(options, &mut report).await?;
    }
    report.add(
        "took",
        Ok(json!({"seconds": start.elapsed().as_secs(), "loadAtEnd": cost::load_average()})),
    );
    println!("written to {}", options.out.display());
    Ok(report.is_complete())
}

/// Karmada's client limits out of the way. The jobs of the first part stay where they are and run: only
/// rates are compared, and taking thousands of jobs down takes minutes.
async fn raised(options: &BenchOptions, report: &mut BenchReport) -> anyhow::Result<()> {
    let (jobs, half) = (options.jobs, options.jobs / 2);
    let plane = BenchPlane::up(&options.state, ClientLimits::Raised, 2 * jobs).await?;
    report.add("testbed", plane.testbed_numbers());
    admission_alone(&plane, jobs, report).await?;

    let batch = Batch::managed(&plane, "bench-works").await?;
    report.add(
        "works: muster, limits raised",
        works::muster(&plane, &batch, half).await,
    );
    match StandingBatch::of(&plane, batch, half).await {
        Ok(mut standing) => standing_queue(&plane, &mut standing, options, report).await,
        Err(error) => drop(report.add::<()>("standing", Err(error))),
    }
    let phase = "works: karmada-scheduler, limits raised";
    karmada_alone(&plane, half, phase, report).await?;
    Ok(plane.testbed.down()?)
}

async fn admission_alone(
    plane: &BenchPlane,
    jobs: usize,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let batch = Batch::managed(plane, "bench-admission").await?;
    report.add("gate", admission::gate(plane, &batch, jobs).await);
    report.add("admission", admission::measure(plane, &batch, jobs).await);
    report.add(
        "works: karmada-controller-manager alone",
        works::controller_manager_alone(plane, &batch, jobs).await,
    );
    Ok(())
}

async fn standing_queue(
    plane: &BenchPlane,
    standing: &mut StandingBatch,
    options: &BenchOptions,
    report: &mut BenchReport,
) {
    report.add("at rest", standing.rest(plane, options.rest).await);
    report.add("reaction", standing.react(plane, options.reactions).await);
    report.add(
        "restart after kill -9",
        standing.restart(plane, ProcessEnd::Killed).await,
    );
    report.add(
        "restart after SIGTERM",
        standing.restart(plane, ProcessEnd::Asked).await,
    );
}

/// Karmada's client limits as they are shipped.
async fn shipped(options: &BenchOptions, report: &mut BenchReport) -> anyhow::Result<()> {
    let jobs = options.shipped_jobs;
    let plane = BenchPlane::up(&options.state, ClientLimits::Shipped, 2 * jobs).await?;
    let batch = Batch::managed(&plane, "bench-works").await?;
    report.add(
        "works: muster, as shipped",
        works::muster(&plane, &batch, jobs).await,
    );
    karmada_alone(&plane, jobs, "works: karmada-scheduler, as shipped", report).await?;
    Ok(plane.testbed.down()?)
}

/// Gangs over one, two and five clusters, at Karmada's client limits as they are shipped.
async fn in_parts(options: &BenchOptions, report: &mut BenchReport) -> anyhow::Result<()> {
    let most = plane::MANY_MEMBERS as usize;
    // What is measured first stays where it is and runs.
    let gpus = (options.gangs + 1) * 3 * most;
    let plane = BenchPlane::of(
        &options.state,
        ClientLimits::Shipped,
        gpus,
        plane::MANY_MEMBERS,
    )
    .await?;
    for clusters in [1, 2, most] {
        let phase = format!("gangs over {clusters} clusters, as shipped");
        report.add(
            &phase,
            parts::measure(&plane, clusters, options.gangs).await,
        );
    }
    Ok(plane.testbed.down()?)
}

/// Muster is away, so that it costs Karmada nothing.
async fn karmada_alone(
    plane: &BenchPlane,
    jobs: usize,
    phase: &str,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    plane.muster.stop(&plane.testbed, ProcessRole::All).await?;
    plane.muster.unregister(&plane.karmada).await?;
    report.add(phase, works::karmada(plane, jobs).await);
    Ok(())
}

fn machine(options: &BenchOptions) -> serde_json::Value {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    json!({
        "cores": cost::cores(),
        "memory": total.map(str::trim),
        "loadAtStart": cost::load_average(),
        "jobs": options.jobs,
        "shippedJobs": options.shipped_jobs,
        "gangs": options.gangs,
        "optimized": !cfg!(debug_assertions),
        "startedAt": jiff::Timestamp::now().to_string(),
    })
}

/// The default folder for the state: beside the testbed's.
#[must_use]
pub fn default_state() -> PathBuf {
    testbed::default_dir().with_file_name("bench")
}
