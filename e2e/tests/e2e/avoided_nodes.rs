//! Nodes that are avoided: by what jobs report of them and by their own conditions, as a FaultPolicy says.

use anyhow::ensure;
use e2e::harness::kinds::{CLUSTER, EVENT, FAULT_POLICY, GPU_POOL, NODE, NODE_REMEDIATION};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use testbed::NodeGroup;

use crate::case::{Case, SOON, brief};
use crate::job::record;
use crate::story::{managed, managed_and_killed};

const MEMBER: &str = "member1";
/// GKE's label of a node for which maintenance is planned: when it begins, in seconds.
const MAINTENANCE: &str = "cloud.google.com/scheduled-maintenance-time";

/// Prepares a queue, a FaultPolicy with `rule`, and one node in each of two members, of which member1 is
/// preferred. Returns the node in member1.
async fn with_rule(case: &Case, rule: Value) -> anyhow::Result<String> {
    case.queue(32).await?;
    let policy = json!({"spec": {"placement": {"preferredClusters": [MEMBER]}}});
    case.capacity_policy(policy).await?;
    let policy = json!({"metadata": {"name": case.name}, "spec": {"rules": [rule]}});
    case.cluster_object(FAULT_POLICY, &policy).await?;
    let nodes = case.nodes(MEMBER, 1).await?;
    case.nodes("member2", 1).await?;
    Ok(nodes[0].clone())
}

/// Waits until `node` has the taint, or has it no more.
async fn is_avoided(case: &Case, node: &str, avoided: bool) -> anyhow::Result<Value> {
    let member = case.plane.member(MEMBER).await?;
    let what = format!(
        "node {node} {} avoided",
        if avoided { "is" } else { "is not" }
    );
    eventually(SOON, &what, async || {
        let found = member.get(NODE, None, node).await;
        let found = found
            .map_err(|error| error.to_string())?
            .unwrap_or_default();
        let taints = found["spec"]["taints"].as_array();
        let has = taints
            .is_some_and(|taints| taints.iter().any(|taint| taint["key"] == "muster.io/avoid"));
        (has == avoided)
            .then_some(found.clone())
            .ok_or_else(|| brief(&found["spec"]))
    })
    .await
}

/// Waits until a GpuPool names `node` with this rule.
async fn is_shown(case: &Case, node: &str, rule: &str) -> anyhow::Result<()> {
    eventually(SOON, "a GpuPool names the node", async || {
        let pools = case.karmada().list(GPU_POOL, None).await;
        let pools = pools.map_err(|error| error.to_string())?;
        let named = pools
            .iter()
            .filter_map(|pool| pool["status"]["avoidedNodes"].as_array());
        let named: Vec<&Value> = named.flatten().collect();
        let is_right = |shown: &&&Value| shown["node"] == node && shown["rule"] == rule;
        named
            .iter()
            .find(is_right)
            .map(|_| ())
            .ok_or_else(|| format!("{named:?}"))
    })
    .await
}

