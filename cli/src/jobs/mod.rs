//! `jobs`: the jobs that Muster manages, as their PodGroups on the control plane show them.

mod ended;
mod labels;
pub(crate) mod mine;
mod named;
mod order;
mod table;
mod unadmitted;
mod wait_parts;
mod watch;

pub(crate) use labels::TemplateLabels;
pub(crate) use named::{choose, is_called, is_not_found};
pub(crate) use table::JobTable;
pub(crate) use wait_parts::WaitParts;

use crate::args::{Format, JobFilter, JobsCommand};
use crate::connect;
use crate::output;
use anyhow::Result;
use crds::names::kubectl_kind;
use crds::podgroup::{FederationStatus, PodGroup, PodGroupCondition, StatusWord, condition_type};
use engine::counted;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DynamicObject, ListParams, ObjectList};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};

/// A job, by its PodGroup.
#[derive(Debug, Clone)]
pub(crate) struct ListedJob {
    /// The PodGroup as the server has it, without managed fields.
    pub(crate) object: DynamicObject,
    pub(crate) group: PodGroup,
}

impl ListedJob {
    pub(crate) fn of(mut object: DynamicObject) -> Result<Self> {
        object.metadata.managed_fields = None;
        let group: PodGroup = connect::typed(&object)?;
        let group = group.with_annotated_federation();
        Ok(Self { object, group })
    }

    /// Returns the workload, which the user submitted; it owns the PodGroup.
    pub(crate) fn template(&self) -> Option<&OwnerReference> {
        self.group.metadata.owner_references.iter().flatten().next()
    }

    pub(crate) fn uid(&self) -> String {
        self.object.uid().unwrap_or_default()
    }

    /// Returns the name of the workload.
    pub(crate) fn name(&self) -> String {
        match self.template() {
            Some(owner) => owner.name.clone(),
            None => self.object.name_any(),
        }
    }

    /// Returns its kind as kubectl prints it: `job.batch`.
    pub(crate) fn kind(&self) -> String {
        match self.template() {
            Some(owner) => kubectl_kind(&owner.api_version, &owner.kind),
            None => kubectl_kind(&self.group.api_version, &self.group.kind),
        }
    }

    /// Returns `job.batch/train`.
    pub(crate) fn reference(&self) -> String {
        format!("{}/{}", self.kind(), self.name())
    }

    /// Returns its status in the federation, if it has been published.
    pub(crate) fn federation(&self) -> Option<&FederationStatus> {
        self.group.status.as_ref()?.federation.as_ref()
    }

    /// Returns its status as published. An earlier version of Muster publishes none: then it follows from the
    /// phase and the reason.
    pub(crate) fn status(&self) -> StatusWord {
        let published = self.federation().and_then(FederationStatus::status_word);
        let status = self.group.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        published.unwrap_or_else(|| StatusWord::of(phase.unwrap_or_default(), self.reason()))
    }

    /// Returns why it waits, or what it does, in one word.
    pub(crate) fn reason(&self) -> &str {
        let federation = self.federation();
        let reason = federation.and_then(|federation| federation.reason.as_deref());
        let of_condition = || Some(self.telling_condition()?.reason.as_str());
        reason.or_else(of_condition).unwrap_or_default()
    }

    /// Returns the same as a sentence.
    pub(crate) fn message(&self) -> &str {
        let federation = self.federation();
        let message = federation.and_then(|federation| federation.message.as_deref());
        let of_condition = || Some(self.telling_condition()?.message.as_str());
        message.or_else(of_condition).unwrap_or_default()
    }

    /// Returns the condition that says most: the end, else the first step that is not done, else the last
    /// one that is.
    fn telling_condition(&self) -> Option<&PodGroupCondition> {
        let conditions = &self.group.status.as_ref()?.conditions;
        let of = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
        let finished = of(condition_type::FINISHED).filter(|condition| condition.status == "True");
        let steps = [
            condition_type::ADMITTED,
            condition_type::PLACED,
            condition_type::READY,
        ];
        let undone = || {
            let mut steps = steps.iter().filter_map(|step| of(step));
            steps.find(|condition| condition.status != "True")
        };
        finished
            .or_else(undone)
            .or_else(|| of(condition_type::READY))
    }
}

