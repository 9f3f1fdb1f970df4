//! Acts on jobs: `cancel`, `hold`, `release`, `resume`, `priority` and `move`.
//!
//! Each changes the workload that the user submitted, with the user's rights, as kubectl could: it deletes
//! it, or writes a label. The server refuses what the user may not do. Several jobs are shown first, and
//! changed after a consent.

mod change;
pub(crate) mod consent;
#[cfg(test)]
mod tests;

pub(crate) use change::JobAct;
pub(crate) use consent::ask;

use crate::args::{ActArgs, DryRun, KubectlConnection, NamedJobs, WriteArgs};
use crate::connect;
use crate::jobs::{self, JobTable, ListedJob, TemplateLabels};
use crate::output::ChangedObjects;
use anyhow::{Context, Result, bail, ensure};
use change::JobChange;
use engine::counted;
use kube::api::{
    Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use kube::{Client, ResourceExt};
use runtime::kinds::KindCache;
use serde_json::{Value, json};
use std::process::ExitCode;

/// The name of this program in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "kubectl-muster";

/// Runs the command.
pub(crate) async fn run(
    act: JobAct,
    mut named: NamedJobs,
    connection: &KubectlConnection,
) -> Result<ExitCode> {
    named.check()?;
    let client = connect::connect(connection).await?;
    jobs::mine::resolve(&mut named.act.filter, &client).await?;
    act.check(&client).await?;
    let (jobs, errors) = chosen(&named, &client).await?;
    for error in &errors {
        eprintln!("error: {error:#}");
    }
    if jobs.is_empty() && errors.is_empty() {
        eprintln!("No jobs found");
    }
    let write = &named.act.write;
    if named.is_bulk() && !jobs.is_empty() && write.dry_run == DryRun::None {
        eprint!("{}", preview(&act, &jobs, named.act.filter.all_namespaces));
        ask(named.act.yes)?;
    }
    let done = write_all(&act, &jobs, named.is_bulk(), &named.act, &client).await?;
    match done && errors.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::FAILURE),
    }
}

/// Returns the jobs that are named or selected, and the errors of names that are wrong.
async fn chosen(
    named: &NamedJobs,
    client: &Client,
) -> Result<(Vec<ListedJob>, Vec<anyhow::Error>)> {
    let filter = &named.act.filter;
    let mut labels = TemplateLabels::of(filter, client);
    let listed = jobs::list(filter, &mut labels, client).await?.jobs;
    if filter.selects() {
        return Ok((listed, Vec::new()));
    }
    let place = match filter.all_namespaces {
        true => "any namespace".to_owned(),
        false => format!("namespace {:?}", client.default_namespace()),
    };
    let (chosen, errors) = jobs::choose(&listed, &named.jobs, &place);
    Ok((chosen.into_iter().cloned().collect(), errors))
}

/// Says what will happen to which jobs.
fn preview(act: &JobAct, jobs: &[ListedJob], namespace: bool) -> String {
    let count = counted(jobs.len(), "job");
    let table = JobTable::preview(jobs, namespace);
    format!("{count} will be {}:\n{table}", act.done())
}

/// Changes the jobs one after the other and prints a line for each; `several` says that there may be more than one.
/// Returns true if all succeeded.
async fn write_all(
    act: &JobAct,
    jobs: &[ListedJob],
    several: bool,
    args: &ActArgs,
    client: &Client,
) -> Result<bool> {
    let WriteArgs { dry_run, output } = args.write;
    let kinds = KindCache::new(client.clone());
    let (mut changed, mut done) = (ChangedObjects::new(output.format, several), true);
    for job in jobs {
        match write(act, job, dry_run, &kinds).await {
            Ok(Some((line, object))) => {
                let name = format!("{}\n", job.reference());
                changed.print(&name, &format!("{line}\n"), object)?;
            }
            // The PodGroup outlives it for a moment.
            Ok(None) if args.filter.selects() || *act == JobAct::Cancel => {
                eprintln!("note: {} is gone already", job.reference());
            }
            Ok(None) => {
                done = false;
                eprintln!("error: {}: it is gone", job.reference());
            }
            Err(error) => {
                done = false;
                eprintln!("error: {}: {error:#}", job.reference());
            }
        }
    }
    changed.finish()?;
    Ok(done)
}

/// Changes one job. Returns what was done as a line and the workload as it is now, or nothing if the
/// workload is gone.
async fn write(
    act: &JobAct,
    job: &ListedJob,
    dry_run: DryRun,
    kinds: &KindCache,
) -> Result<Option<(String, DynamicObject)>> {
    let owner = job.template();
    let owner = owner.context("its PodGroup does not say which workload it is of")?;
    let namespace = job.object.namespace().unwrap_or_default();
    let api = kinds.api(&owner.api_version, &owner.kind, &namespace);
    let api = api.await?;
    let found = api.get_opt(&owner.name).await;
    let Some(mut template) = found.map_err(connect::api_error)? else {
        return Ok(None);
    };
    ensure!(
        template.uid().as_ref() == Some(&owner.uid),
        "it was created again meanwhile"
    );
    template.metadata.managed_fields = None;
    let value = serde_json::to_value(&template)?;
    let (done, note) = match act.change(job, &value)? {
        JobChange::Nothing(why) => ("unchanged".to_owned(), why),
        JobChange::Delete(note) => {
            delete(&api, &template, dry_run).await?;
            (act.done(), note)
        }
        JobChange::Merge(patch, note) => {
            template = merge(&api, template, patch, dry_run).await?;
            (act.done(), note)
        }
    };
    let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
    let line = format!("{} {done}{note}{}", job.reference(), dry_run.suffix());
    Ok(Some((line, template)))
}

/// Deletes exactly this object, in the background as kubectl does.
async fn delete(api: &Api<DynamicObject>, template: &DynamicObject, dry_run: DryRun) -> Result<()> {
    if dry_run == DryRun::Client {
        return Ok(());
    }
    let params = DeleteParams {
        dry_run: dry_run == DryRun::Server,
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid: template.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let deleted = api.delete(&template.name_any(), &params).await;
    deleted.map(drop).map_err(connect::api_error)
}

/// Merges `patch` into exactly this object.
pub(crate) async fn merge(
    api: &Api<DynamicObject>,
    object: DynamicObject,
    patch: Value,
    dry_run: DryRun,
) -> Result<DynamicObject> {
    let patched = patched(api, object, patch, dry_run).await?;
    patched.map_err(connect::api_error)
}

/// Does the same, and returns a refusal by the server as a value.
pub(crate) async fn patched(
    api: &Api<DynamicObject>,
    object: DynamicObject,
    mut patch: Value,
    dry_run: DryRun,
) -> Result<kube::Result<DynamicObject>> {
    if dry_run == DryRun::Client {
        let mut value = serde_json::to_value(&object)?;
        json_patch::merge(&mut value, &patch);
        return Ok(Ok(serde_json::from_value(value)?));
    }
    let Some(uid) = object.uid() else {
        bail!("it has no UID");
    };
    patch["metadata"]["uid"] = json!(uid);
    let params = PatchParams {
        dry_run: dry_run == DryRun::Server,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let (name, patch) = (object.name_any(), Patch::Merge(patch));
    let patched = api.patch(&name, &params, &patch).await;
    Ok(patched.map(|mut object| {
        object.metadata.managed_fields = None;
        object
    }))
}
