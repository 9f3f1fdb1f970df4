//! `NodeRemediation` (muster.io/v1alpha2, cluster scope): asks an outside operator to repair a node that Muster
//! avoids.
//!
//! Muster writes the spec and deletes the object when the node is avoided no more. The operator writes the status,
//! by the convention of medik8s' remediators: the condition `Succeeded` is True once the node works again, and False
//! once the operator has given up. Muster repairs nothing itself.

use crate::loose::lenient;
use facts::{ClusterName, NodeName};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The condition that ends the avoidance of the node when it is True.
pub const SUCCEEDED: &str = "Succeeded";

/// Most characters of a name.
const NAME: usize = 253;

/// A node that has to be repaired.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "muster.io",
    version = "v1alpha2",
    kind = "NodeRemediation",
    plural = "noderemediations",
    status = "NodeRemediationStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "nrem",
    category = "muster",
    doc = "NodeRemediation asks an outside operator to repair a node of a member that Muster avoids, because a rule of a FaultPolicy says so. Muster deletes it when the node is avoided no more. The operator sets the condition Succeeded in its status: True ends the avoidance.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(name = "CLUSTER", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "NODE", type_ = "string", json_path = ".spec.node"),
    printcolumn(name = "FAULT", type_ = "string", json_path = ".spec.class"),
    printcolumn(name = "ACTION", type_ = "string", json_path = ".spec.action"),
    printcolumn(
        name = "SUCCEEDED",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Succeeded")].status"#
    ),
    printcolumn(
        name = "RULE",
        type_ = "string",
        json_path = ".spec.rule",
        priority = 1
    ),
    printcolumn(
        name = "POLICY",
        type_ = "string",
        json_path = ".spec.policy",
        priority = 1
    ),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = ".spec.message",
        priority = 1
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster", "node", "since"]))]
pub struct NodeRemediationSpec {
    /// The member cluster.
    #[schemars(length(max = 253))]
    pub cluster: String,
    /// The node.
    #[schemars(length(max = 253))]
    pub node: String,
    /// What the operator is asked to do, in its own words, such as Reboot; absent if it chooses.
    #[schemars(length(max = 63))]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// The class of the fault.
    #[schemars(length(max = 63))]
    pub class: String,
    /// The rule that asks for it.
    #[schemars(length(max = 63))]
    pub rule: String,
    /// The FaultPolicy that the rule is of.
    #[schemars(length(max = 253))]
    pub policy: String,
    /// What was seen of the node.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Since when the node is avoided. A later time is another fault.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}

/// How far the operator is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeRemediationStatus {
    /// Succeeded: True when the node works again, False when the operator has given up. Others are its own.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(deserialize_with = "lenient")]
    pub conditions: Vec<Condition>,
}

impl NodeRemediation {
    /// Returns whether the operator has succeeded, and since when; `None` while it has not decided.
    #[must_use]
    pub fn succeeded(&self) -> Option<(bool, Timestamp)> {
        let conditions = &self.status.as_ref()?.conditions;
        let condition = conditions
            .iter()
            .find(|condition| condition.type_ == SUCCEEDED)?;
        let succeeded = match condition.status.as_str() {
            "True" => true,
            "False" => false,
            _ => return None,
        };
        Some((succeeded, condition.last_transition_time.0))
    }
}

/// Returns the name of the object of `node` in `cluster`.
#[must_use]
pub fn name(cluster: &ClusterName, node: &NodeName) -> String {
    let mut name = format!("{cluster}.{node}");
    name.truncate(NAME);
    name.trim_end_matches(['.', '-']).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_operator_says_how_it_went() {
        let said = |status: &str| {
            let condition = json!({
                "type": "Succeeded", "status": status, "reason": "r", "message": "",
                "lastTransitionTime": "2026-11-25T10:00:00Z",
            });
            let object = json!({
                "apiVersion": "muster.io/v1alpha2", "kind": "NodeRemediation", "metadata": {"name": "m1.n1"},
                "spec": {"cluster": "m1", "node": "n1", "since": "2026-11-25T09:00:00Z"},
                "status": {"conditions": [condition]},
            });
            let object: NodeRemediation = serde_json::from_value(object).unwrap();
            object
                .succeeded()
                .map(|(succeeded, at)| (succeeded, at.to_string()))
        };
        let at = "2026-11-25T10:00:00Z".to_owned();
        assert_eq!(said("True"), Some((true, at.clone())));
        assert_eq!(said("False"), Some((false, at)));
        assert_eq!(said("Unknown"), None);
        assert_eq!(NodeRemediation::default().succeeded(), None);
    }

    #[test]
    fn a_name_is_valid_however_long_the_node() {
        let (cluster, node) = (ClusterName::new("m1"), NodeName::new("n1"));
        assert_eq!(name(&cluster, &node), "m1.n1");
        let long = NodeName::new(format!("{}-{}", "a".repeat(249), "b".repeat(9)));
        assert_eq!(name(&cluster, &long), format!("m1.{}", "a".repeat(249)));
    }
}
