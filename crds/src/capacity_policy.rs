//! `CapacityPolicy` (muster.io/v1alpha2, cluster scope): the settings of a queue that Volcano's
//! `Queue` has no fields for, and the queue's status in the federation.
//!
//! It has the same name as its `Queue`, and either alone is enough. The schema refuses most wrong values. A wrong
//! value that the schema cannot detect makes the policy invalid: its condition `Valid` names field and value.

mod defaults;
mod fact;
mod preemption;
mod priority_classes;
mod quota;
mod retries;
mod shares;
mod status;

pub use fact::{DEFAULT_START_DEADLINE_MS, closed_to};
pub use preemption::{
    CapacityPolicyEvictOverdue, CapacityPolicyPreemptableLabel, CapacityPolicyPreemption,
    CapacityPolicyPreemptionWithinQueue, CapacityPolicyReclaim,
};
pub use priority_classes::{RefusedClass, is_system_class, refused_class};
pub use quota::StatedQueue;
pub use retries::{CapacityPolicyRetries, RetryLimits};
pub use shares::{CapacityPolicyFairShare, CapacityPolicyFairShareWithin, CapacityPolicyLimits};
pub use status::{
    CapacityPolicyStatus, CapacityPolicySummary, ClusterUse, JobCounts, PoolUse, QueueHead,
    ResourceUse, SpareNodeUse, UnadmittedUse,
};

use crate::loose::{Loose, QuantityText, lenient, nullable};
use facts::plugins::Holds;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Types of conditions.
pub mod condition_type {
    /// Whether its values are valid.
    pub const VALID: &str = "Valid";
    /// Whether each of its values has an effect at present.
    pub const EFFECTIVE: &str = "Effective";
    /// Whether it and the Queue of the same name state the same.
    pub const CONSISTENT: &str = "Consistent";
    /// Whether the queue takes jobs.
    pub const OPEN: &str = "Open";
}

