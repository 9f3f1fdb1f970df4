//! Ways past a quota that are none: what pods in members really hold, against the bound.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use e2e::harness::kinds::{DEPLOYMENT, QUEUE};
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::contest::SHORT;
use crate::job::Job;
use crate::story::{managed, managed_and_killed};

/// What a queue or its parent may hold.
const BOUND: u64 = 8;

impl Case {
    /// GPUs that pods of this test request which have not ended, in all members.
    pub(crate) async fn gpus_in_members(&self) -> anyhow::Result<u64> {
        let mut gpus = 0;
        for member in self.members() {
            let pods = self.pods(member).await?;
            let alive = pods.iter().filter(|pod| {
                let phase = pod["status"]["phase"].as_str().unwrap_or_default();
                !matches!(phase, "Succeeded" | "Failed")
            });
            gpus += alive.map(gpus_of).sum::<u64>();
        }
        Ok(gpus)
    }

    /// Watches that members never hold more than `bound` GPUs for this test.
    pub(crate) async fn never_holds_more(&self, bound: u64, time: Duration) -> anyhow::Result<()> {
        never_within(time, "more GPUs than the bound", async || {
            let gpus = self.gpus_in_members().await;
            match gpus.map_err(|error| error.to_string())? {
                gpus if gpus <= bound => Ok(()),
                gpus => Err(format!("{gpus} GPUs of {bound}")),
            }
        })
        .await
    }
}

fn gpus_of(pod: &Value) -> u64 {
    let containers = pod["spec"]["containers"].as_array();
    let containers = containers.into_iter().flatten();
    let gpus = containers.map(|container| {
        let limit = &container["resources"]["limits"]["nvidia.com/gpu"];
        let text = limit.as_str().map(str::to_owned);
        text.unwrap_or_else(|| limit.to_string())
    });
    gpus.filter_map(|text| text.parse::<u64>().ok()).sum()
}

/// A queue below one that may hold 8 GPUs is deleted while its job runs with all of them; then
/// somebody takes off the finalizer that keeps it, and Muster is killed. Its sibling gets nothing
/// before the job has ended.
pub(crate) async fn deleted_child(case: &Case) -> anyhow::Result<()> {
    case.parent_queue(json!({"capability": {"nvidia.com/gpu": BOUND}}))
        .await?;
    let child = || json!({"parent": case.name});
    let (left, right) = (
        case.queue_of("left", child()).await?,
        case.queue_of("right", child()).await?,
    );
    case.nodes("member1", 2).await?;
    let holder = case.gang_in(&left, "holder", 1, 8).volcano();
    let holder = case.submit(&holder).await?;
    case.running(&holder).await?;

    case.karmada().delete(QUEUE, None, &left).await?;
    let orphan = case
        .submit(&case.gang_in(&left, "orphan", 1, 1).volcano())
        .await?;
    case.waits(&orphan, &["QueueClosed"]).await?;
    let waiter = case.gang_in(&right, "waiter", 1, 8).volcano();
    let waiter = case.submit(&waiter).await?;
    case.waits(&waiter, &SHORT).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    ensure!(
        case.karmada().get(QUEUE, None, &left).await?.is_some(),
        "the queue went although its job runs"
    );

    let without = json!({"metadata": {"finalizers": []}});
    case.karmada().merge(QUEUE, None, &left, &without).await?;
    case.midway().await?;
    ensure!(
        case.karmada().get(QUEUE, None, &left).await?.is_none(),
        "the queue is there without any finalizer"
    );
    case.stays_unplaced(&waiter, A_WHILE).await?;
    case.shows_gpus(&case.name, "allocated", 8).await?;
    ensure!(case.gpus_in_members().await? <= BOUND);

    case.end(&holder).await?;
    case.running(&waiter).await?;
    case.waits(&orphan, &["QueueNotFound"]).await?;
    ensure!(case.gpus_in_members().await? <= BOUND);
    Ok(())
}

/// A Deployment that holds all of its queue asks for more in each pod.
pub(crate) async fn raised_requests(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 4).await?;
    let everywhere = json!({"placement": {}});
    case.policy("deployments", DEPLOYMENT, "muster", everywhere)
        .await?;
    let template = case.gang("serve", 2, 4).deployment();
    let serve = case.submit(&template).await?;
    eventually(SOON, "both pods run", async || {
        match case.gpus_in_members().await {
            Ok(8) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let refusal = edited(case, &serve, &raised(&template, 8)).await;
    let Err(refusal) = refusal else {
        bail!("the edit was taken")
    };
    let refusal = format!("{refusal:#}");
    ensure!(
        refusal.contains("cannot grow: nvidia.com/gpu of each pod of main: 4 -> 8"),
        "{refusal}"
    );
    // More replicas wait for quota, with or without other edits.
    edited(case, &serve, &json!({"spec": {"replicas": 4}})).await?;
    case.never_holds_more(BOUND, A_WHILE).await
}

/// What makes a Deployment ask for so many GPUs in each pod.
pub(crate) fn raised(template: &Value, gpus: u32) -> Value {
    let mut pods = template["spec"]["template"].clone();
    pods["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(gpus);
    pods["spec"]["containers"][0]["resources"]["requests"] = Value::Null;
    json!({"spec": {"template": pods}})
}

async fn edited(case: &Case, job: &Job, patch: &Value) -> anyhow::Result<()> {
    let namespace = Some(case.name.as_str());
    let edited = case.karmada().merge(job.kind, namespace, &job.name, patch);
    edited.await.map(drop).context("edit the template")
}

#[test]
fn a_deleted_queue_holds_its_parents_quota_while_its_job_runs() {
    managed_and_killed("deletedqueue", deleted_child);
}

#[test]
fn what_runs_cannot_ask_for_more_in_each_pod() {
    managed("raised", raised_requests);
}