/// Clears `node` at the control plane, as a person would.
async fn clear(case: &Case, node: &str) -> anyhow::Result<()> {
    let karmada = case.karmada();
    eventually(SOON, "the node is cleared", async || {
        let cluster = karmada.get(CLUSTER, None, MEMBER).await;
        let cluster = cluster.map_err(|error| error.to_string())?;
        let metadata = &cluster.unwrap_or_default()["metadata"];
        // Other stories clear other nodes of the same cluster.
        let before = metadata["annotations"]["muster.io/cleared-nodes"].as_str();
        let cleared = format!("{},{node}={}", before.unwrap_or_default(), now());
        let annotations = json!({"muster.io/cleared-nodes": cleared});
        let version = &metadata["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
        let patched = karmada.merge(CLUSTER, None, MEMBER, &patch).await;
        patched.map(drop).map_err(|error| error.to_string())
    })
    .await
}

/// Waits for an event of the Cluster with this text.
async fn has_event(case: &Case, text: &str) -> anyhow::Result<()> {
    eventually(SOON, "the Cluster has the event", async || {
        let events = case.karmada().list(EVENT, Some("default")).await;
        let events = events.map_err(|error| error.to_string())?;
        let notes = events.iter().filter_map(|event| event["message"].as_str());
        let notes: Vec<&str> = notes.collect();
        notes
            .iter()
            .find(|note| note.contains(text))
            .map(|_| ())
            .ok_or_else(|| format!("{notes:?}"))
    })
    .await
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// Submits a job of one whole node and returns the cluster in which it runs.
async fn runs_in(case: &Case, name: &str) -> anyhow::Result<Vec<String>> {
    let job = case.submit(&case.gang(name, 1, 8).batch()).await?;
    case.running(&job).await?;
    let clusters = case.placed(&job).await?;
    case.delete(&job).await?;
    case.gone(&job).await?;
    Ok(clusters)
}

/// Two jobs report a fault of the node: later jobs are placed elsewhere, until a person clears the node.
async fn by_failed_jobs(case: &Case) -> anyhow::Result<()> {
    let fault = format!("{} fell off the bus", case.name);
    let rule = json!({
        "name": "off-the-bus", "class": "Device", "match": {"pod": {"messages": [fault]}},
        "actions": [{"type": "AvoidNode", "avoidNode": {"jobs": 2, "namespaces": 1, "avoidSeconds": 3600}}],
    });
    let node = with_rule(case, rule).await?;
    for (name, is_last) in [("first", false), ("second", true)] {
        let mut job = case.gang(name, 1, 8).batch();
        let annotations = &mut job["spec"]["template"]["metadata"]["annotations"];
        annotations["muster.io/wait-with"] = json!("CreateContainerError");
        annotations["muster.io/wait-message"] = json!(fault);
        let job = case.submit(&job).await?;
        case.pod_group_when(&job, "says what keeps its pod", |group| {
            let message = group["status"]["federation"]["message"].as_str();
            message.is_some_and(|message| message.contains("fell off the bus"))
        })
        .await?;
        ensure!(case.placed(&job).await? == [MEMBER]);
        if is_last {
            let tainted = is_avoided(case, &node, true).await?;
            let why = &tainted["metadata"]["annotations"]["muster.io/avoidance"];
            let why = why.as_str().unwrap_or_default();
            ensure!(
                why.contains("2 jobs failed there") && why.contains("until"),
                "{why}"
            );
        }
        case.delete(&job).await?;
        case.gone(&job).await?;
    }
    is_shown(case, &node, "off-the-bus").await?;
    ensure!(runs_in(case, "third").await? == ["member2"]);
    has_event(case, &format!("node {node} is avoided until")).await?;
    clear(case, &node).await?;
    is_avoided(case, &node, false).await?;
    has_event(case, &format!("node {node} is avoided no more: a person")).await?;
    ensure!(runs_in(case, "fourth").await? == [MEMBER]);
    Ok(())
}

/// A node has a condition that means a fault: it is avoided while it has it.
async fn by_condition(case: &Case) -> anyhow::Result<()> {
    let condition = format!("Fault-{}", case.name);
    let rule = json!({"name": "memory", "class": "Device", "match": {"node": {"conditions": [condition]}}});
    let node = with_rule(case, rule).await?;
    let member = case.plane.member(MEMBER).await?;
    let set = async |status: &str| {
        let condition = json!({
            "type": condition, "status": status, "message": "row remap failed", "lastTransitionTime": now(),
        });
        let ready = json!({"type": "Ready", "status": "True"});
        let conditions = json!({"status": {"conditions": [ready, condition]}});
        member.merge_status(NODE, None, &node, &conditions).await
    };
    set("True").await?;
    is_avoided(case, &node, true).await?;
    is_shown(case, &node, "memory").await?;
    case.midway().await?;
    ensure!(runs_in(case, "first").await? == ["member2"]);
    // A person says that it works, although the condition is still True; it counts once it begins again.
    clear(case, &node).await?;
    is_avoided(case, &node, false).await?;
    set("False").await?;
    set("True").await?;
    is_avoided(case, &node, true).await?;
    set("False").await?;
    is_avoided(case, &node, false).await?;
    ensure!(runs_in(case, "second").await? == [MEMBER]);
    Ok(())
}

#[test]
fn a_node_on_which_jobs_fail_is_avoided_until_it_is_cleared() {
    managed("lemonnode", by_failed_jobs);
}

#[test]
fn a_node_with_a_condition_that_means_a_fault_is_avoided_while_it_has_it() {
    managed_and_killed("nodecondition", by_condition);
}

/// Says when a node of member1 ends.
async fn ends_in(case: &Case, node: &str, seconds: i64) -> anyhow::Result<()> {
    let at = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + seconds)?;
    let patch = json!({"metadata": {"annotations": {"muster.io/ends-at": at.to_string()}}});
    let member = case.plane.member(MEMBER).await?;
    member.merge(NODE, None, node, &patch).await?;
    Ok(())
}

/// A node of member1 ends: a job that would run past its end goes elsewhere, one that ends before goes there, and
/// moves when the end comes too near.
async fn by_its_end(case: &Case) -> anyhow::Result<()> {
    case.queue(32).await?;
    let policy = json!({"spec": {"placement": {"preferredClusters": [MEMBER]}}});
    case.capacity_policy(policy).await?;
    case.nodes("member2", 1).await?;
    // From its creation the node says when it ends, by GKE's label: so no job is placed before Muster knows.
    let end = jiff::Timestamp::now().as_second() + 900;
    let group = NodeGroup {
        prefix: Some(format!("{}-n", case.name)),
        product: Some(case.product.clone()),
        labels: BTreeMap::from([(MAINTENANCE.to_owned(), end.to_string())]),
        ..NodeGroup::default()
    };
    let node = case.nodes_like(MEMBER, &group).await?[0].clone();
    ensure!(runs_in(case, "unknown").await? == ["member2"]);
    let mut short = case.gang("short", 1, 8).batch();
    short["metadata"]["annotations"]["muster.io/expected-duration"] = json!("2m");
    let short = case.submit(&short).await?;
    case.running(&short).await?;
    ensure!(case.placed(&short).await? == [MEMBER]);
    ends_in(case, &node, 120).await?;
    is_avoided(case, &node, true).await?;
    eventually(SOON, "the job has moved", async || {
        let placed = case
            .placed(&short)
            .await
            .map_err(|error| error.to_string())?;
        (placed == ["member2"])
            .then_some(())
            .ok_or_else(|| format!("{placed:?}"))
    })
    .await?;
    case.running(&short).await.map(drop)
}

#[test]
fn jobs_leave_a_node_before_it_ends_and_longer_ones_do_not_come() {
    managed("endingnode", by_its_end);
}

/// Waits until the pod of a job in member1 has a node other than `but`, and returns it.
async fn node_of_pod(case: &Case, but: &str) -> anyhow::Result<String> {
    eventually(SOON, "the pod has a node", async || {
        let pods = case.pods(MEMBER).await.map_err(|error| error.to_string())?;
        let nodes = pods
            .iter()
            .filter_map(|pod| pod["spec"]["nodeName"].as_str());
        let nodes: Vec<&str> = nodes.collect();
        match nodes.as_slice() {
            [node] if *node != but => Ok((*node).to_owned()),
            others => Err(format!("{others:?}")),
        }
    })
    .await
}

/// The pod of a job does not start on a node: the next attempt of the job is placed on another one, which its
/// members know by the affinity of the pod. Other jobs still use the node.
async fn by_one_job(case: &Case) -> anyhow::Result<()> {
    let fault = format!("{} does not work here", case.name);
    case.queue(32).await?;
    let policy = json!({"spec": {"placement": {"startDeadlineSeconds": 15}}});
    case.capacity_policy(policy).await?;
    let rule = json!({
        "name": "unknown", "class": "Node", "match": {"pod": {"messages": [fault]}},
        "actions": [{"type": "AvoidNodeForJob", "avoidNodeForJob": {"avoidSeconds": 3600}}],
    });
    let policy = json!({"metadata": {"name": case.name}, "spec": {"rules": [rule]}});
    case.cluster_object(FAULT_POLICY, &policy).await?;
    case.nodes(MEMBER, 2).await?;
    let mut job = case.gang("train", 1, 8).volcano();
    let annotations = &mut job["spec"]["tasks"][0]["template"]["metadata"]["annotations"];
    annotations["muster.io/wait-with"] = json!("CreateContainerError");
    annotations["muster.io/wait-message"] = json!(fault);
    let job = case.submit(&job).await?;
    let first = node_of_pod(case, "").await?;
    case.midway().await?;
    case.binding_when(&job, "dispatched with the affinity", |binding| {
        let record = record(binding);
        record["attempt"] == 2 && record["whole"] == true && record["parts"] == "Dispatched"
    })
    .await?;
    let second = node_of_pod(case, &first).await?;
    // It is the affinity that keeps the pod off, and the node has no taint.
    let pod = case.pods(MEMBER).await?.pop().unwrap_or_default();
    let affinity = pod["spec"]["affinity"]["nodeAffinity"].to_string();
    ensure!(
        affinity.contains(&first) && !affinity.contains(&second),
        "{affinity}"
    );
    ensure!(runs_in(case, "other").await? == [MEMBER]);
    Ok(())
}

#[test]
fn a_job_keeps_off_the_node_where_its_pod_did_not_start() {
    managed("offnode", by_one_job);
}

/// Posts the alert of a node as Alertmanager does.
async fn alert(case: &Case, node: &str, status: &str) -> anyhow::Result<()> {
    let labels = json!({"alertname": case.name, "cluster": MEMBER, "node": node});
    let alert = json!({
        "status": status, "labels": labels, "annotations": {"summary": "row remap failed"}, "startsAt": now(),
        "fingerprint": "f",
    });
    let body = json!({"version": "4", "status": status, "alerts": [alert]}).to_string();
    let muster = &case.plane.muster;
    let posted = muster.post(&case.plane.testbed, ProcessRole::All, "/alerts", &body);
    let answer = posted.await?;
    ensure!(answer.contains(" 200 OK"), "{answer}");
    Ok(())
}

/// Waits until the NodeRemediation is there, or is there no more.
async fn is_requested(case: &Case, name: &str, requested: bool) -> anyhow::Result<Value> {
    eventually(SOON, "the NodeRemediation", async || {
        let found = case.karmada().get(NODE_REMEDIATION, None, name).await;
        let found = found.map_err(|error| error.to_string())?;
        (found.is_some() == requested)
            .then(|| found.clone().unwrap_or_default())
            .ok_or_else(|| format!("{found:?}"))
    })
    .await
}

/// An alert fires for a node: it is avoided, and an operator is asked to repair it. The node returns when the operator
/// has, and when the alert is resolved.
async fn by_alert(case: &Case) -> anyhow::Result<()> {
    let rule = json!({
        "name": "alert", "class": "Device", "match": {"alert": {"names": [case.name]}},
        "actions": [{"type": "Remediate", "remediate": {"action": "Reboot"}}],
    });
    let node = with_rule(case, rule).await?;
    // Alertmanager repeats an alert, too: the first may come before Muster has seen the rule and the node.
    eventually(SOON, "a repeated alert has an effect", async || {
        let posted = alert(case, &node, "firing").await;
        posted.map_err(|error| format!("{error:#}"))?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let found = case.plane.member(MEMBER).await;
        let found = found.map_err(|error| format!("{error:#}"))?;
        let found = found.get(NODE, None, &node).await;
        let found = found
            .map_err(|error| error.to_string())?
            .unwrap_or_default();
        let why = &found["metadata"]["annotations"]["muster.io/avoidance"];
        why.is_string()
            .then_some(())
            .ok_or_else(|| brief(&found["metadata"]))
    })
    .await?;
    is_avoided(case, &node, true).await?;
    is_shown(case, &node, "alert").await?;
    let name = format!("{MEMBER}.{node}");
    let asked = is_requested(case, &name, true).await?;
    ensure!(asked["spec"]["action"] == "Reboot", "{asked}");
    ensure!(runs_in(case, "first").await? == ["member2"]);
    let condition = json!({
        "type": "Succeeded", "status": "True", "reason": "Rebooted", "message": "", "lastTransitionTime": now(),
    });
    let status = json!({"status": {"conditions": [condition]}});
    let karmada = case.karmada();
    karmada
        .merge_status(NODE_REMEDIATION, None, &name, &status)
        .await?;
    is_avoided(case, &node, false).await?;
    is_requested(case, &name, false).await?;
    ensure!(runs_in(case, "second").await? == [MEMBER]);
    // It fires again.
    alert(case, &node, "resolved").await?;
    alert(case, &node, "firing").await?;
    is_avoided(case, &node, true).await?;
    alert(case, &node, "resolved").await?;
    is_avoided(case, &node, false).await?;
    is_requested(case, &name, false).await?;
    Ok(())
}

#[test]
fn a_node_for_which_an_alert_fires_is_avoided_until_it_is_repaired_or_the_alert_is_resolved() {
    managed("nodealert", by_alert);
}
