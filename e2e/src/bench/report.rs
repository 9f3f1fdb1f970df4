//! The results, as one JSON file and as printed text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::harness::percentile::percentile;

/// Results by phase. The file is written after each phase, so that an interrupted run keeps its
/// results.
#[derive(Debug)]
pub(super) struct BenchReport {
    out: PathBuf,
    phases: Map<String, Value>,
    failed: bool,
}

/// The start time, processes and memory of the testbed.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TestbedNumbers {
    pub(super) ready_after_ms: u64,
    pub(super) processes: usize,
    pub(super) resident_mib: u64,
}

/// A distribution of times in milliseconds, by nearest rank.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Milliseconds {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl BenchReport {
    /// Creates an empty report and writes it to `out`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn create(out: &Path) -> anyhow::Result<Self> {
        let report = Self {
            out: out.to_owned(),
            phases: Map::new(),
            failed: false,
        };
        report.save()?;
        Ok(report)
    }

    /// Adds the result of a phase. The error of a failed phase is printed and does not stop the
    /// others.
    pub(super) fn add<T: Serialize>(
        &mut self,
        phase: &str,
        result: anyhow::Result<T>,
    ) -> Option<T> {
        let (value, numbers) = match result {
            Ok(numbers) => (
                serde_json::to_value(&numbers).unwrap_or_default(),
                Some(numbers),
            ),
            Err(error) => {
                self.failed = true;
                (serde_json::json!({"failed": format!("{error:#}")}), None)
            }
        };
        println!("{phase}:");
        print(&value, 1);
        self.phases.insert(phase.to_owned(), value);
        if let Err(error) = self.save() {
            eprintln!("{error:#}");
            self.failed = true;
        }
        numbers
    }

    /// Returns true if every phase has a result.
    pub(super) fn is_complete(&self) -> bool {
        !self.failed
    }

    fn save(&self) -> anyhow::Result<()> {
        let text = format!("{:#}\n", Value::Object(self.phases.clone()));
        std::fs::write(&self.out, text).with_context(|| format!("write {}", self.out.display()))
    }
}

impl Milliseconds {
    pub(super) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent| percentile(&times, percent).map_or(0.0, milliseconds);
        Self {
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

/// Returns a rate per second.
#[expect(clippy::cast_precision_loss, reason = "counts of some thousands")]
pub(super) fn rate(count: usize, time: Duration) -> f64 {
    round(count as f64 / time.as_secs_f64().max(1e-9))
}

/// Returns the rate between the tenth and the ninetieth percentile of ordered times, which excludes
/// the start and the end.
pub(super) fn middle_rate(times: &[Instant]) -> f64 {
    let (from, to) = (times.len() / 10, times.len() * 9 / 10);
    match (times.get(from), times.get(to)) {
        (Some(&begin), Some(&end)) if to > from => rate(to - from, end - begin),
        _ => 0.0,
    }
}

/// Rounds to two decimals, more than the precision of these numbers.
pub(super) fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Returns milliseconds with two decimals.
pub(super) fn milliseconds(time: Duration) -> f64 {
    round(time.as_secs_f64() * 1000.0)
}

/// Returns writes per job, by kind.
#[expect(clippy::cast_precision_loss, reason = "counts of some thousands")]
pub(super) fn per_job(writes: &BTreeMap<String, f64>, jobs: usize) -> BTreeMap<String, f64> {
    let jobs = jobs.max(1) as f64;
    let each = writes
        .iter()
        .map(|(kind, count)| (kind.clone(), (count / jobs * 1000.0).round() / 1000.0));
    // Less than one write per hundred jobs is background work of a process, for example its Lease.
    each.filter(|(_, count)| *count >= 0.01).collect()
}

fn print(value: &Value, depth: usize) {
    let Some(fields) = value.as_object() else {
        return;
    };
    let indent = "  ".repeat(depth);
    for (name, value) in fields {
        match value {
            Value::Object(inner) if inner.values().all(|value| value.is_number()) => {
                let parts: Vec<String> = inner
                    .iter()
                    .map(|(key, value)| format!("{key} {}", short(value)))
                    .collect();
                println!("{indent}{name}: {}", parts.join(", "));
            }
            Value::Object(_) => {
                println!("{indent}{name}:");
                print(value, depth + 1);
            }
            other => println!("{indent}{name}: {}", short(other)),
        }
    }
}

fn short(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() => round(number).to_string(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let times = (1..=200).map(Duration::from_millis).collect();
        let Milliseconds { p50, p99, max } = Milliseconds::of(times);
        assert_eq!((p50, p99, max), (100.0, 198.0, 200.0));
        assert_eq!(Milliseconds::of(Vec::new()).p99, 0.0);
    }

    #[test]
    fn the_middle_leaves_out_how_it_begins_and_ends() {
        let start = Instant::now();
        let mut times: Vec<Instant> = (0..100)
            .map(|n| start + Duration::from_millis(10 * n))
            .collect();
        times[99] = start + Duration::from_secs(60);
        assert_eq!(middle_rate(&times), 100.0);
        assert_eq!(middle_rate(&times[..1]), 0.0);
    }

    #[test]
    fn a_phase_that_failed_does_not_stop_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out.json");
        let mut report = BenchReport::create(&out).unwrap();
        assert!(
            report
                .add::<Value>("a", Err(anyhow::anyhow!("no")))
                .is_none()
        );
        assert!(report.add("b", Ok(1)).is_some());
        assert!(!report.is_complete());
        let written: Value = serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap();
        assert_eq!(written, serde_json::json!({"a": {"failed": "no"}, "b": 1}));
    }
}
