//! Checks whether Muster's processes report a defect: a violated invariant, a truncated round of
//! decisions, a panic, an object that is not valid. A test can pass despite all of them, so the harness checks
//! after each.

use std::fs;
use std::path::Path;
use std::time::Duration;

use testbed::{RunState, Testbed};

use super::muster::{Muster, ProcessRole, metric};
use super::wait::eventually;

/// Counters that are zero unless Muster has a defect.
const ZERO: [&str; 2] = [
    "muster_invariant_violations_total",
    "muster_decisions_cut_total",
];

/// The text that a panic of any thread prints.
const PANIC: &str = "panicked at";

/// What a line has that says that the API server refuses an object of Muster's as not valid: a retry would not
/// help, and what users see stays old.
const INVALID: [&str; 2] = ["an object was not applied", "code=422"];

/// The parts of Muster that may run in a testbed.
const PARTS: [ProcessRole; 6] = [
    ProcessRole::All,
    ProcessRole::AllUnregistered,
    ProcessRole::Second,
    ProcessRole::Webhook,
    ProcessRole::Controller,
    ProcessRole::Scheduler,
];

/// The counter of checks whose violations the first of [`ZERO`] counts.
const CHECKS: &str = "muster_invariant_checks_total";

/// The timeout of a process that runs to show its metrics, and a leader's first check of its numbers.
const READABLE: Duration = Duration::from_secs(30);

/// Returns every defect, in words; empty if there is none. It reads the counters of running
/// processes, and the logs of all that ever ran. What it cannot read is a defect too.
pub async fn faults(muster: &Muster, testbed: &Testbed) -> Vec<String> {
    let mut faults = Vec::new();
    for process in testbed.status() {
        let Some(part) = PARTS
            .into_iter()
            .find(|part| part.process() == process.name)
        else {
            continue;
        };
        faults.extend(panics(part, &process.log));
        faults.extend(invalid_object(part, &process.log));
        match metrics_of(muster, testbed, part).await {
            Ok(metrics) => faults.extend(metrics.iter().flat_map(|text| counted(part, text))),
            Err(error) => faults.push(format!("{error:#}")),
        }
    }
    faults
}

/// Returns by how much queues whose names begin with `name` are charged beyond their real
/// capability, according to Muster.
///
/// # Errors
/// Returns an error if a process of Muster runs and does not say.
pub async fn over_capability(
    muster: &Muster,
    testbed: &Testbed,
    name: &str,
) -> anyhow::Result<Vec<String>> {
    let mut over = Vec::new();
    for part in PARTS {
        let metrics = metrics_of(muster, testbed, part).await?;
        over.extend(metrics.iter().flat_map(|text| over_by(text, name)));
    }
    Ok(over)
}

/// Returns the metrics of a part, with all counters that this check needs; `None` if it does not run.
async fn metrics_of(
    muster: &Muster,
    testbed: &Testbed,
    part: ProcessRole,
) -> anyhow::Result<Option<String>> {
    let what = format!("{} shows its counters", part.process());
    eventually(READABLE, &what, async || {
        let status = testbed.status();
        let mut running = status.iter().filter(|p| p.state == RunState::Running);
        if !running.any(|process| process.name == part.process()) {
            return Ok(None);
        }
        let metrics = muster.metrics(testbed, part).await;
        let metrics = metrics.map_err(|error| format!("{error:#}"))?;
        readable(part, &metrics)?;
        Ok(Some(metrics))
    })
    .await
}

/// Returns what keeps an answer from showing whether the part has a defect.
fn readable(part: ProcessRole, answer: &str) -> Result<(), String> {
    let status = answer.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("/metrics answers {status:?}"));
    }
    if matches!(part, ProcessRole::Webhook | ProcessRole::Scheduler) {
        return Ok(());
    }
    for name in ZERO.into_iter().chain([CHECKS]) {
        if metric(answer, name).is_none() {
            return Err(format!("/metrics has no {name}"));
        }
    }
    if metric(answer, "muster_leading") == Some(1.0) && metric(answer, CHECKS) == Some(0.0) {
        return Err("it leads, and has not checked its numbers yet".to_owned());
    }
    Ok(())
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
        let value = metric(metrics, name)?;
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

/// Returns the first line that says that an object was not valid.
fn invalid_object(part: ProcessRole, log: &Path) -> Option<String> {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let line = lines.find(|line| INVALID.iter().all(|words| line.contains(words)))?;
    Some(format!("{}: {line}", part.process()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_counter_that_is_not_zero_is_a_fault() {
        let count = |metrics| counted(ProcessRole::All, metrics).count();
        assert_eq!(count("muster_invariant_violations_total 0\n"), 0);
        assert_eq!(count("muster_invariant_violations_total 2\n"), 1);
        assert_eq!(count("muster_decisions_cut_total{cause=\"x\"} 1\n"), 1);
    }

    #[test]
    fn an_object_that_is_not_valid_is_a_fault() {
        let fault = |line: &str| {
            let log = tempfile::NamedTempFile::new().unwrap();
            fs::write(log.path(), format!("INFO one\n{line}\nINFO other\n")).unwrap();
            invalid_object(ProcessRole::All, log.path())
        };
        let line = |code: u16| format!("WARN an object was not applied object=a code={code} why");
        assert!(fault(&line(422)).unwrap().ends_with(&line(422)));
        assert_eq!(fault(&line(404)), None, "its namespace is gone");
    }

    #[test]
    fn an_answer_without_the_counters_shows_nothing() {
        const OK: &str = "HTTP/1.1 200 OK\r\n";
        const ZEROS: &str = "muster_invariant_violations_total 0\nmuster_decisions_cut_total 0\n";
        let all = |text: String| readable(ProcessRole::All, &text);
        let checks = |leads: u8, checks: u8| {
            all(format!(
                "{OK}\r\n{ZEROS}muster_leading {leads}\n{CHECKS} {checks}\n"
            ))
        };
        assert_eq!(checks(1, 1), Ok(()));
        assert_eq!(checks(0, 0), Ok(()), "a standby checks nothing");
        assert!(checks(1, 0).is_err(), "zero violations in no check");
        assert!(all(format!("{OK}\r\n{ZEROS}")).is_err());
        assert!(
            all(format!(
                "{OK}\r\n{CHECKS} 1\nmuster_decisions_cut_total 0\n"
            ))
            .is_err()
        );
        assert!(all(String::new()).is_err());
        let webhook = |text| readable(ProcessRole::Webhook, text);
        assert!(webhook("HTTP/1.1 401 Unauthorized\r\n\r\n").is_err());
        assert_eq!(webhook(OK), Ok(()), "it has no engine");
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
