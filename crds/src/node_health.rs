//! The health of a node beyond Ready: its conditions that are True, and whether Muster avoids it.
//!
//! A node is avoided by the taint `muster.io/avoid` on it, so that every scheduler of its cluster keeps off, and
//! so that the state outlives each process. The annotation beside it says why. A node with the taint and without
//! the annotation is avoided by a person; Muster leaves that taint alone.

use crate::kubernetes::Node;
use crate::names::{AVOID_TAINT, AVOIDANCE_ANNOTATION};
use engine::faults::Symptom;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why Muster avoids a node, as the annotation on the node has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAvoidance {
    /// The class of the fault.
    pub class: String,
    /// The rule of a FaultPolicy that says so.
    pub rule: String,
    /// What was seen.
    pub message: String,
    /// Since when it is avoided (RFC 3339).
    pub since: String,
    /// Until when (RFC 3339); absent while a condition of the node is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl NodeAvoidance {
    /// Returns true if its time is over at `now`. A time that cannot be read is over: nothing else would end it.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        let lasts = |until: &String| until.parse().is_ok_and(|until: Timestamp| now < until);
        self.until.as_ref().is_some_and(|until| !lasts(until))
    }
}

/// The health of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeHealth {
    /// Its conditions that are True, besides Ready: type and message.
    pub conditions: Vec<Symptom>,
    /// True if it has the taint.
    pub is_avoided: bool,
    /// Why, if Muster avoids it.
    pub avoidance: Option<NodeAvoidance>,
}

impl Node {
    /// Returns its health.
    #[must_use]
    pub fn to_health(&self) -> NodeHealth {
        let conditions = self.status.conditions.iter();
        let faults =
            conditions.filter(|condition| condition.is_true() && condition.type_ != "Ready");
        let is_avoided = self
            .spec
            .taints
            .iter()
            .any(|taint| taint.key == AVOID_TAINT);
        let annotations = self.metadata.annotations.as_ref();
        let text = annotations.and_then(|annotations| annotations.get(AVOIDANCE_ANNOTATION));
        let avoidance = text.filter(|_| is_avoided);
        NodeHealth {
            conditions: faults
                .map(|condition| Symptom {
                    reason: condition.type_.clone(),
                    message: condition.message.clone(),
                    exit_code: None,
                })
                .collect(),
            is_avoided,
            avoidance: avoidance.and_then(|text| serde_json::from_str(text).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_avoided_by_muster_only_with_the_taint_and_the_annotation() {
        let health = |taints: serde_json::Value, annotations: serde_json::Value| {
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": "n", "annotations": annotations},
                "spec": {"taints": taints},
                "status": {"conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "GpuMemWatch", "status": "True", "message": "row remap failed"},
                    {"type": "KernelDeadlock", "status": "False"},
                ]},
            }))
            .unwrap();
            let health = node.to_health();
            assert_eq!(health.conditions.len(), 1);
            assert_eq!(
                health.conditions[0].to_string(),
                "GpuMemWatch (row remap failed)"
            );
            (
                health.is_avoided,
                health.avoidance.map(|avoidance| avoidance.rule),
            )
        };
        let taint = json!([{"key": AVOID_TAINT, "value": "device", "effect": "NoSchedule"}]);
        let why = json!({ AVOIDANCE_ANNOTATION: r#"{"rule": "xid"}"# });
        assert_eq!(
            health(taint.clone(), why.clone()),
            (true, Some("xid".to_owned()))
        );
        assert_eq!(health(taint.clone(), json!({})), (true, None));
        assert_eq!(
            health(taint, json!({ AVOIDANCE_ANNOTATION: "{" })),
            (true, None)
        );
        assert_eq!(health(json!([]), why), (false, None));
    }

    #[test]
    fn a_time_that_cannot_be_read_is_over() {
        let now = "2026-11-25T10:00:00Z".parse().unwrap();
        for (until, over) in [
            (None, false),
            (Some("2026-11-25T10:00:01Z"), false),
            (Some("2026-11-25T10:00:00Z"), true),
            (Some("tomorrow"), true),
        ] {
            let until = until.map(str::to_owned);
            let avoidance = NodeAvoidance {
                until,
                ..NodeAvoidance::default()
            };
            assert_eq!(avoidance.is_over(now), over, "{:?}", avoidance.until);
        }
    }
}
