//! What the last run of the end-to-end tests says of itself; fails where the run did, or where its
//! waits took so long together that something must be broken.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use e2e::harness::record;
use e2e::harness::report::{Idle, RunReport};

/// Show what the last run of the end-to-end tests says of itself.
#[derive(Debug, Parser)]
struct ReportArgs {
    /// The record that the run wrote.
    record: PathBuf,
    /// How long each wait takes on an idle machine.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/idle.json"))]
    idle: PathBuf,
    /// Take over the waits of this run where they are shorter than those of the table.
    #[arg(long)]
    learn: bool,
    /// Report on the stories alone, and not on how long their waits took.
    #[arg(long)]
    stories_only: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = ReportArgs::parse();
    let lines = record::read(&args.record)?;
    let mut idle = Idle::read(&args.idle)?;
    let report = RunReport::of(&lines, &idle);
    print!("{report}");
    if args.learn {
        idle.learn(&lines);
        std::fs::write(&args.idle, idle.text()?)
            .with_context(|| format!("write {}", args.idle.display()))?;
    }
    let verdict = match args.stories_only {
        true => report.stories_verdict(),
        false => report.verdict(),
    };
    match verdict {
        Some(verdict) => {
            println!("{verdict}");
            Ok(ExitCode::FAILURE)
        }
        None => Ok(ExitCode::SUCCESS),
    }
}
