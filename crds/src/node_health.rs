//! The health of a node beyond Ready: its conditions that are True, and whether Muster avoids it.
//!
//! A node is avoided by the taint `muster.io/avoid` on it, so that every scheduler of its cluster keeps off, and
//! so that the state outlives each process. The annotation beside it says why. A node with the taint and without
//! the annotation is avoided by a person; Muster leaves that taint alone. A person clears a node by an
//! annotation of its Cluster: what was seen of the node before does not count.

use crate::kubernetes::Node;
use crate::names::{
    AVOID_TAINT, AVOIDANCE_ANNOTATION, CLEARED_NODES_ANNOTATION, ENDS_AT_ANNOTATION,
    GKE_MAINTENANCE_LABEL,
};
use facts::faults::Symptom;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Why Muster avoids a node, as the annotation on the node has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAvoidance {
    /// The class of the fault.
    pub class: String,
    /// The rule that says so.
    pub rule: String,
    /// The FaultPolicy that the rule is of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// What was seen.
    pub message: String,
    /// Since when it is avoided. Absent if a person put the taint there.
    #[schemars(extend("format" = "date-time"))]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
    /// Until when; absent while a condition of the node is the reason.
    #[schemars(extend("format" = "date-time"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The name of the alert that is the reason, if one is. Each repetition of it moves the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<String>,
}

impl NodeAvoidance {
    /// The rule of a node that is avoided because it ends.
    pub const ENDS: &str = "ends-at";

    /// Returns true if its time is over at `now`. A time that cannot be read is over: nothing else would end it.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        let lasts = |until: &String| until.parse().is_ok_and(|until: Timestamp| now < until);
        self.until.as_ref().is_some_and(|until| !lasts(until))
    }

    /// Returns true if the end of the node is the reason, and not a fault.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.rule == Self::ENDS && self.policy.is_empty()
    }

    /// Returns true if a person put the taint there, so that nothing is said of it.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        self.rule.is_empty()
    }

    /// Returns true if it began at `cleared` or before, or at a time that cannot be read.
    #[must_use]
    pub fn is_cleared(&self, cleared: Timestamp) -> bool {
        self.since
            .parse()
            .map_or(true, |since: Timestamp| since <= cleared)
    }
}

/// What the reason of a [`NodeCondition`] begins with that is a taint of devices. The key follows.
pub const DEVICE_TAINT: &str = "device taint ";

/// What the reason of a fault begins with that is an alert. Its name follows.
pub const ALERT: &str = "alert ";

/// A condition of a node that is True, or a taint of some of its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition {
    /// Its type and message; of a taint, [`DEVICE_TAINT`] with the key, and the devices.
    pub symptom: Symptom,
    /// Since when it is True, if the node says so.
    pub since: Option<Timestamp>,
}

impl NodeCondition {
    /// Returns what is said of it, in words that can follow those of a node.
    #[must_use]
    pub fn words(&self) -> String {
        match self.symptom.reason.strip_prefix(DEVICE_TAINT) {
            Some(key) => format!(
                "its devices have the taint {key} ({})",
                self.symptom.message
            ),
            None => format!("its condition {} is True", self.symptom),
        }
    }
}

/// The nodes of one cluster that a person has cleared, and when: the annotation
/// [`crate::names::CLEARED_NODES_ANNOTATION`] of a Cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClearedNodes {
    /// The time of each node.
    pub nodes: BTreeMap<String, Timestamp>,
}

impl ClearedNodes {
    /// The most nodes that it names: the oldest go first. Kubernetes limits the annotations of an object.
    pub const MOST: usize = 500;

    /// Reads the annotation.
    ///
    /// # Errors
    /// Returns the parts that can be read, and a message with the first that cannot.
    pub fn parse(text: &str) -> Result<Self, (Self, String)> {
        let (mut cleared, mut wrong) = (Self::default(), None);
        let parts = text.split(',').map(str::trim);
        for part in parts.filter(|part| !part.is_empty()) {
            let read = part.split_once('=').and_then(|(node, time)| {
                let time: Timestamp = time.trim().parse().ok()?;
                Some((node.trim(), time)).filter(|(node, _)| !node.is_empty())
            });
            match read {
                Some((node, time)) => {
                    cleared.nodes.insert(node.to_owned(), time);
                }
                None => {
                    let _ = wrong.get_or_insert_with(|| format!(
                        "annotation {CLEARED_NODES_ANNOTATION}: {part:?} is no node with a time; NODE=TIME is needed, \
                         like node7=2026-11-25T18:00:00Z"
                    ));
                }
            }
        }
        match wrong {
            None => Ok(cleared),
            Some(wrong) => Err((cleared, wrong)),
        }
    }

