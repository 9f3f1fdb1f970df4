//! `make bench-e2e`: measures the whole path on a real control plane.
//!
//! Single rates vary with the machine: only numbers of one run are compared, and every result
//! includes the CPU time of other processes. The measured program is Muster's binary, as users run
//! it. All observations come from watches of the benchmark and from published metrics. The
//! benchmark adds up the jobs' charges from the records on bindings, by code that shares nothing
//! with Muster.
//!
//! The client limits of Karmada's components must not distort a comparison: Muster and Karmada's
//! scheduler are both measured with raised limits and with default limits.

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

/// The time without changes after which the plane is at rest.
const QUIET: Duration = Duration::from_secs(4);

/// The options of the benchmark.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The folder for the testbeds' state.
    pub state: PathBuf,
    /// The path of the JSON file.
    pub out: PathBuf,
    /// Jobs of the admission measurement with raised limits; the other measurements use half as
    /// many.
    pub jobs: usize,
    /// Jobs of each measurement with default limits; 0 skips them.
    pub shipped_jobs: usize,
    /// The number of jobs that end to measure how soon the next one follows.
    pub reactions: usize,
    /// Gangs of each measurement of gangs over several clusters; 0 skips them.
    pub gangs: usize,
    /// Measures only those gangs.
    pub gangs_only: bool,
    /// The duration of the measurement at rest.
    pub rest: Duration,
    /// Turns with and without the ledger, of `jobs` jobs each, and no other measurement; 0 skips
    /// them.
    pub ledger_rounds: usize,
}

/// Runs all measurements and returns true if each has its numbers.
///
/// # Errors
/// Returns an error if a testbed or Muster does not start, or the file cannot be written.
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

/// Measures with raised client limits of Karmada. The jobs of the first part keep running: only
/// rates are compared, and deleting thousands of jobs takes minutes.
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

/// Measures with Karmada's default client limits.
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

/// Measures gangs over one, two and five clusters, with Karmada's default client limits.
async fn in_parts(options: &BenchOptions, report: &mut BenchReport) -> anyhow::Result<()> {
    let most = plane::MANY_MEMBERS as usize;
    // The gangs of earlier measurements keep running.
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

/// Measures Karmada's scheduler while Muster is stopped, so that Muster costs Karmada nothing.
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

/// Returns the default folder for the state, beside the testbed's.
#[must_use]
pub fn default_state() -> PathBuf {
    testbed::default_dir().with_file_name("bench")
}
