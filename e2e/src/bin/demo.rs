//! `make demo`: see `e2e::demo`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use e2e::demo::{self, DemoOptions};

/// Runs Muster on three clusters, with the examples and 150 jobs of a real trace.
#[derive(Debug, Parser)]
struct DemoArgs {
    /// Folder for the testbed's state [default: ${XDG_STATE_HOME:-~/.local/state}/muster/demo]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Folder of the examples [default: those of the source tree]
    #[arg(long, value_name = "DIR")]
    examples: Option<PathBuf>,
    /// Number of jobs of the trace
    #[arg(long, default_value_t = 150)]
    jobs: usize,
    /// Seconds into which the recorded arrivals are compressed
    #[arg(long, default_value_t = 75, value_parser = clap::value_parser!(u64).range(1..))]
    arrivals: u64,
    /// Longest run of a job in seconds
    #[arg(long, default_value_t = 35, value_parser = clap::value_parser!(u64).range(2..))]
    longest: u64,
    /// Timeout of the replay in seconds
    #[arg(long, default_value_t = 600)]
    deadline: u64,
    /// Stay up afterwards, until Ctrl-C: any value except 0 in KEEP
    #[arg(long, env = "KEEP", num_args = 0..=1, default_value = "0", default_missing_value = "1", value_parser = clap::builder::FalseyValueParser::new())]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = DemoArgs::parse();
    let options = DemoOptions {
        state: cli.state.unwrap_or_else(demo::default_state),
        examples: cli.examples.unwrap_or_else(demo::default_examples),
        jobs: cli.jobs,
        arrivals: Duration::from_secs(cli.arrivals),
        longest: Duration::from_secs(cli.longest),
        deadline: Duration::from_secs(cli.deadline),
        keep: cli.keep,
    };
    // Dropping the run ends the testbed and everything in it.
    let outcome = tokio::select! {
        outcome = demo::run(&options) => outcome,
        _ = tokio::signal::ctrl_c(), if !options.keep => Err(anyhow::anyhow!("interrupted")),
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