/// The jobs at one moment.
pub(crate) struct JobList {
    pub(crate) jobs: Vec<ListedJob>,
    /// The list without its items.
    head: ObjectList<DynamicObject>,
}

impl JobList {
    /// Returns the version from which changes of them can be watched.
    pub(crate) fn version(&self) -> String {
        self.head
            .metadata
            .resource_version
            .clone()
            .unwrap_or_default()
    }
}

/// Returns the PodGroups of the namespace, or of all.
pub(crate) fn pod_groups(everywhere: bool, client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<PodGroup>(&());
    match everywhere {
        true => Api::all_with(client.clone(), &kind),
        false => Api::namespaced_with(client.clone(), client.default_namespace(), &kind),
    }
}

/// Returns the jobs of `filter` in their order.
pub(crate) async fn list(
    filter: &JobFilter,
    labels: &mut Option<TemplateLabels>,
    client: &Client,
) -> Result<JobList> {
    let api = pod_groups(filter.all_namespaces, client);
    let mut head = connect::list(&api, &ListParams::default(), "PodGroups").await?;
    let all = std::mem::take(&mut head.items).into_iter();
    let mut jobs = all.map(ListedJob::of).collect::<Result<Vec<_>>>()?;
    jobs.retain(|job| is_of(filter, job));
    if let Some(labels) = labels {
        labels.retain(&mut jobs).await?;
    }
    order::sort(&mut jobs);
    Ok(JobList { jobs, head })
}

/// Returns true for a job of the user, in the queue and in one of the states of `filter`.
fn is_of(filter: &JobFilter, job: &ListedJob) -> bool {
    let in_queue = |queue: &String| *queue == job.group.spec.queue;
    let user = job
        .federation()
        .and_then(|federation| federation.user.as_ref());
    filter.queue.as_ref().is_none_or(in_queue)
        && (filter.user_name.is_none() || filter.user_name.as_ref() == user)
        && (filter.status.is_empty() || filter.status.contains(&job.status()))
}

/// Runs the command. Only `--watch` prints by itself, and then it ends only with an error.
pub(crate) async fn run(command: &JobsCommand, client: &Client) -> Result<String> {
    let command = &mine::resolved(command, client).await?;
    let mut labels = TemplateLabels::of(&command.filter, client);
    let mut listed = list(&command.filter, &mut labels, client).await?;
    let now = Timestamp::now();
    let hidden = ended::hide(&mut listed.jobs, command, now);
    order::sort_by(&mut listed.jobs, command.sort_by, now);
    if hidden > 0 {
        let ended = counted(hidden, "job");
        eprintln!(
            "note: {ended} that ended more than an hour ago left out; --all or --since shows them"
        );
    }
    if command.list.watch {
        watch::run(command, listed, labels, client, &mut output::print).await?;
        return Ok(String::new());
    }
    match command.list.output.format {
        Format::Name => Ok(listed.jobs.iter().map(name_line).collect()),
        Format::Json | Format::Yaml => {
            let mut objects = listed.head;
            objects.items = listed.jobs.into_iter().map(|job| job.object).collect();
            output::machine(&objects, command.list.output.format)
        }
        Format::Table | Format::Wide if listed.jobs.is_empty() => {
            Ok("No jobs found\n".to_owned() + &unadmitted::footer(&command.filter, client).await)
        }
        Format::Table | Format::Wide => {
            let table = JobTable::of(command);
            let header = (!command.list.no_headers).then(|| table.header());
            let rows = listed.jobs.iter().map(|job| table.row(job, now));
            let table = output::table(header, rows);
            Ok(table + &unadmitted::footer(&command.filter, client).await)
        }
    }
}

/// Formats `job.batch/train`, which the commands that act on jobs take as the name of one.
fn name_line(job: &ListedJob) -> String {
    format!("{}\n", job.reference())
}

#[cfg(test)]
pub(crate) mod tests;
