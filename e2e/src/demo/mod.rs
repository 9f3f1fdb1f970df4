//! `make demo`: runs Muster on three clusters of different GPUs, with the examples and then a part
//! of a real workload trace.
//!
//! The trace's jobs are submitted as real objects at the recorded times, compressed; their pods are
//! simulated and end after the recorded times, compressed equally and cut to a maximum. All other
//! components are real: the control plane, the members' schedulers, and Muster, with the rights of
//! its own account. The table on the screen comes from API objects. The verdict at the end comes
//! from the API server's audit log and from the members' pods, by code that shares nothing with
//! Muster.

mod end;
mod examples;
mod fleet;
mod kubectl;
mod plane;
mod replay;
mod screen;
mod summary;
mod tenants;
mod trace;
mod verdict;
mod watch;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use testbed::Testbed;

use plane::DemoPlane;
use replay::TraceReplay;

/// The options of the demo.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// The folder for the testbed's state.
    pub state: PathBuf,
    /// The folder of the examples, which includes the trace.
    pub examples: PathBuf,
    /// The number of jobs of the trace.
    pub jobs: usize,
    /// The time into which the recorded arrivals are compressed.
    pub arrivals: Duration,
    /// The longest run of a job.
    pub longest: Duration,
    /// The timeout of the replay.
    pub deadline: Duration,
    /// True if the clusters stay up afterwards, until Ctrl-C.
    pub keep: bool,
}

/// Runs the demo and returns true if every job finished and no quota was exceeded.
///
/// # Errors
/// Returns an error if a component could not be started, or the API server refused a job.
pub async fn run(options: &DemoOptions) -> Result<bool> {
    let plane = DemoPlane::start(&options.state).await?;
    examples::play(&options.examples, &plane).await?;
    let replay = TraceReplay::prepare(options, plane.gpus)?;
    println!("\n{}", replay.announcement(plane.gpus));
    let took = replay.run(&plane, options.deadline).await?;
    let clean = verdict::reach(&plane, &replay, took).await?;
    if options.keep {
        keep(&plane.testbed).await?;
    }
    plane.testbed.down()?;
    Ok(clean)
}

async fn keep(testbed: &Testbed) -> Result<()> {
    println!(
        "\nLeft up until Ctrl-C:\n\n  export KUBECONFIG={}",
        testbed.karmada().kubeconfig.display()
    );
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")
}

/// Returns the default folder for the state, beside the testbed's.
#[must_use]
pub fn default_state() -> PathBuf {
    testbed::default_dir().with_file_name("demo")
}

/// Returns the examples in the source tree of this build.
#[must_use]
pub fn default_examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("examples")
}
