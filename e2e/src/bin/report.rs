//! Prints the report of the last run of the end-to-end tests. It fails if the run did, or if the
//! waits together took so long that something must be broken; `--repeat` names the stories to repeat before that is
//! believed, and `--first` reads the repeats together with the run.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use e2e::harness::record;
use e2e::harness::report::{Idle, RunReport, with_repeats};

/// Print the report of the last run of the end-to-end tests.
#[derive(Debug, Parser)]
struct ReportArgs {
    /// The record that the run wrote.
    record: PathBuf,
    /// The record of the whole run, if `record` is that of stories of it that were repeated.
    #[arg(long)]
    first: Option<PathBuf>,
    /// A file for the stories that are to be repeated, one a line: those whose waits took too long.
    #[arg(long)]
    repeat: Option<PathBuf>,
    /// The duration of each wait on an idle machine.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/idle.json"))]
    idle: PathBuf,
    /// Update the table with the waits of this run that are shorter.
    #[arg(long)]
    learn: bool,
    /// Report on the stories only, not on the duration of their waits.
    #[arg(long)]
    stories_only: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = ReportArgs::parse();
    let lines = record::read(&args.record)?;
    let lines = match &args.first {
        Some(first) => with_repeats(record::read(first)?, lines),
        None => lines,
    };
    let mut idle = Idle::read(&args.idle)?;
    let report = RunReport::of(&lines, &idle);
    print!("{report}");
    if args.learn {
        idle.learn(&lines);
        std::fs::write(&args.idle, idle.text()?)
            .with_context(|| format!("write {}", args.idle.display()))?;
    }
    if let Some(path) = &args.repeat {
        let text: String = report
            .slowest_stories()
            .iter()
            .map(|name| format!("{name}\n"))
            .collect();
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
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