/// The settings of a queue.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "muster.io",
    version = "v1alpha2",
    kind = "CapacityPolicy",
    plural = "capacitypolicies",
    status = "CapacityPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "cap",
    category = "muster",
    doc = "CapacityPolicy configures the queue of the same name: quota by pool, ordering, preemption, limits and placement. Its status shows usage and pending jobs.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(
        name = "GPUS",
        type_ = "string",
        json_path = ".status.summary.gpus",
        description = "Devices allocated and capability"
    ),
    printcolumn(
        name = "PENDING",
        type_ = "string",
        json_path = ".status.summary.pendingGpus",
        description = "Devices that its pending jobs request"
    ),
    printcolumn(
        name = "JOBS",
        type_ = "string",
        json_path = ".status.summary.jobs",
        description = "Running (R) and queued (Q) jobs"
    ),
    printcolumn(
        name = "HEAD",
        type_ = "string",
        json_path = ".status.head.job",
        description = "The next job"
    ),
    printcolumn(
        name = "REASON",
        type_ = "string",
        json_path = ".status.head.reason",
        description = "Why the next job waits"
    ),
    printcolumn(
        name = "DESERVED",
        type_ = "string",
        json_path = ".status.summary.deservedGpus",
        description = "Devices that the queue deserves",
        priority = 1
    ),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.summary.cpu",
        priority = 1
    ),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = ".status.head.message",
        priority = 1
    ),
    printcolumn(
        name = "ORDERING",
        type_ = "string",
        json_path = ".spec.ordering",
        priority = 1
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.backfill) || !has(self.ordering) || self.ordering in ['Backfill', 'ShortestPredicted']",
    "message": "backfill needs the ordering Backfill or ShortestPredicted",
    "messageExpression": "'backfill needs the ordering Backfill or ShortestPredicted, not ' + self.ordering"
}]))]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityPolicySpec {
    /// The queue above it. Unset: the parent of the Queue of the same name, if it has one.
    #[schemars(length(min = 1, max = 253))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The quota of each resource in all pools together. A value may stand here, in the Queue of the same name, or in
    /// both alike; where they differ the lower one counts, and the condition Consistent names both. If there is no
    /// Queue of the name, Muster creates one for a policy with resources or a parent.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    // Bounds that cannot be read must not count as none: that would lift the quota.
    #[serde(skip_serializing_if = "is_unstated")]
    pub resources: Loose<Vec<CapacityPolicyBounds>>,
    /// The quota of each class of pools, in addition to the quota in all pools together.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<CapacityPolicyPool>,
    /// The order of jobs, and whether a job may pass one ahead of it. Unset: StrictFIFO if the Queue's
    /// dequeueStrategy is fifo, else Backfill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering: Option<Loose<CapacityPolicyOrdering>>,
    /// How the priority of a pending job rises while it waits. Unset: it does not.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub ageing: Option<CapacityPolicyAgeing>,
    /// Namespaces that may submit. Others, and their users, need the verb `use` on the Queue. Unset:
    /// tenancy decides.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Who may submit if namespaceSelector is unset. Unset: the tenancy of the MusterConfig `default`, which
    /// `muster install --tenancy` writes, else Open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenancy: Option<Loose<Tenancy>>,
    /// PriorityClasses that its jobs may have. Unset: all but `system-node-critical` and
    /// `system-cluster-critical`. A job without one has the cluster's default PriorityClass; if there is a
    /// default, it must be in this list.
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_classes: Option<Vec<String>>,
    /// Whether the queue is stopped. It concerns the queue's own jobs, not those of queues below it.
    #[schemars(extend("default" = {"stated": "None"}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<Loose<CapacityPolicyStop>>,
    /// How jobs may pass jobs that wait for quota or capacity.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub backfill: Option<CapacityPolicyBackfill>,
    /// How its share compares with those of its siblings.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub fair_share: Option<CapacityPolicyFairShare>,
    /// Which jobs may be evicted for which.
    #[schemars(extend("default" = {"stated": {}}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub preemption: Option<CapacityPolicyPreemption>,
    /// Limits on the number of jobs, on what one user and one namespace have, and on run time.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub limits: Option<CapacityPolicyLimits>,
    /// How often its jobs are queued again after they have failed.
    #[schemars(extend("default" = {"stated": {}}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub retries: Option<CapacityPolicyRetries>,
    /// Where its jobs are placed.
    #[schemars(extend("default" = {"stated": {}}))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub placement: Option<CapacityPolicyPlacement>,
    /// Whole nodes that are kept for its large gangs. Unset: none.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub spare: Option<CapacityPolicySpare>,
}

/// Whole nodes that are kept in each cluster where a large gang of the queue runs, so that a gang that loses a node
/// finds another one at once. They count towards the quota of the queue. Jobs that may be evicted at any time run on
/// them meanwhile: preemptible jobs of other queues, or of lower priority than these gangs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["nodes", "forGangsOf"]))]
pub struct CapacityPolicySpare {
    /// How many nodes in each cluster.
    #[schemars(range(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i32>,
    /// Their class, as GpuPools show it. Unset: the classes of nodes that the gang uses in the cluster.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The number of pods from which on a gang is large.
    #[schemars(range(min = 2))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_gangs_of: Option<i32>,
}

/// Who may submit to a queue without a namespaceSelector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Tenancy {
    /// All managed namespaces.
    Open,
    /// Only namespaces and users with the verb `use` on the Queue.
    Closed,
}

/// Whether a queue is stopped, with the words of Kueue's ClusterQueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityPolicyStop {
    /// It admits jobs.
    None,
    /// It admits no jobs; admitted jobs continue.
    Hold,
    /// It admits no jobs, and evicts its admitted jobs as whole gangs, which then wait at their old places.
    HoldAndDrain,
}

