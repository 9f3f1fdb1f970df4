//! `CapacityPolicy` (muster.io/v1alpha1, cluster scope): what a queue may use where, and what
//! the federation does with it.
//!
//! It has the name of its Volcano `Queue`. What the schema takes is enforced; what it could not
//! check makes the policy invalid, which its condition `Valid` says with field and value.

mod fact;
mod status;

pub use fact::{DEFAULT_START_DEADLINE_MS, closed_to};
pub use status::{CapacityPolicyStatus, ClusterUse, Counts, Head, PoolUse, ResourceUse, Summary};

use crate::duration;
use crate::loose::{Loose, QuantityText, lenient, nullable};
use engine::placement::plugins::Holds;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Types of conditions.
pub mod condition_type {
    /// Whether its values can be used.
    pub const VALID: &str = "Valid";
    /// Whether the queue takes jobs.
    pub const OPEN: &str = "Open";
}

/// How a queue is run.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "muster.io",
    version = "v1alpha1",
    kind = "CapacityPolicy",
    plural = "capacitypolicies",
    status = "CapacityPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "cap",
    category = "muster",
    doc = "CapacityPolicy says what the queue of its name may use where, who may pass whom in it, and shows what the federation does with it.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(
        name = "GPUS",
        type_ = "string",
        json_path = ".status.summary.gpus",
        description = "Devices allocated, of its capability"
    ),
    printcolumn(
        name = "PENDING",
        type_ = "string",
        json_path = ".status.summary.pendingGpus",
        description = "Devices that its queued jobs ask for"
    ),
    printcolumn(
        name = "JOBS",
        type_ = "string",
        json_path = ".status.summary.jobs",
        description = "Running and queued jobs"
    ),
    printcolumn(
        name = "HEAD",
        type_ = "string",
        json_path = ".status.head.job",
        description = "The job that is next"
    ),
    printcolumn(
        name = "REASON",
        type_ = "string",
        json_path = ".status.head.reason",
        description = "What it waits for"
    ),
    printcolumn(
        name = "DESERVED",
        type_ = "string",
        json_path = ".status.summary.deservedGpus",
        description = "Devices that it gets back when it needs them",
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
    /// Bounds per class of pools, besides the Queue's own.
    #[schemars(length(max = 64))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// Who may pass whom. Unset: StrictFIFO where the Queue's dequeueStrategy is fifo, else
    /// Backfill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering: Option<Loose<Ordering>>,
    /// Namespaces that may submit, beside those and who have the verb `use` on the Queue. Unset: as
    /// tenancy says.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Who may submit where namespaceSelector is not set: all managed namespaces (Open), or only those
    /// and who have the verb `use` on the Queue (Closed). Unset: as the CapacityPolicy `root` says, which
    /// `muster install --tenancy` writes; where that says nothing, Open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenancy: Option<Loose<Tenancy>>,
    /// PriorityClasses that its jobs may have. Unset: all. A job that names none has the cluster's
    /// default, which has to be among these where there is one.
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_classes: Option<Vec<String>>,
    /// How jobs pass those that wait for quota or room.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub backfill: Option<Backfill>,
    /// How its share is weighed against others'.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub fair_share: Option<FairShare>,
    /// Who may be evicted for whom.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub preemption: Option<Preemption>,
    /// Bounds on numbers of jobs and on their length.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Where its jobs go.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

/// Who may submit to a queue that names no namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Tenancy {
    /// All managed namespaces.
    Open,
    /// Only who has the verb `use` on the Queue.
    Closed,
}

/// What a queue may use of one class of pools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["class"]))]
pub struct Pool {
    /// The class: nvidia-h100-80gb-hbm3, cpu, ... as GpuPools show it.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    #[serde(default)]
    pub class: String,
    /// The clusters whose pools are counted together; unset: all.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 253)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Vec<String>>,
    /// Bounds, by resource: nvidia.com/gpu, cpu, ...
    #[schemars(extend("maxProperties" = 16))]
    #[serde(default, deserialize_with = "lenient")]
    pub resources: BTreeMap<String, Bounds>,
}

/// Bounds on one resource: guarantee ≤ deserved ≤ capability.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
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
pub struct Bounds {
    /// Kept for the queue even while it is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<QuantityText>,
    /// What it gets back when it needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deserved: Option<QuantityText>,
    /// Never more than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<QuantityText>,
}

/// Who may pass whom inside a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Ordering {
    /// Nobody passes the head.
    #[serde(rename = "StrictFIFO")]
    StrictFifo,
    /// Whoever fits goes.
    BestEffort,
    /// Others pass the head where that does not delay it.
    Backfill,
    /// As Backfill, in the order of when each was queued plus a multiple of how long it is
    /// predicted to run.
    ShortestPredicted,
}

