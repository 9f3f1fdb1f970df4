//! `make bench-e2e`: see `e2e::bench`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use e2e::bench::{self, BenchOptions};

/// Measures Muster's whole path on a real control plane.
#[derive(Debug, Parser)]
struct BenchArgs {
    /// Folder for the testbed's state [default: ${XDG_STATE_HOME:-~/.local/state}/muster/bench]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Path of the JSON file
    #[arg(long, value_name = "FILE", default_value = "target/bench-e2e.json")]
    out: PathBuf,
    /// Run a tenth of everything, as a smoke test
    #[arg(long)]
    quick: bool,
    /// Jobs of the admission measurement; the others use half as many [default: 2000, quick: 200]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Jobs of each measurement with Karmada's default client limits; 0 skips them [default: 500,
    /// quick: 40]
    #[arg(long, value_name = "N")]
    shipped_jobs: Option<usize>,
    /// Number of jobs that end to measure how soon the next follows [default: 120, quick: 20]
    #[arg(long, value_name = "N")]
    reactions: Option<usize>,
    /// Gangs over one, two and five clusters, of each; 0 skips them [default: 40, quick: 5]
    #[arg(long, value_name = "N")]
    gangs: Option<usize>,
    /// Measure only those gangs
    #[arg(long)]
    gangs_only: bool,
    /// Seconds of the measurement at rest [default: 60, quick: 10]
    #[arg(long, value_name = "SECONDS")]
    rest: Option<u64>,
    /// Measure only the cost of the ledger: turns with it and without it, of `--jobs` jobs each
    #[arg(long, value_name = "N", default_value_t = 0)]
    ledger_rounds: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = BenchArgs::parse();
    let or = |given: Option<usize>, full: usize, quick: usize| {
        given.unwrap_or(if cli.quick { quick } else { full })
    };
    let options = BenchOptions {
        jobs: or(cli.jobs, 2000, 200),
        shipped_jobs: or(cli.shipped_jobs, 500, 40),
        reactions: or(cli.reactions, 120, 20),
        gangs: or(cli.gangs, 40, 5),
        gangs_only: cli.gangs_only,
        rest: Duration::from_secs(cli.rest.unwrap_or(if cli.quick { 10 } else { 60 })),
        ledger_rounds: cli.ledger_rounds,
        state: cli.state.unwrap_or_else(bench::default_state),
        out: cli.out,
    };
    // Dropping the run ends the testbed and everything in it.
    let outcome = tokio::select! {
        outcome = bench::run(&options) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
