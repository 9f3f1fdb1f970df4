//! A cluster, by the annotation `muster.io/drain` of its Cluster object.

use crate::acts::{self, merge};
use crate::args::{DrainCommand, DryRun, JobFilter, WriteArgs};
use crate::connect::{self, api_error};
use crate::jobs::{self, JobTable, ListedJob};
use crate::output;
use anyhow::{Result, bail};
use crds::karmada::Cluster;
use crds::names::DRAIN_ANNOTATION;
use engine::counted;
use kube::api::{Api, DynamicObject};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::process::ExitCode;

pub(super) async fn drain(name: &str, command: &DrainCommand, client: &Client) -> Result<ExitCode> {
    let api = connect::objects::<Cluster>(client);
    let cluster = read(&api, name).await?;
    let there = there(name, client).await?;
    if is_drained(&cluster) {
        reply(
            "unchanged (it is drained already)",
            &cluster,
            &command.write,
        )?;
    } else {
        if let Some(jobs) = &there {
            eprint!("{}", preview(name, jobs));
        }
        let asks = there.as_ref().is_none_or(|jobs| !jobs.is_empty());
        if asks && command.write.dry_run == DryRun::None {
            acts::ask(command.yes)?;
        }
        let patch = annotation(json!("true"));
        let cluster = merge(&api, cluster, patch, command.write.dry_run).await?;
        let done = match &there {
            Some(jobs) => format!("drained (it has {})", counted(jobs.len(), "job")),
            None => "drained".to_owned(),
        };
        reply(&done, &cluster, &command.write)?;
    }
    if command.wait && command.write.dry_run == DryRun::None {
        wait(name, client).await?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn undrain(name: &str, write: &WriteArgs, client: &Client) -> Result<ExitCode> {
    let api = connect::objects::<Cluster>(client);
    let cluster = read(&api, name).await?;
    if !is_drained(&cluster) {
        reply("unchanged (it is not drained)", &cluster, write)?;
    } else {
        let cluster = merge(&api, cluster, annotation(Value::Null), write.dry_run).await?;
        reply("undrained", &cluster, write)?;
    }
    if let Some(key) = taint(&cluster_of(&api, name).await?) {
        eprintln!("note: its taint {key} with the effect NoExecute keeps jobs out all the same");
    }
    Ok(ExitCode::SUCCESS)
}

async fn read(api: &Api<DynamicObject>, name: &str) -> Result<DynamicObject> {
    let found = api.get_opt(name).await.map_err(api_error)?;
    let Some(mut cluster) = found else {
        bail!("cluster {name:?} does not exist; kubectl get clusters lists them");
    };
    cluster.metadata.managed_fields = None;
    Ok(cluster)
}

async fn cluster_of(api: &Api<DynamicObject>, name: &str) -> Result<Cluster> {
    connect::typed(&read(api, name).await?)
}

/// Returns the key of a taint that drains a cluster that any user set.
fn taint(cluster: &Cluster) -> Option<&str> {
    let mut taints = cluster.spec.taints.iter();
    let taint = taints.find(|taint| taint.effect == "NoExecute")?;
    Some(&taint.key)
}

fn is_drained(cluster: &DynamicObject) -> bool {
    let value = cluster.annotations().get(DRAIN_ANNOTATION);
    value.is_some_and(|value| value == "true")
}

fn annotation(value: Value) -> Value {
    json!({"metadata": {"annotations": {DRAIN_ANNOTATION: value}}})
}

/// Returns the jobs that hold quota in the cluster; nothing if the user may not list them.
pub(super) async fn there(cluster: &str, client: &Client) -> Result<Option<Vec<ListedJob>>> {
    let all = JobFilter {
        all_namespaces: true,
        ..JobFilter::default()
    };
    let listed = match jobs::list(&all, &mut None, client).await {
        Ok(listed) => listed.jobs,
        Err(error) if connect::is_forbidden(&error) => {
            eprintln!(
                "note: you may not list the jobs of all namespaces, so those in {cluster} are not shown"
            );
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let is_there = |job: &ListedJob| {
        let parts = job.federation().map(|federation| &federation.placement);
        let mut parts = parts.into_iter().flatten();
        job.status().is_admitted() && parts.any(|part| part.cluster == cluster)
    };
    Ok(Some(listed.into_iter().filter(is_there).collect()))
}

/// Says what will happen to which jobs.
pub(super) fn preview(cluster: &str, jobs: &[ListedJob]) -> String {
    if jobs.is_empty() {
        return format!("No job runs in {cluster}.\n");
    }
    format!(
        "{} will be evicted from {cluster}, with all parts, and start again elsewhere when there is room. Those \
         that tolerate {DRAIN_ANNOTATION} stay:\n{}",
        counted(jobs.len(), "job"),
        JobTable::preview(jobs, true)
    )
}

/// Waits until no job is in the cluster.
async fn wait(name: &str, client: &Client) -> Result<()> {
    super::until_none_left("job", &format!("in {name}"), async || {
        let Some(jobs) = there(name, client).await? else {
            bail!("--wait needs the right to list the PodGroups of all namespaces");
        };
        Ok(jobs.len())
    })
    .await?;
    eprintln!("no job runs in {name} any more");
    Ok(())
}

fn reply(done: &str, cluster: &DynamicObject, args: &WriteArgs) -> Result<()> {
    let name = output::name_line::<Cluster>(cluster);
    Ok(output::print(&output::changed(
        &name, done, cluster, args,
    )?)?)
}
