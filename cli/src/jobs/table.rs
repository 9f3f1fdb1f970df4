//! The columns of a list of jobs.

use super::{ListedJob, WaitParts};
use crate::age::age;
use crate::args::{Format, JobsCommand};
use crate::output;
use crds::podgroup::FederationStatus;
use jiff::Timestamp;
use kube::ResourceExt;

/// Which columns are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobTable {
    pub(crate) namespace: bool,
    pub(crate) wide: bool,
}

impl JobTable {
    pub(super) fn of(command: &JobsCommand) -> Self {
        Self {
            namespace: command.filter.all_namespaces,
            wide: command.list.output.format == Format::Wide,
        }
    }

    /// Returns the table of jobs that a command is about to change.
    pub(crate) fn preview(jobs: &[ListedJob], namespace: bool) -> String {
        let table = Self {
            namespace,
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
        names.extend([
            "NAME", "KIND", "QUEUE", "STATUS", "REASON", "PRIORITY", "POS", "PODS", "CLUSTERS",
        ]);
        if self.wide {
            names.extend([
                "CLASS", "ATTEMPT", "START", "ELIGIBLE", "ADMITTED", "RUNNING",
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
        cells.extend([
            job.name(),
            job.kind(),
            job.group.spec.queue.clone(),
            job.status().to_string(),
            job.reason().to_owned(),
            number(federation.priority).unwrap_or_default(),
            federation
                .position
                .map(output::position_text)
                .unwrap_or_default(),
            pods(job),
            federation.placement_summary.clone().unwrap_or_default(),
        ]);
        if self.wide {
            let class = job.group.spec.priority_class_name.clone();
            cells.extend([
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

    /// Returns the index of the cell that changes by itself.
    pub(super) fn age_column(self) -> usize {
        let names = self.header();
        let age = names.iter().position(|name| *name == "AGE");
        age.unwrap_or(names.len())
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
