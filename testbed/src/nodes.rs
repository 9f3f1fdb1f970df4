//! Nodes of a member, which KWOK simulates; they can be added, cordoned and deleted at any time.
//!
//! A node is what an API server and a scheduler see of it; it runs only KWOK's stages.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::error::{Error, Result, describe};
use crate::spec::{NodeGroup, NodeTaint};

/// The extended resource of GPUs.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";
/// The label with the GPU's product.
pub const GPU_PRODUCT_LABEL: &str = "nvidia.com/gpu.product";

const CONCURRENCY: usize = 8;

/// Creates the nodes of a group in `member` and returns their names. They become Ready a moment
/// later.
///
/// # Errors
/// Returns an error if the group is invalid, or the API server refuses a node, for instance because
/// one of that name exists.
pub async fn create(client: &Client, member: &str, group: &NodeGroup) -> Result<Vec<String>> {
    group.validate()?;
    let names = group.node_names(member);
    let api: Api<Node> = Api::all(client.clone());
    let create = |name: String| {
        let api = api.clone();
        async move {
            let created = api
                .create(&PostParams::default(), &node(&name, group))
                .await;
            created
                .map(drop)
                .map_err(Error::kube(format!("create node {name} in {member}")))
        }
    };
    let creations = stream::iter(names.clone()).map(create);
    creations
        .buffer_unordered(CONCURRENCY)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(names)
}

/// Deletes nodes; a missing node is no error. The pod garbage collector deletes their pods, as in a
/// real cluster.
///
/// # Errors
/// Returns an error if the API server refuses.
pub async fn delete(client: &Client, member: &str, names: &[String]) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for name in names {
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => {
                return Err(Error::kube(format!("delete node {name} in {member}"))(
                    error,
                ));
            }
        }
    }
    Ok(())
}

/// Makes a node unschedulable, or schedulable again.
///
/// # Errors
/// Returns an error if there is no such node or the API server refuses.
pub async fn cordon(client: &Client, member: &str, name: &str, unschedulable: bool) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": unschedulable}}));
    let patched = api.patch(name, &PatchParams::default(), &patch).await;
    patched
        .map(drop)
        .map_err(Error::kube(format!("cordon node {name} in {member}")))
}

/// Returns the nodes that are not Ready or still have the taint of a node that is not ready.
#[expect(clippy::disallowed_methods, reason = "lists a testbed, which is small")]
pub(super) async fn unready(client: &Client, names: &[String]) -> Result<Vec<String>, String> {
    let api: Api<Node> = Api::all(client.clone());
    let listed = api
        .list(&ListParams::default())
        .await
        .map_err(|error| describe(&error))?;
    let ready: Vec<String> = listed
        .iter()
        .filter(|node| is_ready(node))
        .map(|node| node.name_any())
        .collect();
    Ok(names
        .iter()
        .filter(|name| !ready.contains(name))
        .cloned()
        .collect())
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    let ready = conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready
        && !taints
            .into_iter()
            .any(|taint| taint.key == "node.kubernetes.io/not-ready")
}

fn node(name: &str, group: &NodeGroup) -> Node {
    let resources = resources(group);
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels(name, group)),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: Some(group.taints.iter().map(taint).collect()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            allocatable: Some(resources.clone()),
            capacity: Some(resources),
            ..NodeStatus::default()
        }),
    }
}

fn resources(group: &NodeGroup) -> BTreeMap<String, Quantity> {
    let mut resources = BTreeMap::from([
        ("cpu".to_owned(), Quantity(group.cpu.clone())),
        ("memory".to_owned(), Quantity(group.memory.clone())),
        ("pods".to_owned(), Quantity(group.pods.to_string())),
    ]);
    if group.gpus > 0 {
        resources.insert(GPU_RESOURCE.to_owned(), Quantity(group.gpus.to_string()));
    }
    resources
}

fn labels(name: &str, group: &NodeGroup) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), name.to_owned()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
    ]);
    if let Some(product) = &group.product {
        labels.insert(GPU_PRODUCT_LABEL.to_owned(), product.clone());
        labels.insert("nvidia.com/gpu.count".to_owned(), group.gpus.to_string());
    }
    labels.extend(group.labels.clone());
    labels
}

fn taint(taint: &NodeTaint) -> Taint {
    Taint {
        key: taint.key.clone(),
        value: (!taint.value.is_empty()).then(|| taint.value.clone()),
        effect: taint.effect.as_str().to_owned(),
        time_added: None,
    }
}
