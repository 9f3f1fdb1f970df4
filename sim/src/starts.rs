//! How the expected starts that users see compare with the starts.
//!
//! Each job that waits is asked for its range in every stage of its wait, as the controller does. The same
//! code as live makes the ranges and learns from the starts.

use crate::metrics::Distribution;
use engine::{Engine, FaredRange, JobKey, StartForecasts, StartResult, Time, WAIT_STAGES};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The ranges of the jobs of a run.
#[derive(Debug, Default)]
pub(crate) struct StartWatch {
    forecasts: StartForecasts,
    /// When a job is asked next.
    due: BinaryHeap<Reverse<(Time, usize)>>,
    fared: Vec<FaredRange>,
}

/// How the ranges fared that were given in one stage of the waits. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StartAccuracy {
    /// For how long the jobs had waited at least.
    pub waited: f64,
    /// Jobs that waited so long, and started.
    pub starts: usize,
    /// Starts within the range.
    pub within: usize,
    /// Starts before it.
    pub early: usize,
    /// Starts after it.
    pub late: usize,
    /// Ranges without an end.
    pub open: usize,
    /// How wide the ranges were.
    pub width: Distribution,
    /// How long it took from the question to the start.
    pub left: Distribution,
}

impl StartWatch {
    /// Handles the arrival of a job.
    pub(crate) fn arrives(&mut self, job: usize, now: Time) {
        let due = WAIT_STAGES
            .iter()
            .map(|stage| Reverse((now.after(*stage), job)));
        self.due.extend(due);
    }

    /// Asks the jobs whose stage has begun. `key_of` returns the key of one that has never started.
    pub(crate) fn ask<'a>(
        &mut self,
        engine: &Engine,
        key_of: impl Fn(usize) -> Option<&'a JobKey>,
        now: Time,
    ) {
        while let Some(Reverse((at, job))) = self.due.peek().copied() {
            if at > now {
                return;
            }
            self.due.pop();
            if let Some(key) = key_of(job)
                && let Some(estimate) = engine.start_estimate(key)
            {
                self.forecasts.range(key, &estimate, now);
            }
        }
    }

    /// Handles the first start of a job.
    pub(crate) fn starts(&mut self, key: &JobKey, now: Time) {
        self.fared.extend(self.forecasts.started(key, now));
    }

    /// Returns how the ranges fared, by stage.
    pub(crate) fn accuracy(&self) -> Vec<StartAccuracy> {
        let stages = WAIT_STAGES.iter().enumerate();
        let of = |(stage, millis): (usize, &i64)| {
            let all = self.fared.iter().filter(|fared| fared.stage == stage);
            let all: Vec<&FaredRange> = all.collect();
            let count = |result| all.iter().filter(|fared| fared.result == result).count();
            StartAccuracy {
                waited: *millis as f64 / 1_000.0,
                starts: all.len(),
                within: count(StartResult::Within),
                early: count(StartResult::Early),
                late: count(StartResult::Late),
                open: count(StartResult::Open),
                width: Distribution::of_millis(all.iter().filter_map(|fared| fared.width_ms)),
                left: Distribution::of_millis(all.iter().map(|fared| fared.left_ms)),
            }
        };
        stages.map(of).filter(|stage| stage.starts > 0).collect()
    }
}
