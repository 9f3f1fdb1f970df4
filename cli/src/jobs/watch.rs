//! `jobs --watch`: a line for each change, until the server or the user ends it.

use super::{
    JobList, JobTable, ListedJob, TemplateLabels, ended, is_of, list, name_line, pod_groups,
};
use crate::args::{Format, JobsCommand};
use crate::output::{self, FixedColumns};
use crate::watch::{self, Sink};
use anyhow::Result;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DynamicObject};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// What is printed, and what was.
struct Watched<'a> {
    command: &'a JobsCommand,
    labels: Option<TemplateLabels>,
    table: JobTable,
    columns: FixedColumns,
    /// The cells of each job that do not change by themselves, by UID.
    shown: HashMap<String, Vec<String>>,
}

pub(super) async fn run(
    command: &JobsCommand,
    mut listed: JobList,
    labels: Option<TemplateLabels>,
    client: &Client,
    print: Sink<'_>,
) -> Result<()> {
    let mut watched = Watched::new(command, labels, &listed);
    let api = pod_groups(command.filter.all_namespaces, client);
    print(&watched.header())?;
    loop {
        let text: String = listed
            .jobs
            .iter()
            .map(|job| watched.change(job, false))
            .collect::<Result<_>>()?;
        print(&text)?;
        let version = listed.version();
        watched.follow(&api, version, print).await?;
        listed = list(&command.filter, &mut watched.labels, client).await?;
        ended::hide(&mut listed.jobs, command, Timestamp::now());
    }
}

impl<'a> Watched<'a> {
    fn new(command: &'a JobsCommand, labels: Option<TemplateLabels>, listed: &JobList) -> Self {
        let table = JobTable::of(command);
        let mut columns = FixedColumns::default();
        columns.widen(&table.header());
        let now = Timestamp::now();
        for job in &listed.jobs {
            columns.widen(&table.row(job, now));
        }
        Self {
            command,
            labels,
            table,
            columns,
            shown: HashMap::new(),
        }
    }

    fn header(&mut self) -> String {
        let is_table = matches!(
            self.command.list.output.format,
            Format::Table | Format::Wide
        );
        match is_table && !self.command.list.no_headers {
            true => self.columns.line(&self.table.header()),
            false => String::new(),
        }
    }

    /// Prints changes after `version`. Returns when the server no longer has that version.
    async fn follow(
        &mut self,
        api: &Api<DynamicObject>,
        version: String,
        print: Sink<'_>,
    ) -> Result<()> {
        let mut changed = async |object: DynamicObject, deleted| {
            let job = ListedJob::of(object)?;
            if self.concerns(&job).await? {
                print(&self.change(&job, deleted)?)?;
            }
            Ok(ControlFlow::Continue(()))
        };
        watch::follow(api, version, &mut changed).await
    }

    /// Returns true for a job that the filter selects, or that it selected before.
    async fn concerns(&mut self, job: &ListedJob) -> Result<bool> {
        if self.shown.contains_key(&job.uid()) {
            return Ok(true);
        }
        let selected = match &mut self.labels {
            Some(labels) => labels.selects(job).await?,
            None => true,
        };
        Ok(selected && is_of(&self.command.filter, job))
    }

    /// Returns the line of a job that looks different now; else nothing.
    fn change(&mut self, job: &ListedJob, deleted: bool) -> Result<String> {
        let mut row = self.table.row(job, Timestamp::now());
        let lasting = self.table.lasting(&row);
        if deleted {
            self.shown.remove(&job.uid());
            let status = self
                .table
                .header()
                .iter()
                .position(|name| *name == "STATUS");
            row[status.unwrap_or_default()] = "Deleted".to_owned();
        } else if self.shown.insert(job.uid(), lasting.clone()) == Some(lasting) {
            return Ok(String::new());
        }
        match self.command.list.output.format {
            Format::Name => Ok(name_line(job)),
            Format::Json | Format::Yaml => {
                output::machine(&job.object, self.command.list.output.format)
            }
            Format::Table | Format::Wide => Ok(self.columns.line(&row)),
        }
    }
}

#[cfg(test)]
mod tests;