    /// Adds `node` as cleared at `time`, and drops the oldest beyond the most.
    pub fn clear(&mut self, node: &str, time: Timestamp) {
        self.nodes.insert(node.to_owned(), time);
        while self.nodes.len() > Self::MOST {
            let oldest = self.nodes.iter().min_by_key(|(_, time)| **time);
            let Some(oldest) = oldest.map(|(node, _)| node.clone()) else {
                return;
            };
            self.nodes.remove(&oldest);
        }
    }
}

impl fmt::Display for ClearedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self
            .nodes
            .iter()
            .map(|(node, time)| format!("{node}={time}"));
        f.write_str(&parts.collect::<Vec<_>>().join(","))
    }
}

/// The health of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeHealth {
    /// Its conditions that are True, besides Ready, and the taints of its devices.
    pub conditions: Vec<NodeCondition>,
    /// True if it has the taint.
    pub is_avoided: bool,
    /// Why, if Muster avoids it.
    pub avoidance: Option<NodeAvoidance>,
    /// When it ends, if that is known.
    pub ends_at: Option<Timestamp>,
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
                .map(|condition| NodeCondition {
                    symptom: Symptom {
                        reason: condition.type_.clone(),
                        message: condition.message.clone(),
                        exit_code: None,
                    },
                    since: condition.last_transition_time,
                })
                .collect(),
            is_avoided,
            avoidance: avoidance.and_then(|text| serde_json::from_str(text).ok()),
            ends_at: self.ends_at(),
        }
    }

    /// Returns when it ends: by Muster's annotation, or by GKE's label.
    fn ends_at(&self) -> Option<Timestamp> {
        let annotations = self.metadata.annotations.as_ref();
        if let Some(text) = annotations.and_then(|all| all.get(ENDS_AT_ANNOTATION)) {
            return text.parse().ok();
        }
        let labels = self.metadata.labels.as_ref();
        let text = labels.and_then(|all| all.get(GKE_MAINTENANCE_LABEL))?;
        Timestamp::from_second(text.parse().ok()?).ok()
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
                health.conditions[0].symptom.to_string(),
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

    #[test]
    fn cleared_nodes_are_read_as_they_are_written() {
        let text = "node7=2026-11-25T18:00:00Z,node9=2026-11-25T19:00:00Z";
        let mut cleared = ClearedNodes::parse(text).unwrap();
        assert_eq!(cleared.to_string(), text);
        cleared.clear("node7", "2026-11-26T00:00:00Z".parse().unwrap());
        let text = "node7=2026-11-26T00:00:00Z,node9=2026-11-25T19:00:00Z";
        assert_eq!(cleared.to_string(), text);
        let (read, wrong) =
            ClearedNodes::parse("node7, node9=2026-11-25T19:00:00Z,=x").unwrap_err();
        assert_eq!(read.to_string(), "node9=2026-11-25T19:00:00Z");
        assert!(
            wrong.contains("\"node7\" is no node with a time"),
            "{wrong}"
        );
        for hour in 0..600 {
            let at = Timestamp::from_second(1_000_000 + hour).unwrap();
            cleared.clear(&format!("n{hour}"), at);
        }
        assert_eq!(cleared.nodes.len(), ClearedNodes::MOST);
        assert!(cleared.nodes.contains_key("n599") && cleared.nodes.contains_key("node7"));
        assert!(!cleared.nodes.contains_key("n0"));
    }

    #[test]
    fn an_avoidance_is_cleared_if_it_began_before() {
        let since = |since: &str| NodeAvoidance {
            since: since.to_owned(),
            ..NodeAvoidance::default()
        };
        let cleared = "2026-11-25T10:00:00Z".parse().unwrap();
        let is_cleared = |text: &str| since(text).is_cleared(cleared);
        assert!(is_cleared("2026-11-25T10:00:00Z") && is_cleared("yesterday"));
        assert!(!is_cleared("2026-11-25T10:00:01Z"));
    }

    #[test]
    fn the_end_of_a_node_is_read() {
        let ends = |metadata: serde_json::Value| {
            let node: Node = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            node.to_health().ends_at.map(|at| at.to_string())
        };
        let gke = json!({"cloud.google.com/scheduled-maintenance-time": "1733083200"});
        assert_eq!(
            ends(json!({"labels": gke})).as_deref(),
            Some("2024-12-01T20:00:00Z")
        );
        let own = json!({"muster.io/ends-at": "2026-11-25T18:00:00Z"});
        assert_eq!(
            ends(json!({"labels": gke, "annotations": own})).as_deref(),
            Some("2026-11-25T18:00:00Z")
        );
        assert_eq!(
            ends(json!({"annotations": {"muster.io/ends-at": "soon"}})),
            None
        );
        assert_eq!(ends(json!({})), None);
    }
}
