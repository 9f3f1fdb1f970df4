//! `run`: submits a job without a manifest, and says what happens to it next.

mod manifest;
#[cfg(test)]
mod tests;

use crate::acts::FIELD_MANAGER;
use crate::args::{DryRun, JobFilter, KubectlConnection, RunCommand, WaitGoal};
use crate::connect::{self, api_error};
use crate::jobs::{self, ListedJob};
use crate::output::{self, position_text};
use crate::wait;
use anyhow::{Context, Result};
use crds::names::kubectl_kind;
use kube::api::{DynamicObject, PostParams};
use kube::{Client, ResourceExt};
use runtime::kinds::KindCache;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// For how long Muster is waited for, to say where the job stands.
const SEEN_WITHIN: Duration = Duration::from_secs(8);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(400);

/// Runs the command.
pub(crate) async fn run(args: &RunCommand, connection: &KubectlConnection) -> Result<ExitCode> {
    let client = connect::connect_to_watch(connection).await?;
    let created = create(args, &client).await?;
    let reference = reference(&created);
    let line = output::changed(&format!("{reference}\n"), "created", &created, &args.write)?;
    output::print(&line)?;
    if args.write.dry_run != DryRun::None {
        return Ok(ExitCode::SUCCESS);
    }
    if args.wait {
        let mut say = |line: &str| eprintln!("{line}");
        let code = wait::until(&reference, WaitGoal::Finished, &client, &mut say).await?;
        return Ok(ExitCode::from(code));
    }
    if args.write.output.format.is_table() {
        let job = seen(&created, &client).await?;
        let namespace = connection.namespace.as_deref();
        eprint!("{}", next_steps(args, &created, job.as_ref(), namespace));
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates the job, or returns what would be created.
async fn create(args: &RunCommand, client: &Client) -> Result<DynamicObject> {
    let namespace = client.default_namespace();
    let value = manifest::job(args, namespace);
    let object: DynamicObject = serde_json::from_value(value)?;
    if args.write.dry_run == DryRun::Client {
        return Ok(object);
    }
    let types = object.types.clone().context("a job without a kind")?;
    let kinds = KindCache::new(client.clone());
    let api = kinds
        .api(&types.api_version, &types.kind, namespace)
        .await?;
    let params = PostParams {
        dry_run: args.write.dry_run == DryRun::Server,
        field_manager: Some(FIELD_MANAGER.to_owned()),
    };
    let mut created = api.create(&params, &object).await.map_err(api_error)?;
    created.metadata.managed_fields = None;
    created.types = Some(types);
    Ok(created)
}

/// Returns `job.batch/run-x7k2p`.
fn reference(object: &DynamicObject) -> String {
    let kind = object.types.as_ref();
    let kind = kind.map(|types| kubectl_kind(&types.api_version, &types.kind));
    let generated = object.metadata.generate_name.clone().unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or(generated);
    format!("{}/{name}", kind.unwrap_or_default())
}

/// Returns the job once Muster says what it does; nothing if that takes too long.
async fn seen(created: &DynamicObject, client: &Client) -> Result<Option<ListedJob>> {
    let asked = Instant::now();
    let uid = created.uid();
    while asked.elapsed() < SEEN_WITHIN {
        let listed = jobs::list(&JobFilter::default(), &mut None, client).await?;
        let of_it = |job: &ListedJob| job.template().map(|owner| owner.uid.clone()) == uid;
        let job = listed.jobs.into_iter().find(of_it);
        if let Some(job) = job.filter(|job| !job.reason().is_empty()) {
            return Ok(Some(job));
        }
        sleep(PAUSE).await;
    }
    Ok(None)
}

/// Says where the job stands, and which commands show more of it. `namespace` is that of the command line.
fn next_steps(
    args: &RunCommand,
    created: &DynamicObject,
    job: Option<&ListedJob>,
    namespace: Option<&str>,
) -> String {
    let mut text = format!("Asks for  {}\n", manifest::summary(args));
    text += &match job {
        Some(job) => state(job),
        None => format!(
            "State     Muster has not seen it yet. Is the namespace {} managed (label muster.io/managed=true)?\n",
            created.namespace().unwrap_or_default()
        ),
    };
    let name = created.name_any();
    let place = namespace
        .map(|name| format!(" -n {name}"))
        .unwrap_or_default();
    for (index, verb) in ["explain", "logs -f", "wait", "cancel"]
        .into_iter()
        .enumerate()
    {
        let before = if index == 0 { "Next" } else { "" };
        text += &format!("{before:<10}kubectl muster {verb} {name}{place}\n");
    }
    text
}

/// Says in which queue the job waits, at which place and until when.
fn state(job: &ListedJob) -> String {
    let federation = job.federation();
    let position = federation.and_then(|federation| federation.position);
    let place = position.map(|position| format!(", position {}", position_text(position)));
    let mut text = format!(
        "State     {}: {} (queue {}{})\n",
        job.status(),
        job.reason(),
        job.group.spec.queue,
        place.unwrap_or_default()
    );
    let start = federation.and_then(|federation| federation.start.as_ref());
    if let Some(earliest) = start.and_then(|start| start.earliest.as_ref()) {
        let latest = start.and_then(|start| start.latest.as_ref());
        let latest = latest.map_or("not known".to_owned(), |time| time.0.to_string());
        text += &format!("Start     from {} to {latest}\n", earliest.0);
    }
    text
}
