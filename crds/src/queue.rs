//! Volcano's `Queue` (scheduling.volcano.sh/v1beta1), as Muster reads it.

use crate::loose::{QuantityList, lenient, resources};
use crate::names::ACCOUNTING_FINALIZER;
use crate::slim_resource;
use facts::{QueueFact, QueueName, QueueState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ClusterResourceScope;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The parent of the top-level queues, which Volcano creates itself.
pub const ROOT: &str = "root";
/// `spec.dequeueStrategy` of a strictly ordered queue.
pub const FIFO: &str = "fifo";

/// A queue. Muster writes its status, and creates one for a CapacityPolicy that states the queue by itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Name, labels, ...
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its quota and its order.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: QueueSpec,
    /// Whether it takes jobs.
    #[serde(default, deserialize_with = "lenient")]
    pub status: QueueStatus,
}
slim_resource!(
    Queue,
    ClusterResourceScope,
    "scheduling.volcano.sh",
    "v1beta1",
    "Queue",
    "queues"
);

/// `spec` of a queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueSpec {
    /// Its weight relative to its siblings.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
    /// Queues of higher priority go first.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// The queue above it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The most that the queue may use.
    #[serde(
        deserialize_with = "lenient",
        skip_serializing_if = "QuantityList::is_empty"
    )]
    pub capability: QuantityList,
    /// What the queue gets back when it needs it.
    #[serde(
        deserialize_with = "lenient",
        skip_serializing_if = "QuantityList::is_empty"
    )]
    pub deserved: QuantityList,
    /// Reserved for the queue, even while the queue does not use it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// Whether others may reclaim what it borrowed.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub reclaimable: Option<bool>,
    /// `fifo` or `traverse`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub dequeue_strategy: Option<String>,
}

/// `spec.guarantee` of a queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Guarantee {
    /// By resource.
    #[serde(deserialize_with = "lenient")]
    pub resource: QuantityList,
}

/// `status` of a queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Open, Closing, Closed or Unknown.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The amounts charged to it, as last written.
    #[serde(
        deserialize_with = "lenient",
        skip_serializing_if = "QuantityList::is_empty"
    )]
    pub allocated: QuantityList,
}

impl Queue {
    /// Returns the fact for the engine.
    #[must_use]
    pub fn to_fact(&self) -> QueueFact {
        let mut problems = Problems::default();
        QueueFact {
            name: QueueName::new(self.metadata.name.as_deref().unwrap_or_default()),
            parent: self.parent(),
            priority: problems.number("spec.priority", self.spec.priority, i32::MIN, 0),
            weight: problems.number("spec.weight", self.spec.weight, 1_u32, 1),
            guarantee: problems.note(resources("spec.guarantee.resource", self.guarantee())),
            deserved: problems.note(resources("spec.deserved", &self.spec.deserved)),
            capability: problems.note(resources("spec.capability", &self.spec.capability)),
            reclaimable: self.spec.reclaimable.unwrap_or(true),
            state: self.state(),
            invalid: problems.first,
        }
    }

    fn guarantee(&self) -> &QuantityList {
        static NONE: QuantityList = QuantityList::new();
        let stated = self.spec.guarantee.as_ref();
        stated.map_or(&NONE, |guarantee| &guarantee.resource)
    }

    /// Returns true if its object is deleted, and its finalizers keep it.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns true if it has the finalizer with which earlier versions of Muster kept it.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        let finalizers = self.metadata.finalizers.as_deref().unwrap_or_default();
        finalizers.iter().any(|name| name == ACCOUNTING_FINALIZER)
    }

    /// Returns the queue above it, `None` for a top-level queue.
    #[must_use]
    pub fn parent(&self) -> Option<QueueName> {
        self.spec
            .parent
            .as_deref()
            .filter(|parent| !parent.is_empty() && *parent != ROOT)
            .map(QueueName::new)
    }

    /// Volcano leaves the state empty until its controller has seen the queue, and admits jobs to `Open`
    /// queues only; a queue with an unknown state takes no jobs.
    fn state(&self) -> QueueState {
        if self.is_deleting() {
            return QueueState::Deleting;
        }
        match self.status.state.as_deref() {
            None | Some("" | "Open") => QueueState::Open,
            Some("Closing") => QueueState::Closing,
            Some(_) => QueueState::Closed,
        }
    }
}

/// Keeps the first problem.
#[derive(Default)]
struct Problems {
    first: Option<String>,
}

impl Problems {
    fn note<T: Default>(&mut self, result: Result<T, String>) -> T {
        result.unwrap_or_else(|error| {
            self.first.get_or_insert(error);
            T::default()
        })
    }

    /// Returns `value`, or `absent` if it is not set; it must be at least `least`, and fit its type.
    fn number<T>(&mut self, field: &str, value: Option<i64>, least: T, absent: T) -> T
    where
        T: TryFrom<i64> + PartialOrd + Copy + std::fmt::Display,
    {
        let Some(value) = value else { return absent };
        match T::try_from(value) {
            Ok(number) if number >= least => number,
            _ => {
                self.first
                    .get_or_insert(format!("{field}: {value} is out of range; {least} or more, as a 32-bit number, is needed"));
                absent
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn queue(spec: Value, state: Value) -> Queue {
        serde_json::from_value(json!({
            "metadata": {"name": "team-a"}, "spec": spec, "status": {"state": state},
        }))
        .unwrap()
    }

    #[test]
    fn a_plain_queue() {
        let fact = queue(
            json!({"weight": 4, "priority": 7, "parent": "research", "capability": {"cpu": "8", "nvidia.com/gpu": 16}}),
            json!("Open"),
        )
        .to_fact();
        assert_eq!(fact.parent, Some("research".into()));
        assert_eq!((fact.weight, fact.priority), (4, 7));
        assert_eq!(fact.capability.to_string(), "cpu 8, nvidia.com/gpu 16");
        assert_eq!((fact.state, fact.invalid), (QueueState::Open, None));
    }

    #[test]
    fn the_top_has_no_parent() {
        for parent in [json!(null), json!(""), json!("root")] {
            let fact = queue(json!({"parent": parent}), json!(null)).to_fact();
            assert_eq!((fact.parent, fact.weight), (None, 1));
        }
    }

    #[test]
    fn only_open_queues_take_jobs() {
        for (state, want) in [
            (json!(null), QueueState::Open),
            (json!(""), QueueState::Open),
            (json!("Closing"), QueueState::Closing),
            (json!("Closed"), QueueState::Closed),
            (json!("Unknown"), QueueState::Closed),
        ] {
            assert_eq!(
                queue(json!({}), state.clone()).to_fact().state,
                want,
                "{state}"
            );
        }
    }

    #[test]
    fn invalid_values_are_named() {
        for (spec, want) in [
            (
                json!({"capability": {"cpu": "-1"}}),
                r#"spec.capability[cpu]: quantity "-1" is negative; 0 or more is needed"#,
            ),
            (
                json!({"capability": {"cpu": "9223372036854775807"}}),
                r#"spec.capability[cpu]: quantity "9223372036854775807" is too large to be counted; at most 2^63-1 base units are"#,
            ),
            (
                json!({"weight": 0}),
                "spec.weight: 0 is out of range; 1 or more, as a 32-bit number, is needed",
            ),
        ] {
            assert_eq!(queue(spec, json!(null)).to_fact().invalid.unwrap(), want);
        }
    }
}
