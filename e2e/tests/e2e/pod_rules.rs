//! Jobs whose pods have to be on different nodes go to a cluster that has as many; one whose selector no node
//! satisfies gets a message with the label.

use anyhow::ensure;
use e2e::harness::kinds::NODE;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case};
use crate::story::managed;

/// Three nodes in the preferred cluster, four in another.
async fn three_and_four(case: &Case) -> anyhow::Result<()> {
    case.queue(64).await?;
    let policy = json!({"spec": {"placement": {"preferredClusters": ["member1"]}}});
    case.capacity_policy(policy).await?;
    case.nodes("member1", 3).await?;
    case.nodes("member2", 4).await?;
    Ok(())
}

/// Returns required anti-affinity by hostname to pods with this label.
fn apart(label: &str, value: &str) -> Value {
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {label: value}},
    }]}})
}

/// A Volcano Job of four with anti-affinity, and a batch Job of four with a port of the host. A Job of five fits
/// nowhere.
async fn on_four_nodes(case: &Case) -> anyhow::Result<()> {
    three_and_four(case).await?;
    let mut volcano = case.gang("volcano", 4, 1).volcano();
    let name = volcano["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    volcano["spec"]["tasks"][0]["template"]["spec"]["affinity"] =
        apart("volcano.sh/job-name", &name);
    let mut batch = case.gang("batch", 4, 1).batch();
    batch["spec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{"containerPort": 7777, "hostPort": 7777}]);
    for template in [volcano, batch] {
        let job = case.submit(&template).await?;
        ensure!(case.placed(&job).await? == ["member2"], "{}", job.name);
        case.running(&job).await?;
    }
    let mut five = case.gang("five", 5, 1).batch();
    let name = five["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    five["spec"]["template"]["spec"]["affinity"] = apart("job-name", &name);
    let job = case.submit(&five).await?;
    let message = case.waits(&job, &["ExceedsFleet"]).await?;
    ensure!(message.contains("each in another node"), "{message}");
    case.stays_unplaced(&job, A_WHILE).await?;
    case.delete(&job).await?;
    Ok(())
}

/// A selector that no node satisfies, until one gets the label.
async fn no_such_label(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    let nodes = case.nodes("member1", 1).await?;
    let mut template = case.gang("picky", 1, 1).volcano();
    template["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"]["accelerator"] = json!("h900");
    let job = case.submit(&template).await?;
    let says = "no node of any cluster has accelerator=h900";
    let message = case.waits(&job, &["ExceedsFleet"]).await?;
    ensure!(message.contains(says), "{message}");
    let group = case
        .pod_group_when(&job, "says what would help", |group| {
            let helps = group["status"]["federation"]["helps"].as_array();
            helps.is_some_and(|helps| !helps.is_empty())
        })
        .await?;
    let helps = &group["status"]["federation"]["helps"];
    ensure!(helps.to_string().contains(says), "{helps}");
    let member = case.plane.member("member1").await?;
    let labels = json!({"metadata": {"labels": {"accelerator": "h900"}}});
    member.merge(NODE, None, &nodes[0], &labels).await?;
    case.running(&job).await.map(drop)
}

#[test]
fn jobs_whose_pods_must_be_on_four_nodes_go_to_the_cluster_with_four() {
    managed("fournodes", on_four_nodes);
}

#[test]
fn a_selector_that_no_node_satisfies_is_named() {
    managed("nolabel", no_such_label);
}
