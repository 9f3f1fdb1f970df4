//! Spare nodes: a queue keeps a whole node for its large gang. The gang goes on there when it has lost a node,
//! also if the node is lent meanwhile: the job that borrowed it is evicted.

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{CAPACITY_POLICY, NODE};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::contest::SHORT;
use crate::job::{Job, record};
use crate::story::managed;

const MEMBER: &str = "member1";

/// Returns the nodes that this test's queue keeps, as its policy shows them.
async fn spare_nodes(case: &Case) -> Result<Vec<Value>, String> {
    let policy = case.karmada().get(CAPACITY_POLICY, None, &case.name).await;
    let policy = policy.map_err(|error| error.to_string())?;
    let kept = policy.unwrap_or_default()["status"]["spareNodes"].clone();
    Ok(kept.as_array().cloned().unwrap_or_default())
}

/// Waits until this test's queue keeps exactly one node, and returns its name.
async fn keeps(case: &Case, lent: bool) -> anyhow::Result<String> {
    eventually(SOON, &format!("a node is kept, lent: {lent}"), async || {
        let kept = spare_nodes(case).await?;
        match &kept[..] {
            [spare] if spare["cluster"] == MEMBER && spare["lent"] == lent => {
                let node = spare["node"].as_str();
                node.map(str::to_owned).ok_or_else(|| spare.to_string())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// Waits until this test's queue keeps no node.
async fn keeps_none(case: &Case) -> anyhow::Result<()> {
    eventually(SOON, "no node is kept", async || {
        match &spare_nodes(case).await?[..] {
            [] => Ok(()),
            kept => Err(format!("{kept:?}")),
        }
    })
    .await
}

/// Returns the nodes of those pods of a job that run, in the order of their names.
pub(crate) async fn nodes_of(case: &Case, job: &Job) -> Result<Vec<String>, String> {
    let pods = case.pods(MEMBER).await.map_err(|error| error.to_string())?;
    let runs = |pod: &&Value| {
        job.owns(pod)
            && pod["metadata"]["deletionTimestamp"].is_null()
            && pod["status"]["phase"] == "Running"
    };
    let running = pods.iter().filter(runs);
    let nodes = running.filter_map(|pod| pod["spec"]["nodeName"].as_str());
    let mut nodes: Vec<String> = nodes.map(str::to_owned).collect();
    nodes.sort_unstable();
    Ok(nodes)
}

/// Empties a node of the gang by a taint that its pods do not tolerate. Returns the other node.
pub(crate) async fn lose_a_node(case: &Case, gang: &Job) -> anyhow::Result<String> {
    let nodes = nodes_of(case, gang).await.map_err(anyhow::Error::msg)?;
    let [lost, other] = nodes.as_slice() else {
        anyhow::bail!("the gang does not use two nodes: {nodes:?}");
    };
    let taint = json!({"spec": {"taints": [{
        "key": "nvidia.com/gpu-xid-error", "value": "79", "effect": "NoExecute",
    }]}});
    let member = case.plane.member(MEMBER).await?;
    member.merge(NODE, None, lost, &taint).await?;
    Ok(other.clone())
}

/// Waits until the gang runs on these two nodes, and checks that it was never evicted.
pub(crate) async fn goes_on(case: &Case, gang: &Job, mut on: [String; 2]) -> anyhow::Result<()> {
    on.sort_unstable();
    eventually(SOON, &format!("the gang runs on {on:?}"), async || {
        let nodes = nodes_of(case, gang).await?;
        match nodes == on {
            true => Ok(()),
            false => Err(format!("{nodes:?}")),
        }
    })
    .await?;
    let all_run = |group: &Value| group["status"]["running"] == 2;
    case.pod_group_when(gang, "says that all its pods run", all_run)
        .await?;
    let binding = case.binding(gang).await.map_err(anyhow::Error::msg)?;
    let record = record(&binding.context("its binding is gone")?);
    ensure!(record["attempt"] == 1, "it was evicted: {record}");
    Ok(())
}

/// Three nodes: two for a gang, and one that its queue keeps. Both queues deserve what they use, so that neither may
/// reclaim anything from the other.
async fn kept_and_lent(case: &Case) -> anyhow::Result<()> {
    let deserves = |gpus: u32| json!({"deserved": {"nvidia.com/gpu": gpus}});
    case.parent_queue(deserves(24)).await?;
    let small = case.queue_of("small", deserves(8)).await?;
    let policy = json!({"spec": {
        "spare": {"nodes": 1, "forGangsOf": 2}, "placement": {"recoveryDeadlineSeconds": 60},
    }});
    case.capacity_policy(policy).await?;
    case.nodes(MEMBER, 3).await?;
    let gang = case.submit(&case.gang("train", 2, 8).volcano()).await?;
    case.running(&gang).await?;

    // Another job of the queue does not get the node.
    let spare = keeps(case, false).await?;
    let other = case.submit(&case.gang("eval", 1, 8).batch()).await?;
    case.pod_group_when(&other, "waits because of the spare", |group| {
        let message = group["status"]["federation"]["message"].as_str();
        message.is_some_and(|message| message.contains("kept as a spare"))
    })
    .await?;
    // The gang does.
    let stays = lose_a_node(case, &gang).await?;
    goes_on(case, &gang, [stays, spare]).await?;
    keeps_none(case).await?;
    case.waits(&other, &SHORT).await?;
    case.delete(&other).await?;
    case.gone(&other).await?;

    // The next spare node is lent, and given back.
    case.node_group(MEMBER, "more", 1).await?;
    let spare = keeps(case, false).await?;
    let borrower = case.run_in(&small, "borrower", 1, 8).await?;
    ensure!(keeps(case, true).await? == spare, "another node is kept");
    let stays = lose_a_node(case, &gang).await?;
    case.requeued(&borrower, "Reclaimed").await?;
    goes_on(case, &gang, [stays, spare]).await?;
    case.waits(&borrower, &SHORT).await?;
    case.end(&gang).await?;
    case.running(&borrower).await?;
    ensure!(case.placements_of([&gang, &borrower])? == [1, 2]);
    Ok(())
}

#[test]
fn a_gang_goes_on_with_a_spare_node_also_if_it_is_lent() {
    managed("keptspare", kept_and_lent);
}
