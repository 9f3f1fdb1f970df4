//! What a rule of a FaultPolicy looks for: in a pod, a node or an alert.

use super::{no_empty_text, positive_millis};
use crate::loose::lenient;
use crate::node_health::{ALERT, DEVICE_TAINT};
use facts::faults::{FaultClass, NodeFaultRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The seconds after which an alert is over that is not repeated: more than Alertmanager's repeat_interval of 4h.
const RESOLVE_AFTER: i32 = 5 * 60 * 60;

/// What must be seen for a rule to match. Exactly one of pod, node and alert is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.pod), has(self.node), has(self.alert)].filter(set, set).size() == 1",
    "message": "exactly one of pod, node and alert is needed"
}]))]
pub struct FaultPolicyMatch {
    /// What a pod of a job shows. Each list that is not empty must match.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "has(self.reasons) || has(self.messages) || has(self.exitCodes)",
        "message": "reasons, messages or exitCodes is needed: an empty rule would match nothing"
    }]))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub pod: Option<FaultPolicyPod>,
    /// What a node shows. The node is avoided while it does: Muster puts the taint muster.io/avoid:NoSchedule on it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub node: Option<FaultPolicyNode>,
    /// The alerts of a node that fire, as Alertmanager posts them. The node is avoided while they do.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub alert: Option<FaultPolicyAlert>,
}

/// What a pod shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultPolicyPod {
    /// Reasons of waiting or ended containers, or of the pod: ImagePullBackOff, OutOfcpu, ...
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Texts of which the message beside the reason contains one, whatever the case. The message of a container
    /// that ended is its termination message.
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// Exit codes of an ended container.
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
}

/// What a node shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.conditions) && size(self.conditions) > 0) || (has(self.deviceTaints) && size(self.deviceTaints) > 0)",
    "message": "conditions or deviceTaints is needed"
}]))]
pub struct FaultPolicyNode {
    /// Types of conditions that mean a fault while they are True: GpuMemWatch, KernelDeadlock, ...
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Keys of taints that mean a fault while a device of the node has them in its ResourceSlice, whatever their
    /// effect, or by a DeviceTaintRule with another effect than None: gpu.nvidia.com/unhealthy, ...
    #[schemars(length(max = 64), inner(length(min = 1, max = 317)))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub device_taints: Vec<String>,
    /// Texts of which the message of the condition, or the value of the taint, contains one, whatever the case.
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
}

/// Alerts of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["names"]))]
pub struct FaultPolicyAlert {
    /// Names of alerts (their label alertname) that mean a fault while they fire.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 253)))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The seconds after which an alert is over that Alertmanager does not repeat. They have to be longer than the
    /// repeat_interval of the route.
    #[schemars(range(min = 1), extend("default" = {"stated": RESOLVE_AFTER}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub resolve_after_seconds: Option<i32>,
    /// Texts of which the summary of the alert contains one, whatever the case.
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
}

impl FaultPolicyPod {
    /// Checks it; `field` is its path.
    pub(super) fn check(&self, field: &str) -> Result<(), String> {
        if self.reasons.is_empty() && self.messages.is_empty() && self.exit_codes.is_empty() {
            return Err(format!(
                "{field}: is empty; reasons, messages or exitCodes is needed"
            ));
        }
        no_empty_text(&self.messages, &format!("{field}.messages"))
    }
}

impl FaultPolicyNode {
    /// Returns a rule that matches it; `field` is its path.
    pub(super) fn to_rule(&self, field: &str) -> Result<NodeFaultRule, String> {
        if self.conditions.is_empty() && self.device_taints.is_empty() {
            return Err(format!(
                "{field}: is empty; conditions, like GpuMemWatch, or deviceTaints are needed"
            ));
        }
        no_empty_text(&self.device_taints, &format!("{field}.deviceTaints"))?;
        if let Some(index) = self.conditions.iter().position(|type_| type_ == "Ready") {
            return Err(format!(
                "{field}.conditions[{index}]: \"Ready\" is True on nodes that work; a condition that is True on faults \
                 is needed"
            ));
        }
        no_empty_text(&self.messages, &format!("{field}.messages"))?;
        let taints = self.device_taints.iter();
        let taints = taints.map(|key| format!("{DEVICE_TAINT}{key}"));
        let conditions = self.conditions.iter().cloned().chain(taints).collect();
        let resolved = i64::from(RESOLVE_AFTER) * 1_000;
        Ok(rule(conditions, &self.messages, resolved))
    }
}

impl FaultPolicyAlert {
    /// Returns a rule that matches it; `field` is its path.
    pub(super) fn to_rule(&self, field: &str) -> Result<NodeFaultRule, String> {
        if self.names.is_empty() {
            return Err(format!(
                "{field}.names: is empty; the name of an alert, like GpuXid79, is needed"
            ));
        }
        no_empty_text(&self.names, &format!("{field}.names"))?;
        no_empty_text(&self.messages, &format!("{field}.messages"))?;
        let names = self.names.iter().map(|name| format!("{ALERT}{name}"));
        let resolved = format!("{field}.resolveAfterSeconds");
        let resolved = positive_millis(self.resolve_after_seconds, RESOLVE_AFTER, &resolved)?;
        Ok(rule(names.collect(), &self.messages, resolved))
    }
}

/// Returns a rule without name, class and actions. An alert is over after `alerts_for_ms` milliseconds.
fn rule(conditions: Vec<String>, messages: &[String], alerts_for_ms: i64) -> NodeFaultRule {
    NodeFaultRule {
        name: String::new(),
        conditions,
        alerts_for_ms,
        messages: messages.to_vec(),
        class: FaultClass::Unknown,
        policy: String::new(),
        dry_run: false,
        remediate: None,
    }
}
