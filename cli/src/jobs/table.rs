//! The columns of a list of jobs.

use super::{ListedJob, WaitParts};
use crate::age::{age, human};
use crate::args::{Format, JobsCommand};
use crate::output;
use crds::podgroup::{FederationStatus, StatusWord};
use jiff::Timestamp;
use kube::ResourceExt;

/// Which columns are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobTable {
    pub(crate) namespace: bool,
    /// Two kinds may have jobs of one name.
    pub(crate) kind: bool,
    pub(crate) wide: bool,
}

impl JobTable {
    pub(super) fn of(command: &JobsCommand) -> Self {
        let wide = command.list.output.format == Format::Wide;
        Self {
            namespace: command.filter.all_namespaces,
            kind: wide,
            wide,
        }
    }

    /// Returns the table of jobs that a command is about to change.
    pub(crate) fn preview(jobs: &[ListedJob], namespace: bool) -> String {
        let table = Self {
            namespace,
            kind: true,
            wide: false,
        };
        let now = Timestamp::now();
        let rows = jobs.iter().map(|job| table.row(job, now));
        output::table(Some(table.header()), rows)
    }

    pub(crate) fn header(self) -> Vec<&'static str> {
        let mut names = Vec::new();
        if self.namespace {
            names.push("NAMESPACE");
        }
        names.push("NAME");
        if self.kind {
            names.push("KIND");
        }
        names.extend([
            "QUEUE", "USER", "STATUS", "REASON", "POS", "GPUS", "PODS", "CLUSTERS", RUNTIME,
        ]);
        if self.wide {
            names.extend([
                "PRIORITY", "CLASS", "ATTEMPT", "START", "ELIGIBLE", "ADMITTED", "RUNNING",
            ]);
        }
        names.push("AGE");
        if self.wide {
            names.push("MESSAGE");
        }
        names
    }

    pub(crate) fn row(self, job: &ListedJob, now: Timestamp) -> Vec<String> {
        let none = FederationStatus::default();
        let federation = job.federation().unwrap_or(&none);
        let number = |number: Option<i32>| number.map(|number| number.to_string());
        let mut cells = Vec::new();
        if self.namespace {
            cells.push(job.object.namespace().unwrap_or_default());
        }
        cells.push(job.name());
        if self.kind {
            cells.push(job.kind());
        }
        cells.extend([
            job.group.spec.queue.clone(),
            federation.user.clone().unwrap_or_default(),
            job.status().to_string(),
            job.reason().to_owned(),
            federation
                .position
                .map(output::position_text)
                .unwrap_or_default(),
            federation
                .devices
                .map(|devices| devices.to_string())
                .unwrap_or_default(),
            pods(job),
            federation.placement_summary.clone().unwrap_or_default(),
            runtime_of_limit(job, now),
        ]);
        if self.wide {
            let class = job.group.spec.priority_class_name.clone();
            cells.extend([
                number(federation.priority).unwrap_or_default(),
                class.unwrap_or_default(),
                number(federation.attempt).unwrap_or_default(),
                start(federation),
            ]);
            cells.extend(WaitParts::of(&federation.timeline, job.status()).cells());
        }
        cells.push(age(job.object.metadata.creation_timestamp.as_ref(), now));
        if self.wide {
            cells.push(job.message().to_owned());
        }
        cells
    }

    /// Returns the cells of a row that do not change by themselves.
    pub(super) fn lasting(self, row: &[String]) -> Vec<String> {
        let cells = self.header().into_iter().zip(row);
        let lasting = cells.filter(|(name, _)| !matches!(*name, "AGE" | RUNTIME));
        lasting.map(|(_, cell)| cell.clone()).collect()
    }
}

/// The column with the run time and its limit.
const RUNTIME: &str = "RUNTIME";

/// Returns for how many seconds the latest attempt has run, or ran until it ended.
pub(super) fn run_time(job: &ListedJob, now: Timestamp) -> Option<i64> {
    let timeline = &job.federation()?.timeline;
    let status = job.status();
    let end = match status {
        _ if status.is_over() => timeline.finished.as_ref()?.0,
        StatusWord::Running | StatusWord::Evicting => now,
        _ => return None,
    };
    let started = timeline.running.as_ref()?;
    Some((end.as_second() - started.0.as_second()).max(0))
}

/// Formats the run time and what the job declares: `12m/2h`, `12m`, or `0s/2h` before it runs.
fn runtime_of_limit(job: &ListedJob, now: Timestamp) -> String {
    let limit = job
        .federation()
        .and_then(|federation| federation.expected_duration_seconds);
    match (run_time(job, now), limit) {
        (None, None) => String::new(),
        (Some(seconds), None) => human(seconds),
        (seconds, Some(limit)) => {
            format!("{}/{}", human(seconds.unwrap_or_default()), human(limit))
        }
    }
}

/// Formats the pods that run, of those that were placed, or else of the minimum.
fn pods(job: &ListedJob) -> String {
    let running = job.group.status.as_ref().and_then(|status| status.running);
    let placed = job.federation().map(|federation| {
        let parts = federation.placement.iter();
        parts.map(|part| part.pods).sum::<i32>()
    });
    let wanted = placed.filter(|pods| *pods > 0);
    match (running, wanted.or(job.group.spec.min_member)) {
        (None, None) => String::new(),
        (running, None) => running.unwrap_or_default().to_string(),
        (running, Some(wanted)) => format!("{}/{wanted}", running.unwrap_or_default()),
    }
}

/// Formats when it may start: `EARLIEST..LATEST`.
fn start(federation: &FederationStatus) -> String {
    let start = federation.start.as_ref();
    let Some((start, earliest)) = start.and_then(|start| Some((start, start.earliest.as_ref()?)))
    else {
        return String::new();
    };
    let latest = start.latest.as_ref().map(|time| time.0.to_string());
    format!("{}..{}", earliest.0, latest.unwrap_or_default())
}