/// The quota of a queue in one class of pools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "class"]))]
pub struct CapacityPolicyPool {
    /// Its name, unique in the policy.
    #[schemars(length(min = 1, max = 253))]
    #[serde(default)]
    pub name: String,
    /// The class, as GpuPools show it: nvidia-h100-80gb-hbm3, cpu, ...
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    #[serde(default)]
    pub class: String,
    /// The clusters whose pools count together. Unset: all.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 253)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Vec<String>>,
    /// The quota of each resource.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    // Bounds that cannot be read must not count as none: that would lift the quota.
    #[serde(default)]
    pub resources: Loose<Vec<CapacityPolicyBounds>>,
}

/// The quota of one resource: guarantee ≤ deserved ≤ capability.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"], "x-kubernetes-validations" = [
    {
        "rule": "!has(self.guarantee) || !has(self.deserved) || quantity(string(self.guarantee)).compareTo(quantity(string(self.deserved))) <= 0",
        "message": "guarantee must not be more than deserved",
        "messageExpression": "'guarantee ' + string(self.guarantee) + ' must not be more than deserved ' + string(self.deserved)"
    },
    {
        "rule": "!has(self.deserved) || !has(self.capability) || quantity(string(self.deserved)).compareTo(quantity(string(self.capability))) <= 0",
        "message": "deserved must not be more than capability",
        "messageExpression": "'deserved ' + string(self.deserved) + ' must not be more than capability ' + string(self.capability)"
    },
    {
        "rule": "!has(self.guarantee) || !has(self.capability) || quantity(string(self.guarantee)).compareTo(quantity(string(self.capability))) <= 0",
        "message": "guarantee must not be more than capability",
        "messageExpression": "'guarantee ' + string(self.guarantee) + ' must not be more than capability ' + string(self.capability)"
    },
]))]
pub struct CapacityPolicyBounds {
    /// The resource: nvidia.com/gpu, cpu, ...
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Reserved for the queue, even while the queue does not use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<QuantityText>,
    /// What the queue gets back when it needs it; until then other queues may borrow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deserved: Option<QuantityText>,
    /// The most that the queue may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<QuantityText>,
}

/// The order of jobs within a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityPolicyOrdering {
    /// No job passes the head of the queue.
    #[serde(rename = "StrictFIFO")]
    StrictFifo,
    /// Every job that fits starts.
    BestEffort,
    /// Jobs pass the head of the queue if that does not delay it.
    Backfill,
    /// As Backfill, with short jobs first: jobs are ordered by the time of queueing plus a multiple of
    /// the predicted run time.
    ShortestPredicted,
}

/// How the priority of a pending job rises while it waits, so that no job waits for ever behind jobs of
/// higher priority. It rises up to the highest class in priorityClasses, or of all PriorityClasses. Preemption
/// goes by the job's own class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["intervalSeconds"]))]
pub struct CapacityPolicyAgeing {
    /// The time of one step in seconds.
    #[schemars(with = "Option<i32>", range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<i64>,
    /// By how much the priority rises with each step.
    #[schemars(range(min = 1, max = 1_000_000_000), extend("default" = {"stated": 1}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increment: Option<i32>,
}

/// How jobs pass jobs that wait for quota or capacity, if the ordering allows that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityPolicyBackfill {
    /// Which jobs ahead of it a job may not delay when it passes them.
    #[schemars(extend("default" = {"stated": "Easy"}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Loose<CapacityPolicyBackfillMode>>,
    /// How many jobs of the queue may have a reservation at the same time. Unset: 1, or 16 if the mode is
    /// Conservative.
    #[schemars(range(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<i32>,
}

/// Which jobs ahead of it a job may not delay when it passes them, with the words of the literature on batch
/// schedulers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityPolicyBackfillMode {
    /// Those that have a reservation.
    Easy,
    /// All.
    Conservative,
}

