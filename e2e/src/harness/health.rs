//! Checks whether Muster's processes report a defect: a violated invariant, a truncated round of
//! decisions, a panic. A test can pass despite all three, so the harness checks after each.

use std::fs;
use std::path::Path;

use testbed::{RunState, Testbed};

use super::muster::{Muster, ProcessRole, metric};

/// Counters that are zero unless Muster has a defect.
const ZERO: [&str; 2] = [
    "muster_invariant_violations_total",
    "muster_decisions_cut_total",
];

/// The text that a panic of any thread prints.
const PANIC: &str = "panicked at";

/// The parts of Muster that may run in a testbed.
const PARTS: [ProcessRole; 6] = [
    ProcessRole::All,
    ProcessRole::AllUnregistered,
    ProcessRole::Second,
    ProcessRole::Webhook,
    ProcessRole::Controller,
    ProcessRole::Scheduler,
];

/// Returns every defect, in words; empty if there is none. It reads the counters of running
/// processes, and the logs of all that ever ran.
pub async fn faults(muster: &Muster, testbed: &Testbed) -> Vec<String> {
    let status = testbed.status();
    let mut faults = Vec::new();
    for part in PARTS {
        let Some(process) = status.iter().find(|process| process.name == part.process()) else {
            continue;
        };
        faults.extend(panics(part, &process.log));
        if process.state == RunState::Running
            && let Ok(metrics) = muster.metrics(testbed, part).await
        {
            faults.extend(counted(part, &metrics));
        }
    }
    faults
}

/// Returns by how much queues whose names begin with `name` are charged beyond their real
/// capability, according to Muster.
pub async fn over_capability(muster: &Muster, testbed: &Testbed, name: &str) -> Vec<String> {
    let status = testbed.status();
    let mut over = Vec::new();
    for part in PARTS {
        let mut running = status.iter().filter(|p| p.state == RunState::Running);
        if running.any(|process| process.name == part.process())
            && let Ok(metrics) = muster.metrics(testbed, part).await
        {
            over.extend(over_by(&metrics, name));
        }
    }
    over
}

fn over_by(metrics: &str, name: &str) -> Vec<String> {
    let samples = metrics.lines().filter(|line| {
        let labels = line
            .strip_prefix("muster_queue_over_capability{")
            .unwrap_or_default();
        let queue = labels.split("queue=\"").nth(1).unwrap_or_default();
        let queue = queue.split('"').next().unwrap_or_default();
        let own = queue == name || queue.starts_with(&format!("{name}-"));
        own && !line.ends_with(" 0") && !line.ends_with(" 0.0")
    });
    samples.map(str::to_owned).collect()
}

fn counted(part: ProcessRole, metrics: &str) -> impl Iterator<Item = String> {
    ZERO.into_iter().filter_map(move |name| {
        let value = metric(metrics, name).unwrap_or(0.0);
        (value != 0.0).then(|| format!("{}: {name} is {value}", part.process()))
    })
}

fn panics(part: ProcessRole, log: &Path) -> Option<String> {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let at = lines.find(|line| line.contains(PANIC))?;
    let words = lines.next().unwrap_or_default();
    Some(format!("{}: {at} {words}", part.process()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_counter_that_is_not_zero_is_a_fault_and_one_that_is_not_there_is_none() {
        let count = |metrics| counted(ProcessRole::All, metrics).count();
        assert_eq!(count("muster_leading 1\n"), 0);
        assert_eq!(count("muster_invariant_violations_total 0\n"), 0);
        assert_eq!(count("muster_invariant_violations_total 2\n"), 1);
        assert_eq!(count("muster_decisions_cut_total{cause=\"x\"} 1\n"), 1);
    }

    #[test]
    fn queues_of_a_name_that_are_over_are_reported() {
        let line = |queue: &str, over: &str| {
            format!("muster_queue_over_capability{{queue=\"{queue}\",resource=\"pods\"}} {over}")
        };
        let metrics = [
            line("a", "4.0"),
            line("a-left", "1"),
            line("ab", "2"),
            line("a", "0.0"),
            "muster_leading 1".to_owned(),
        ];
        let over = over_by(&metrics.join("\n"), "a");
        assert_eq!(over, [line("a", "4.0"), line("a-left", "1")]);
    }

    #[test]
    fn a_panic_in_a_log_is_a_fault_with_its_words() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(panics(ProcessRole::All, file.path()), None);
        let log = "INFO all well\nthread 'a' (1) panicked at x.rs:1:2:\nno room\nmore\n";
        fs::write(file.path(), log).unwrap();
        let fault = panics(ProcessRole::All, file.path()).unwrap();
        assert_eq!(
            fault,
            "muster: thread 'a' (1) panicked at x.rs:1:2: no room"
        );
    }
}
