//! The status of a queue in the federation, as its policy shows it.

use crate::loose::{QuantityList, QuantityText, lenient};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The status of a queue in the federation. Empty fields are written as `null`, so that a merge patch
/// clears them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(description = "The status of the queue in the federation.")]
pub struct CapacityPolicyStatus {
    /// The generation of the spec that this status is about.
    #[serde(deserialize_with = "lenient")]
    pub observed_generation: Option<i64>,
    /// Valid, Effective, Consistent, Open.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(deserialize_with = "lenient")]
    pub conditions: Vec<Condition>,
    /// Usage and quota by resource, over all clusters.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(deserialize_with = "lenient")]
    pub resources: Vec<ResourceUse>,
    /// Usage by cluster.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(deserialize_with = "lenient")]
    pub clusters: Vec<ClusterUse>,
    /// Usage and quota by pool of the policy.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(deserialize_with = "lenient")]
    pub pools: Vec<PoolUse>,
    /// What pods use beyond what was admitted, the first 50: pods that request more in their cluster than their
    /// template, that outlive their job, or that belong to no job. It is part of allocated.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(deserialize_with = "lenient")]
    pub unadmitted: Vec<UnadmittedUse>,
    /// The number of jobs by state.
    #[serde(deserialize_with = "lenient")]
    pub counts: JobCounts,
    /// The pending job that is next, if any.
    #[serde(deserialize_with = "lenient")]
    pub head: Option<QueueHead>,
    /// The nodes that are kept as spare ones for its large gangs (spec.spare).
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster", "node"]))]
    #[serde(deserialize_with = "lenient")]
    pub spare_nodes: Vec<SpareNodeUse>,
    /// The columns of `kubectl get cap`.
    #[serde(deserialize_with = "lenient")]
    pub summary: Option<CapacityPolicySummary>,
}

/// A spare node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster", "node"]))]
pub struct SpareNodeUse {
    /// Its cluster.
    pub cluster: String,
    /// Its name there.
    pub node: String,
    /// Whether jobs run on it that are evicted once a gang needs it.
    pub lent: bool,
}

/// One resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct ResourceUse {
    /// The resource.
    pub name: String,
    /// Charged for admitted jobs, those of the queues below included.
    pub allocated: QuantityText,
    /// Requested by pending jobs.
    pub pending: QuantityText,
    /// What the queue gets back when it needs it, at present: at least its guarantee and at most its
    /// realCapability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deserved: Option<QuantityText>,
    /// The capability that the Queue states, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<QuantityText>,
    /// The most that the queue may use at present: its own and its ancestors' capability, less what is
    /// guaranteed to others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_capability: Option<QuantityText>,
    /// The part of allocated above deserved: others may reclaim it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowed: Option<QuantityText>,
    /// The part of deserved that other queues use at present: the queue may reclaim it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lent: Option<QuantityText>,
    /// Past usage in hours, decayed by fairShare.usageHalfLife.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decayed_use: Option<QuantityText>,
}

/// One cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct ClusterUse {
    /// The cluster.
    pub name: String,
    /// Charged there, by resource.
    pub allocated: QuantityList,
}

/// What pods use in a cluster beyond what was admitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UnadmittedUse {
    /// The namespace of the pods.
    pub namespace: String,
    /// The PodGroup of their job. Absent for pods that belong to no job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The cluster.
    pub cluster: String,
    /// The amounts, by resource.
    pub allocated: QuantityList,
}

/// One pool of the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct PoolUse {
    /// Its name in the policy.
    pub name: String,
    /// The class.
    pub class: String,
    /// The clusters that count together. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Vec<String>>,
    /// Charged there, by resource.
    pub allocated: QuantityList,
    /// What the queue gets back there when it needs it, at present.
    #[serde(skip_serializing_if = "QuantityList::is_empty")]
    pub deserved: QuantityList,
    /// The capability that the policy states.
    pub capability: QuantityList,
    /// The most that the queue may use there at present.
    #[serde(skip_serializing_if = "QuantityList::is_empty")]
    pub real_capability: QuantityList,
}

/// The number of jobs by state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobCounts {
    /// Queued or held.
    pub pending: i64,
    /// Admitted, but their minimum does not run yet.
    pub admitted: i64,
    /// Running.
    pub running: i64,
    /// Ended or evicted, and charged until their work is gone.
    pub ending: i64,
    /// Ended.
    pub finished: i64,
}

/// The pending job that is next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueHead {
    /// `namespace/name` of its PodGroup.
    pub job: String,
    /// Why it waits: one word of a closed list.
    pub reason: String,
    /// The same in words, with numbers.
    pub message: String,
}

/// The columns of `kubectl get cap`, which take scalars only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityPolicySummary {
    /// Devices allocated and capability: `48/64`, or `48` without a capability.
    pub gpus: String,
    /// Devices that it deserves at present, if any.
    pub deserved_gpus: String,
    /// Devices that pending jobs request.
    pub pending_gpus: String,
    /// CPU allocated and capability.
    pub cpu: String,
    /// `9R/2Q`: admitted and queued.
    pub jobs: String,
}

impl CapacityPolicySummary {
    /// The summary of `resources` and `counts`. Several kinds of device are listed side by
    /// side: a sum over them means nothing.
    #[must_use]
    pub fn of(resources: &[ResourceUse], counts: &JobCounts) -> Self {
        let is_device = |used: &&ResourceUse| facts::ResourceName::new(&used.name).is_device();
        let is_cpu = |used: &&ResourceUse| used.name == facts::ResourceName::CPU;
        let devices = || resources.iter().filter(is_device);
        Self {
            gpus: joined(devices().map(of_bound)),
            deserved_gpus: joined(devices().filter_map(|used| Some(used.deserved.clone()?.0))),
            pending_gpus: joined(devices().map(|used| used.pending.0.clone())),
            cpu: joined(resources.iter().filter(is_cpu).map(of_bound)),
            jobs: format!(
                "{}R/{}Q",
                counts.admitted + counts.running + counts.ending,
                counts.pending
            ),
        }
    }
}

/// `48/64`, or `48` without a capability.
fn of_bound(used: &ResourceUse) -> String {
    match &used.capability {
        Some(bound) => format!("{}/{}", used.allocated.0, bound.0),
        None => used.allocated.0.clone(),
    }
}

fn joined(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_what_columns_show() {
        let used = |name: &str, capability: Option<&str>| ResourceUse {
            name: name.to_owned(),
            allocated: "48".into(),
            pending: "8".into(),
            deserved: capability.map(|_| "32".into()),
            capability: capability.map(Into::into),
            ..ResourceUse::default()
        };
        let counts = JobCounts {
            pending: 2,
            admitted: 1,
            running: 7,
            ending: 1,
            finished: 30,
        };
        let summary = CapacityPolicySummary::of(
            &[
                used("cpu", None),
                used("memory", None),
                used("nvidia.com/gpu", Some("64")),
            ],
            &counts,
        );
        assert_eq!(
            (summary.gpus.as_str(), summary.pending_gpus.as_str()),
            ("48/64", "8")
        );
        assert_eq!(summary.deserved_gpus, "32");
        assert_eq!(
            (summary.cpu.as_str(), summary.jobs.as_str()),
            ("48", "9R/2Q")
        );
    }
}
