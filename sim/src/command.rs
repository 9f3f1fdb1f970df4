//! `muster simulate`: reads flags and files, and writes tables, JSON and charts.

use crate::charts::{self, ChartError};
use crate::error::InputError;
use crate::input::{read_faults, read_scenario};
use crate::metrics::RunMetrics;
use crate::report;
use crate::run::{RunOptions, RunOutcome, Violation, simulate};
use crate::scenario::{Scenario, ScenarioOverrides};
use clap::{Args, ValueEnum};
use engine::EngineConfig;
use engine::facts::{QueueOrdering, Split};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// Simulates jobs on a fleet in virtual time, with the engine that runs live.
#[derive(Debug, Clone, Args)]
pub struct Simulate {
    /// The fleet: YAML, or the CSV node list of the Philly or openb trace.
    #[arg(long, value_name = "FILE")]
    fleet: PathBuf,
    /// Queues: manifests (Queue, CapacityPolicy, PriorityClass) or the short form; without
    /// them all jobs stand in one queue.
    #[arg(long, value_name = "FILE")]
    queues: Option<PathBuf>,
    /// Jobs: YAML, a simple CSV, or the CSV of the Philly, openb or Tiresias trace.
    #[arg(long, value_name = "FILE")]
    jobs: PathBuf,
    /// The order within every queue. Unset: the ordering of each queue.
    #[arg(long, value_name = "ORDERING")]
    policy: Option<OrderingArg>,
    /// How many times as fast jobs arrive.
    #[arg(long, value_name = "TIMES", value_parser = positive)]
    speedup: Option<f64>,
    /// Jobs declare their exact run times.
    #[arg(long)]
    oracle: bool,
    /// Whether gangs are split over several clusters. Unset: as each job says.
    #[arg(long, value_name = "SPLIT")]
    split: Option<SplitArg>,
    /// Seconds from an eviction until the pods are gone.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    stop_seconds: u32,
    /// Faults of nodes: a file, or faults per 1,000 nodes and day; both if given twice.
    #[arg(long, value_name = "FILE|RATE")]
    faults: Vec<String>,
    /// The seed of random faults, instead of that of the file.
    #[arg(long, value_name = "NUMBER", requires = "faults")]
    fault_seed: Option<u64>,
    /// Asks pending jobs when they expect to start, and compares that with their starts.
    #[arg(long)]
    starts: bool,
    /// Recomputes every number that the engine derives after every step; slow.
    #[arg(long)]
    check: bool,
    /// Output format.
    #[arg(long, default_value = "table", value_name = "table|json")]
    output: OutputFormat,
    /// Draws charts (SVG) into this folder.
    #[arg(long, value_name = "FOLDER")]
    charts: Option<PathBuf>,
}

/// The order of jobs within a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OrderingArg {
    /// No job passes the head of the queue.
    #[value(name = "StrictFIFO")]
    StrictFifo,
    /// Every job that fits starts.
    #[value(name = "BestEffort")]
    BestEffort,
    /// Jobs pass the head of the queue if that does not delay it.
    #[value(name = "Backfill")]
    Backfill,
    /// Shortest predicted run time first, with ageing.
    #[value(name = "ShortestPredicted")]
    ShortestPredicted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SplitArg {
    /// Not split.
    Never,
    /// Split if no single cluster has capacity.
    Allowed,
    /// Also split if that leaves less capacity unusable.
    Preferred,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// Plain-text tables.
    Table,
    /// JSON.
    Json,
}

/// A reason why a simulation failed.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// An input file cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The engine's derived state is wrong.
    #[error(transparent)]
    Engine(#[from] Violation),
    /// A chart cannot be drawn.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// The output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(String),
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|number| number.is_finite() && *number > 0.0)
        .ok_or_else(|| "a number greater than 0 is needed".to_owned())
}

impl Simulate {
    /// Runs the command: results go to `out`, notes and progress to standard error.
    ///
    /// # Errors
    /// Returns an error of the input, the engine or the output.
    pub fn run(&self, out: &mut dyn Write) -> Result<(), SimulationError> {
        let read = read_scenario(&self.fleet, self.queues.as_deref(), &self.jobs)?;
        for note in &read.notes {
            eprintln!("note: {note}");
        }
        let mut scenario = read.what;
        scenario.faults = read_faults(&self.faults, &scenario.fleet)?;
        if let (Some(plan), Some(seed)) = (&mut scenario.faults, self.fault_seed) {
            plan.seed = seed;
        }
        scenario.change(&self.changes());
        let bar = progress(scenario.jobs.len());
        let options = RunOptions {
            config: EngineConfig {
                start_deadline_ms: crate::scenario::NO_DEADLINE_MS,
                recovery_deadline_ms: None,
                ..EngineConfig::default()
            },
            check: self.check,
            stop_ms: i64::from(self.stop_seconds) * 1000,
            starts: self.starts,
        };
        let outcome = simulate(&scenario, &options, &mut |done| {
            bar.set_position(done as u64)
        })?;
        bar.finish_and_clear();
        let metrics = RunMetrics::of(&scenario, &outcome);
        self.write(out, &metrics, &outcome)?;
        self.draw(&scenario, &outcome, &metrics)
    }

    fn changes(&self) -> ScenarioOverrides {
        ScenarioOverrides {
            ordering: self.policy.map(|policy| match policy {
                OrderingArg::StrictFifo => QueueOrdering::StrictFifo,
                OrderingArg::BestEffort => QueueOrdering::BestEffort,
                OrderingArg::Backfill => QueueOrdering::Backfill,
                OrderingArg::ShortestPredicted => QueueOrdering::ShortestPredicted,
            }),
            speedup: self.speedup,
            oracle: self.oracle,
            split: self.split.map(|split| match split {
                SplitArg::Never => Split::Never,
                SplitArg::Allowed => Split::Allowed,
                SplitArg::Preferred => Split::Preferred,
            }),
        }
    }

    fn write(
        &self,
        out: &mut dyn Write,
        metrics: &RunMetrics,
        outcome: &RunOutcome,
    ) -> Result<(), SimulationError> {
        let text = match self.output {
            OutputFormat::Table => report::tables(metrics, outcome),
            OutputFormat::Json => {
                let json = serde_json::to_string_pretty(metrics);
                json.map_err(|error| SimulationError::Output(error.to_string()))? + "\n"
            }
        };
        out.write_all(text.as_bytes())
            .map_err(|error| SimulationError::Output(error.to_string()))
    }

    fn draw(
        &self,
        scenario: &Scenario,
        outcome: &RunOutcome,
        metrics: &RunMetrics,
    ) -> Result<(), SimulationError> {
        let Some(folder) = &self.charts else {
            return Ok(());
        };
        let queues = scenario.queues.queues.iter();
        let names: Vec<String> = queues.map(|queue| queue.name.to_string()).collect();
        for file in charts::draw_all(folder, &outcome.record, metrics, &names)? {
            eprintln!("drew {}", file.display());
        }
        Ok(())
    }
}

/// Returns a progress bar, which is invisible if standard error is not a terminal.
fn progress(jobs: usize) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(jobs as u64), target);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} jobs done, {eta} left");
    // The template is a constant; if it is invalid, the default bar does.
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
