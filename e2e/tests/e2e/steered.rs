//! Jobs and queues that people steer with plain kubectl: hold, priority, stopped queues.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::CAPACITY_POLICY;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::tools::Tool;
use tokio::process::Command;

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, condition};
use crate::story::managed;

/// The reasons of a job that waits for the job that holds all of the quota.
const BEHIND: [&str; 3] = ["WaitingForQuota", "ReservedForAnother", "NextInLine"];

/// Sets a label of a job, or removes it.
async fn label(case: &Case, job: &Job, label: &str, value: Value) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"labels": {label: value}}});
    let namespace = Some(job.namespace.as_str());
    case.karmada()
        .merge(job.kind, namespace, &job.name, &patch)
        .await?;
    Ok(())
}

/// Runs the kubectl command that a message ends with.
pub(crate) async fn follow(case: &Case, message: &str) -> anyhow::Result<()> {
    let (_, arguments) = message.split_once("kubectl ").context("a command")?;
    kubectl(case, arguments).await
}

/// Runs a kubectl command line as the administrator.
pub(crate) async fn kubectl(case: &Case, arguments: &str) -> anyhow::Result<()> {
    let kubectl = case.plane.tools.program(Tool::Kubectl)?;
    let script = format!("\"$KUBECTL\" {arguments}");
    let mut command = Command::new("sh");
    let command = command
        .args(["-c", &script])
        .env("KUBECTL", kubectl)
        .env("KUBECONFIG", case.plane.testbed.karmada().kubeconfig)
        .kill_on_drop(true);
    let output = command.output().await.context("run kubectl")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments}: {said}");
    Ok(())
}

async fn stop(case: &Case, policy: &str) -> anyhow::Result<()> {
    case.capacity_policy(json!({"spec": {"stopPolicy": policy}}))
        .await
}

/// Waits until the queue's policy reports this status and reason of the condition `Open`.
async fn open(case: &Case, status: &str, reason: &str) -> anyhow::Result<()> {
    eventually(SOON, &format!("Open is {status}: {reason}"), async || {
        let policy = case.karmada().get(CAPACITY_POLICY, None, &case.name).await;
        let policy = policy.map_err(|error| error.to_string())?;
        let policy = policy.unwrap_or_default();
        let open = condition(&policy, "Open");
        match open["status"] == status && open["reason"] == reason {
            true => Ok(()),
            false => Err(open.to_string()),
        }
    })
    .await
}

/// Waits until the job is the next of its queue.
async fn is_next(case: &Case, job: &Job) -> anyhow::Result<()> {
    let first = |group: &Value| group["status"]["federation"]["position"] == 1;
    case.pod_group_when(job, "next", first).await.map(drop)
}

async fn by_labels(case: &Case) -> anyhow::Result<()> {
    let urgent = case.priority_class("urgent", 100).await?;
    case.queue(8).await?;
    case.nodes("member1", 1).await?;

    // A held job waits although there is room, and starts once the label is gone.
    let mut held = case.gang("held", 1, 8).volcano();
    held["metadata"]["labels"]["muster.io/hold"] = json!("true");
    let held = case.submit(&held).await?;
    let message = case.waits(&held, &["OnHold"]).await?;
    case.stays_unplaced(&held, A_WHILE).await?;
    follow(case, &message).await?;
    case.running(&held).await?;
    label(case, &held, "muster.io/hold", json!("true")).await?;

    // A raise passes the earlier job.
    let early = case.submit(&case.gang("early", 1, 8).batch()).await?;
    case.waits(&early, &BEHIND).await?;
    let late = case.submit(&case.gang("late", 1, 8).volcano()).await?;
    case.waits(&late, &BEHIND).await?;
    is_next(case, &early).await?;
    let raised = Instant::now();
    label(case, &late, "muster.io/priority-class", json!(urgent)).await?;
    is_next(case, &late).await?;
    println!("MEASURED raised {} ms", raised.elapsed().as_millis());
    case.running(&held).await?;
    case.end(&held).await?;
    case.running(&late).await?;

    // On hold, the queue keeps what runs; drained, it evicts that, too.
    stop(case, "Hold").await?;
    case.waits(&early, &["QueueStopped"]).await?;
    open(case, "False", "QueueStopped").await?;
    case.running(&late).await?;
    stop(case, "HoldAndDrain").await?;
    case.waits(&late, &["QueueStopped"]).await?;
    case.shows_gpus(&case.name, "allocated", 0).await?;
    case.stays_unplaced(&late, A_WHILE).await?;
    let message = case.waits(&early, &["QueueStopped"]).await?;
    follow(case, &message).await?;
    open(case, "True", "Open").await?;
    case.running(&late).await?;
    case.waits(&early, &BEHIND).await?;
    assert_eq!(case.placements(&late)?, 2);
    assert_eq!(case.placements(&early)?, 0);
    Ok(())
}

#[test]
fn jobs_and_queues_are_steered_by_plain_labels_and_a_stop_policy() {
    managed("steered", by_labels);
}
