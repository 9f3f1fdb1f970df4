//! Effects on nodes of members: the taint of avoided nodes, with the annotation that says why. And the objects that
//! ask an outside operator to repair them.
//!
//! A patch of the version that was read, during the term only; the watch of the member shows the result, and a
//! change that is not shown is requested again. Taints of others stay as they are.

use crate::avoided_nodes::{RemediationChange, TaintChange};
use crate::effects::Effects;
use crate::messages::input::Input;
use crds::kubernetes::Node;
use crds::names::{AVOID_TAINT, AVOIDANCE_ANNOTATION};
use crds::node_health::NodeAvoidance;
use crds::node_remediation::NodeRemediation;
use kube::Resource as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use prometheus_client::metrics::counter::Counter;
use runtime::Leadership;
use runtime::client::{CallError, while_leading, with_deadline};
use serde_json::{Value, json};
use std::time::Duration;

/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);

/// What a write of a taint needs besides the node.
pub(crate) struct NodeTaints {
    /// Nodes are changed only while it lasts.
    pub(crate) leadership: Leadership,
    /// Counts taints that could not be written.
    failures: Counter,
}

impl NodeTaints {
    pub(crate) fn new(leadership: Leadership, failures: Counter) -> Self {
        Self {
            leadership,
            failures,
        }
    }
}

impl Effects {
    /// Submits a write of a NodeRemediation, which is repeated until it succeeds.
    pub(super) fn write_remediation(&self, change: RemediationChange) {
        let resource = ApiResource::erase::<NodeRemediation>(&());
        match change {
            RemediationChange::Request(name, spec) => {
                let object = json!({
                    "apiVersion": NodeRemediation::api_version(&()), "kind": NodeRemediation::kind(&()),
                    "metadata": {"name": name}, "spec": *spec,
                });
                self.objects.apply(&resource, None, &name, object);
            }
            RemediationChange::End(name) => self.objects.delete(&resource, None, &name),
        }
    }

    /// Starts the task that changes the taint of a node.
    pub(super) fn taint_node(&self, change: TaintChange) {
        let Some(client) = self.members.client(&change.cluster) else {
            return; // requested again
        };
        let client = while_leading(&client, &self.taints.leadership);
        let inputs = self.inputs.clone();
        let failures = self.taints.failures.clone();
        let slots = std::sync::Arc::clone(&self.checks);
        runtime::task::spawn(async move {
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            let (cluster, node) = (&change.cluster, &change.node);
            match write(client, node.as_str(), change.avoidance.as_ref()).await {
                Ok(()) => {
                    let because = &change.because;
                    tracing::warn!(%cluster, %node, because, "the taint {AVOID_TAINT} of a node was changed");
                    // The core ends only with the process.
                    let _ = inputs.send(Input::NodeTainted(change)).await;
                }
                Err(error) => {
                    failures.inc();
                    tracing::warn!(
                        %cluster,
                        %node,
                        error = error.message(),
                        "the taint {AVOID_TAINT} of a node was not changed; trying again (deploy/rbac-in-members-nodes.yaml allows it)"
                    );
                }
            }
        });
    }
}

async fn write(
    client: kube::Client,
    name: &str,
    avoidance: Option<&NodeAvoidance>,
) -> Result<(), CallError> {
    let nodes: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<Node>(&()));
    let node = with_deadline(nodes.get(name), LIMIT).await?;
    let version = node.metadata.resource_version.as_deref();
    let patch = Patch::Merge(patch(&node.data, version, avoidance));
    let params = PatchParams::default();
    with_deadline(nodes.patch(name, &params, &patch), LIMIT).await?;
    Ok(())
}

/// Returns the merge patch of the node with this `data` in this `version`.
fn patch(data: &Value, version: Option<&str>, avoidance: Option<&NodeAvoidance>) -> Value {
    let taints = data.pointer("/spec/taints").and_then(Value::as_array);
    let others = taints.into_iter().flatten();
    let others = others.filter(|taint| taint["key"] != AVOID_TAINT).cloned();
    let own = avoidance.map(|avoidance| {
        json!({
            "key": AVOID_TAINT, "value": avoidance.class.to_lowercase(), "effect": "NoSchedule",
        })
    });
    let why = avoidance.and_then(|avoidance| serde_json::to_string(avoidance).ok());
    json!({
        "metadata": {"resourceVersion": version, "annotations": {(AVOIDANCE_ANNOTATION): why}},
        "spec": {"taints": others.chain(own).collect::<Vec<_>>()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_of_others_stay_as_they_are() {
        let other = json!({"key": "a", "effect": "NoExecute", "timeAdded": "2026-11-25T10:00:00Z"});
        let old = json!({"key": AVOID_TAINT, "value": "node", "effect": "NoSchedule"});
        let data = json!({"spec": {"taints": [old, other]}});
        let avoidance = NodeAvoidance {
            class: "Device".to_owned(),
            ..NodeAvoidance::default()
        };
        let taints = |avoidance| patch(&data, Some("7"), avoidance)["spec"]["taints"].clone();
        let own = json!({"key": AVOID_TAINT, "value": "device", "effect": "NoSchedule"});
        assert_eq!(taints(Some(&avoidance)), json!([other, own]));
        assert_eq!(taints(None), json!([other]));
        let cleared = patch(&data, Some("7"), None);
        let why = &cleared["metadata"]["annotations"][AVOIDANCE_ANNOTATION];
        assert_eq!(
            (why, &cleared["metadata"]["resourceVersion"]),
            (&Value::Null, &json!("7"))
        );
    }
}
