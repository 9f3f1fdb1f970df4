//! Running gangs that lose a node: they go on where they are if they can, and start again elsewhere if
//! they cannot.

use anyhow::{Context as _, Error, ensure};
use e2e::harness::kinds::NODE;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::job::{Job, clusters, record};
use crate::spare;
use crate::split::play;
use crate::story::{managed, managed_and_killed};

/// Runs a gang of two whole nodes in member1, of `nodes` that member1 has. Returns the gang and these
/// nodes; member2 has capacity for it too.
async fn gang_in_member1(case: &Case, nodes: u32) -> anyhow::Result<(Job, Vec<String>)> {
    let template = case.gang("train", 2, 8).batch();
    in_member1(case, nodes, &template).await
}

/// As [`gang_in_member1`], with the template of a gang of two whole nodes.
async fn in_member1(
    case: &Case,
    nodes: u32,
    template: &Value,
) -> anyhow::Result<(Job, Vec<String>)> {
    case.queue(16).await?;
    let policy = json!({"spec": {"placement": {
        "preferredClusters": ["member1"], "recoveryDeadlineSeconds": 40,
    }}});
    case.capacity_policy(policy).await?;
    let nodes = case.nodes("member1", nodes).await?;
    case.nodes("member2", 2).await?;
    let job = case.submit(template).await?;
    case.running(&job).await?;
    ensure!(case.placed(&job).await? == ["member1"]);
    Ok((job, nodes))
}

/// Returns the node of one of the job's pods in member1.
async fn a_node_of(case: &Case, job: &Job, nodes: &[String]) -> anyhow::Result<String> {
    let pods = case.pods("member1").await?;
    let runs = |pod: &&Value| job.owns(pod) && pod["status"]["phase"] == "Running";
    let used = pods.iter().filter(runs);
    let used: Vec<&str> = used
        .filter_map(|pod| pod["spec"]["nodeName"].as_str())
        .collect();
    ensure!(used.len() == 2, "{used:?} of {nodes:?}");
    Ok(used[0].to_owned())
}

/// Deletes the node of one of the job's pods in member1.
async fn lose_a_node(case: &Case, job: &Job, nodes: &[String]) -> anyhow::Result<()> {
    let node = a_node_of(case, job, nodes).await?;
    let member = case.plane.member("member1").await?;
    member.delete(NODE, None, &node).await?;
    Ok(())
}

/// Waits until the job says that it lost pods and is placed in member2.
async fn moves_to_member2(case: &Case, job: &Job) -> anyhow::Result<()> {
    case.pod_group_when(job, "says that it lost pods", |group| {
        group["status"]["federation"]["reason"] == "PodsLost"
    })
    .await?;
    case.midway().await?;
    let elsewhere = |binding: &Value| clusters(binding) == ["member2"] && attempt(binding) > 1;
    case.binding_when(job, "placed in member2", elsewhere)
        .await?;
    case.running(job).await?;
    Ok(())
}

fn attempt(binding: &Value) -> u64 {
    record(binding)["attempt"].as_u64().unwrap_or_default()
}

/// No other node of member1 is free: the gang starts again in member2.
async fn moved(case: &Case) -> anyhow::Result<()> {
    let (job, nodes) = gang_in_member1(case, 2).await?;
    lose_a_node(case, &job, &nodes).await?;
    moves_to_member2(case, &job).await?;
    // The pod on the node that is gone stays Terminating: no kubelet confirms its end.
    eventually(SOON, "no pod runs in member1", async || {
        let pods = case.pods("member1").await.map_err(|e| e.to_string())?;
        let runs = |pod: &&Value| job.owns(pod) && pod["metadata"]["deletionTimestamp"].is_null();
        match pods.iter().filter(runs).count() {
            0 => Ok(()),
            left => Err(format!("{left} pods")),
        }
    })
    .await
}

/// Another node of member1 is free: Volcano starts a pod there, and nothing is evicted.
async fn stayed(case: &Case) -> anyhow::Result<()> {
    // A batch Job fails with its first lost pod, unless it has a backoffLimit.
    let template = case.gang("train", 2, 8).volcano();
    let (job, nodes) = in_member1(case, 3, &template).await?;
    let used = spare::nodes_of(case, &job).await.map_err(Error::msg)?;
    let free = nodes.iter().find(|node| !used.contains(node));
    let free = free.context("the gang uses all nodes")?.clone();
    let stays = spare::lose_a_node(case, &job).await?;
    spare::goes_on(case, &job, [stays, free]).await?;
    tokio::time::sleep(A_WHILE).await;
    let binding = case.placed(&job).await?;
    ensure!(binding == ["member1"], "{binding:?}");
    let binding = case.binding_when(&job, "placed", |_| true).await?;
    ensure!(attempt(&binding) == 1, "attempt {}", attempt(&binding));
    Ok(())
}

/// A Job of more completions than pods loses a node after two of its pods have succeeded: these hide no lost pod.
async fn work_queue(case: &Case) -> anyhow::Result<()> {
    let mut template = case.gang("train", 2, 8).batch();
    template["spec"]["completions"] = json!(8);
    template["spec"]["backoffLimit"] = json!(6);
    let (job, nodes) = in_member1(case, 2, &template).await?;
    let well = json!({"muster.io/run-for": "1ms"});
    play(case, &job, |_, _| true, well).await?;
    case.pod_group_when(&job, "runs with two other pods", |group| {
        let status = &group["status"];
        status["succeeded"] == 2 && status["running"] == 2
    })
    .await?;
    lose_a_node(case, &job, &nodes).await?;
    moves_to_member2(case, &job).await
}

/// A node offers fewer devices than the gang's pod uses there, and none come back.
async fn device_lost(case: &Case) -> anyhow::Result<()> {
    let (job, nodes) = gang_in_member1(case, 2).await?;
    let node = a_node_of(case, &job, &nodes).await?;
    let member = case.plane.member("member1").await?;
    let fewer = json!({"status": {"allocatable": {"nvidia.com/gpu": "7"}}});
    member.merge_status(NODE, None, &node, &fewer).await?;
    moves_to_member2(case, &job).await
}

/// A node gets a taint that the gang does not tolerate, with effect NoExecute.
async fn node_emptied(case: &Case) -> anyhow::Result<()> {
    let (job, nodes) = gang_in_member1(case, 2).await?;
    let node = a_node_of(case, &job, &nodes).await?;
    let member = case.plane.member("member1").await?;
    let taint = json!({"spec": {"taints": [{
        "key": "nvidia.com/gpu-xid-error", "value": "79", "effect": "NoExecute",
    }]}});
    member.merge(NODE, None, &node, &taint).await?;
    moves_to_member2(case, &job).await
}

#[test]
fn a_job_of_which_pods_have_succeeded_starts_again_elsewhere_when_it_loses_a_node() {
    managed("queuelost", work_queue);
}

#[test]
fn a_gang_that_loses_a_device_starts_again_where_there_are_enough() {
    managed("lostdevice", device_lost);
}

#[test]
fn a_gang_whose_node_is_emptied_by_a_taint_starts_again_elsewhere() {
    managed("nodetaint", node_emptied);
}

#[test]
fn a_gang_that_loses_a_node_starts_again_where_there_is_capacity() {
    managed("lostnode", moved);
}

#[test]
fn a_gang_that_loses_a_node_starts_again_though_muster_is_killed_meanwhile() {
    managed_and_killed("lostnodekill", moved);
}

#[test]
fn a_gang_that_loses_a_node_goes_on_if_its_cluster_has_another() {
    managed("sparenode", stayed);
}
