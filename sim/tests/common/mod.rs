//! Input files of a scenario, and runs of it, for all tests.

use engine::EngineConfig;
use sim::metrics::RunMetrics;
use sim::run::{RunOptions, RunOutcome, simulate};
use sim::scenario::{NO_DEADLINE_MS, Scenario};
use std::path::{Path, PathBuf};

/// Input files in a temporary folder.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn with(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

#[allow(dead_code, reason = "not all tests need it")]
pub(crate) fn run(scenario: &Scenario) -> (RunMetrics, RunOutcome) {
    run_with(scenario, true)
}

pub(crate) fn run_with(scenario: &Scenario, check: bool) -> (RunMetrics, RunOutcome) {
    let options = RunOptions {
        config: EngineConfig {
            start_deadline_ms: NO_DEADLINE_MS,
            recovery_deadline_ms: None,
            ..EngineConfig::default()
        },
        check,
        stop_ms: 30_000,
        starts: true,
    };
    let outcome = simulate(scenario, &options, &mut |_| {}).unwrap();
    (RunMetrics::of(scenario, &outcome), outcome)
}