/// Where a queue's jobs are placed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityPolicyPlacement {
    /// How many clusters one job may be split over. Unset: its PropagationPolicy decides.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_clusters: Option<i32>,
    /// Whether its jobs are split over several clusters if they do not say so themselves
    /// (muster.io/split). Volcano Jobs, batch/v1 Jobs and JobSets can be split; Kubeflow's jobs, RayClusters
    /// and RayJobs only if addresses are set.
    #[schemars(extend("default" = {"stated": "Never"}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Loose<CapacityPolicySplit>>,
    /// The address of a pod for pods of other clusters, by the name of its cluster, or "*" for all
    /// others: {host}.{namespace}.svc.{cluster}.example.com, ... Queues below that set none inherit it.
    /// {host} is the name that resolves inside that cluster's namespace. {service} is a Service that
    /// Muster makes for the pod and Karmada's MultiClusterService exports to the other clusters:
    /// {service}.{namespace}.svc. Unset: pods of different clusters cannot find each other.
    #[schemars(extend("maxProperties" = 256, "additionalProperties" = {
        "type": "string",
        "maxLength": 253,
        "pattern": "^([-A-Za-z0-9._:]|[{](host|service|namespace|cluster)[}])+$",
    }))]
    #[serde(
        deserialize_with = "lenient",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub addresses: BTreeMap<String, String>,
    /// Clusters to prefer, in this order, if several are possible.
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preferred_clusters: Vec<String>,
    /// The names of the filters that exclude clusters, besides those that always hold: readiness,
    /// affinity and taints. Unset: APIEnablement. docs/reference/placement.md describes the filters.
    #[schemars(schema_with = "filters_schema")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<Vec<String>>,
    /// The weights of the scores by which one of several possible placements is chosen, after the fewest
    /// clusters, whole topology domains and preferredClusters. 0 disables a score.
    #[schemars(schema_with = "weights_schema")]
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub weights: BTreeMap<String, i32>,
    /// How many seconds an admitted gang may take until its minimum of pods runs, the pull of images included. Then it
    /// is evicted.
    #[schemars(with = "Option<i32>", range(min = 0), extend("default" = {"stated": 600}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_deadline_seconds: Option<i64>,
    /// How many seconds a running gang may have fewer pods than its minimum, because pods were lost with their
    /// nodes or evicted, until it is evicted and queued again. Its own controller may replace them
    /// meanwhile. If new pods do not fit in their cluster, it is not waited for. Unset: 60, or 300 if a
    /// node lost devices.
    #[schemars(with = "Option<i32>", range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_deadline_seconds: Option<i64>,
    /// Which nodes pull the images of a waiting job's largest role before it starts, by a Job in its namespace.
    #[schemars(extend("default" = {"stated": "Never"}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_pull: Option<Loose<CapacityPolicyPrePull>>,
}

/// Which nodes pull images before a job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityPolicyPrePull {
    /// None.
    Never,
    /// Those that are reserved for the job.
    Reserved,
}

/// Over how many clusters a job may be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityPolicySplit {
    /// Not split.
    Never,
    /// Split if no single cluster has capacity.
    Allowed,
    /// Also split if that leaves less capacity unusable.
    Preferred,
}

/// Returns true if no quota is stated.
fn is_unstated(resources: &Loose<Vec<CapacityPolicyBounds>>) -> bool {
    *resources == Loose::default()
}

/// The schema of the weights, from the list of scores.
fn weights_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let each = facts::plugins::SCORES.iter().map(|score| {
        let weight = serde_json::json!({
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "maximum": 1000,
            "description": format!("{}.", score.about),
            "default": {"stated": score.unset},
        });
        (score.name.to_owned(), weight)
    });
    let each: serde_json::Map<_, _> = each.collect();
    schemars::json_schema!({"type": "object", "properties": each})
}

/// The schema of the filters that can be chosen, from the list of filters.
fn filters_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let chosen = facts::plugins::FILTERS
        .iter()
        .filter(|filter| filter.unset != Holds::Always);
    let names: Vec<&str> = chosen.map(|filter| filter.name).collect();
    schemars::json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 32,
        "items": {"type": "string", "enum": names},
    })
}