/// How jobs pass those that wait for quota or room, where the ordering lets them pass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Backfill {
    /// Whether a job may pass only where it delays none of those ahead of it, instead of only
    /// those that hold a reservation. Unset: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conservative: Option<bool>,
    /// Jobs of the queue that hold a reservation at once. Unset: as the controller is set.
    #[schemars(range(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<i32>,
}

/// How a queue's share is weighed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FairShare {
    /// Relative to its siblings. Unset: the Queue's own.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// After which past use counts half: 24h, ... Unset: only what is held now counts.
    #[schemars(length(max = 32), regex(pattern = duration::DURATION_PATTERN), extend("x-kubernetes-validations" = [{
        "rule": "!(self.matches('^([0.]+(ms|s|m|h))+$'))",
        "message": "must be more than 0"
    }]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_half_life: Option<String>,
}

/// Who may be evicted for whom.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Preemption {
    /// Whether a job may take from lower priority in its own queue. Unset: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_queue: Option<bool>,
    /// Whether it may reclaim from other queues what they borrowed. Unset: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<bool>,
    /// How long a job of this queue runs before it may be evicted. Unset: 0s.
    #[schemars(length(max = 32), regex(pattern = duration::DURATION_PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_runtime: Option<String>,
    /// Whether its jobs may say that they are never evicted (volcano.sh/preemptable: "false"). Where
    /// they may not, what they say has no effect. Unset: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_non_preemptable: Option<bool>,
    /// Whether a job that runs longer than it declared (muster.io/expected-duration) may be evicted for
    /// those that it delays: jobs of this queue of the same or a higher priority, and of queues that
    /// may reclaim, whatever it says of being evicted. Unset: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_overdue: Option<bool>,
}

/// Bounds on numbers of jobs and on their length.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Jobs of the queue, and of those below it, that may be released at once.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<i64>,
    /// The same per user.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs_per_user: Option<i64>,
    /// Jobs that compete, in order; those behind wait until one of them has gone.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<i64>,
    /// How long a job may run; then it is evicted, and does not compete again.
    #[schemars(length(max = 32), regex(pattern = duration::DURATION_PATTERN), extend("x-kubernetes-validations" = [{
        "rule": "!(self.matches('^([0.]+(ms|s|m|h))+$'))",
        "message": "must be more than 0"
    }]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
}

/// Where a queue's jobs go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// Clusters that one job may be spread over; unset: as its policy says.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_clusters: Option<i32>,
    /// Whether its jobs are placed over several clusters, where they do not say themselves
    /// (muster.io/split) and can be: Volcano Jobs, batch/v1 Jobs, JobSets, and PyTorchJobs,
    /// TFJobs, MPIJobs, RayClusters and RayJobs where addresses are told. Unset: Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Loose<Split>>,
    /// How pods reach those of another cluster, by the name of that cluster or "*" for every
    /// other: {host}.{namespace}.svc.{cluster}.example.com, ... Holds for the queues below that
    /// say none. {host} is the name that resolves inside that cluster's namespace. {service} is a
    /// Service that Muster makes for the pod and Karmada's MultiClusterService takes to the other
    /// clusters: {service}.{namespace}.svc. Unset: pods of different clusters cannot find each
    /// other.
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
    /// Taken first, in this order, where several would do.
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preferred_clusters: Vec<String>,
    /// Which clusters are left out, beside those that are not ready, not selected, or whose
    /// taints are not tolerated: the names of filters. Unset: APIEnablement. What each does:
    /// docs/reference/placement.md.
    #[schemars(schema_with = "filters_schema")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<Vec<String>>,
    /// How much each aim counts where several placements would do, after the fewest clusters,
    /// whole topology domains and preferredClusters: relative whole numbers by the names of
    /// scores, 0 for not at all.
    #[schemars(schema_with = "weights_schema")]
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub weights: BTreeMap<String, i32>,
    /// How long a released gang may take until its minimum of pods is bound; then it is evicted.
    /// Unset: 10m.
    #[schemars(length(max = 32), regex(pattern = duration::DURATION_PATTERN))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_deadline: Option<String>,
}

/// Over how many clusters a job may be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Split {
    /// In one only.
    Never,
    /// Over several where no one has room.
    Allowed,
    /// Over several wherever that leaves less unusable.
    Preferred,
}

/// What weights there are, from the scores that the engine has.
fn weights_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let each = engine::placement::plugins::scores().map(|score| {
        let weight = serde_json::json!({
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "maximum": 1000,
            "description": format!("{}. Unset: {}.", score.about, score.unset),
        });
        (score.name.to_owned(), weight)
    });
    let each: serde_json::Map<_, _> = each.collect();
    schemars::json_schema!({"type": "object", "properties": each})
}

/// What filters can be chosen, from those that the engine has.
fn filters_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let chosen =
        engine::placement::plugins::filters().filter(|filter| filter.unset != Holds::Always);
    let names: Vec<&str> = chosen.map(|filter| filter.name).collect();
    schemars::json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 32,
        "items": {"type": "string", "enum": names},
    })
}
