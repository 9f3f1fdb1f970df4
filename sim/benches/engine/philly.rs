//! A federation under load: one day of the Philly trace, six times as dense, under each ordering.
//!
//! The goals are the results of simple programs on the same jobs (best fit, no reservations). The
//! oracle run knows every run time.

use crate::sheet::{self, Call, Goal, Sheet};
use engine::EngineConfig;
use engine::facts::{QueueOrdering, Split};
use sim::input::read_scenario;
use sim::metrics::RunMetrics;
use sim::run::{RunOptions, simulate};
use sim::scenario::{NO_DEADLINE_MS, ScenarioOverrides};
use std::path::Path;
use std::time::Instant;

const SPEEDUP: f64 = 6.0;

pub(crate) fn run(sheet: &mut Sheet, traces: Option<&Path>) -> Result<(), String> {
    let folder = traces.map(|traces| traces.join("philly"));
    let files = folder.map(|folder| {
        (
            folder.join("philly_vc_nodes.csv"),
            folder.join("philly_jobs_sia.csv"),
        )
    });
    let Some((nodes, jobs)) = files.filter(|(nodes, jobs)| nodes.exists() && jobs.exists()) else {
        sheet.skip(
            "Philly ×6",
            "--traces DIR with philly/philly_vc_nodes.csv and philly/philly_jobs_sia.csv is needed",
        );
        return Ok(());
    };
    let read = read_scenario(&nodes, None, &jobs).map_err(|error| error.to_string())?;
    let mut big_under_backfill = None;
    for (name, ordering, split, oracle, goal) in [
        (
            "StrictFIFO",
            QueueOrdering::StrictFifo,
            Split::Never,
            false,
            Goal::AtMost(70_149.0),
        ),
        (
            "StrictFIFO, gangs split",
            QueueOrdering::StrictFifo,
            Split::Allowed,
            false,
            Goal::AtMost(68_532.0),
        ),
        (
            "BestEffort",
            QueueOrdering::BestEffort,
            Split::Never,
            false,
            Goal::None,
        ),
        (
            "Backfill",
            QueueOrdering::Backfill,
            Split::Never,
            false,
            Goal::AtMost(22_500.0),
        ),
        (
            "ShortestPredicted",
            QueueOrdering::ShortestPredicted,
            Split::Never,
            false,
            Goal::AtMost(18_000.0),
        ),
        (
            "ShortestPredicted, oracle",
            QueueOrdering::ShortestPredicted,
            Split::Never,
            true,
            Goal::None,
        ),
    ] {
        let mut scenario = read.what.clone();
        scenario.change(&ScenarioOverrides {
            ordering: Some(ordering),
            speedup: Some(SPEEDUP),
            oracle,
            split: Some(split),
        });
        let options = RunOptions {
            config: EngineConfig {
                start_deadline_ms: NO_DEADLINE_MS,
                recovery_deadline_ms: None,
                ..EngineConfig::default()
            },
            check: false,
            stop_ms: 30_000,
            starts: false,
        };
        let begin = Instant::now();
        let outcome = simulate(&scenario, &options, &mut |_| {}).map_err(|e| e.to_string())?;
        let took = begin.elapsed().as_secs_f64();
        sheet::note_call(Call::Decide, outcome.longest_call);
        let metrics = RunMetrics::of(&scenario, &outcome);
        sheet.add(
            &format!("Philly ×6, {name}: average completion"),
            metrics.completion.average,
            "s",
            goal,
            &[
                ("wait", metrics.wait.average),
                ("wait p99", metrics.wait.p99),
                ("wait of ≥ 8 GPUs", metrics.wait_big.average),
                ("use", metrics.use_in_window),
                ("fragmentation", metrics.fragmentation),
                ("splits", metrics.splits as f64),
                ("done", metrics.finished as f64),
                ("simulated in s", took),
            ],
        );
        match name {
            "Backfill" => big_under_backfill = Some(metrics.wait_big.average),
            "ShortestPredicted" => {
                let goal = big_under_backfill.map_or(Goal::None, Goal::AtMost);
                let big = metrics.wait_big.average;
                sheet.add(
                    "its wait of ≥ 8 GPUs, against Backfill's",
                    big,
                    "s",
                    goal,
                    &[],
                );
            }
            _ => {}
        }
    }
    Ok(())
}
