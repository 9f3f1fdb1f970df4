//! `PodGroup` (scheduling.volcano.sh/v1beta1): one per job, on the control plane.
//!
//! The CRD made from these types is a superset of Volcano's (v1.14): all its fields, a status
//! subresource, printer columns, and `status.federation`. It is for people: no decision is
//! read from it. Where Volcano's own CRD is installed it is left alone; what that would prune
//! goes into an annotation, and the reason into conditions.

use crate::conditions::Statement;
use crate::loose::{QuantityList, any_object, lenient};
use crate::slim_resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::CustomResource;
use kube::core::NamespaceResourceScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

mod federation;
mod status_word;

pub use federation::{Eviction, ExpectedStart, FederationStatus, JobsAhead, PlacedPart, Timeline};
pub use status_word::{StatusWord, UnknownStatus};

/// Values of `status.phase`, as Volcano names them. Strings, because a new one must not break a LIST.
pub mod phase {
    /// Queued, or held.
    pub const PENDING: &str = "Pending";
    /// Admitted; its pods are not all there yet.
    pub const INQUEUE: &str = "Inqueue";
    /// At least its minimum runs.
    pub const RUNNING: &str = "Running";
    /// Some of its pods run, fewer than its minimum.
    pub const UNKNOWN: &str = "Unknown";
    /// It ended.
    pub const COMPLETED: &str = "Completed";
}

/// Types of Muster's conditions, in addition to Volcano's.
pub mod condition_type {
    /// Quota is charged and the job may start.
    pub const ADMITTED: &str = "Admitted";
    /// Its placement is written.
    pub const PLACED: &str = "Placed";
    /// At least its minimum runs.
    pub const READY: &str = "Ready";
    /// It ended. The reason says how.
    pub const FINISHED: &str = "Finished";
    /// Its admission record can be read. Present only if it could not be.
    pub const RECORD_READABLE: &str = "RecordReadable";
    /// Its Works request no more than was admitted. Present only if they did.
    pub const WITHIN_ADMISSION: &str = "WithinAdmission";
    /// Its propagation policy asks for nothing that is not done. Present only if it did.
    pub const POLICY_FOLLOWED: &str = "PolicyFollowed";
    /// Its admission record is as Muster wrote it. Present only if another client has changed it, until
    /// the next attempt is admitted.
    pub const RECORD_INTACT: &str = "RecordIntact";
}

/// A PodGroup. Objects that Volcano's own CRD admits can also be read: one without a spec, for instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodGroup {
    /// `scheduling.volcano.sh/v1beta1`.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// `PodGroup`.
    #[serde(default = "kind")]
    pub kind: String,
    /// Name, owner, ...
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What the gang needs to start.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: PodGroupSpec,
    /// Its status.
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<PodGroupStatus>,
}
slim_resource!(
    PodGroup,
    NamespaceResourceScope,
    "scheduling.volcano.sh",
    "v1beta1",
    "PodGroup",
    "podgroups"
);

impl PodGroup {
    /// Returns a PodGroup with `metadata` and `spec`, and no status.
    #[must_use]
    pub fn new(metadata: ObjectMeta, spec: PodGroupSpec) -> Self {
        Self {
            api_version: api_version(),
            kind: kind(),
            metadata,
            spec,
            status: None,
        }
    }
}

fn api_version() -> String {
    "scheduling.volcano.sh/v1beta1".to_owned()
}

fn kind() -> String {
    "PodGroup".to_owned()
}

/// What a gang needs to start.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduling.volcano.sh",
    version = "v1beta1",
    kind = "PodGroup",
    root = "PodGroupDefinition",
    plural = "podgroups",
    namespaced,
    status = "PodGroupStatus",
    shortname = "pg",
    shortname = "podgroup-v1beta1",
    category = "muster",
    doc = "PodGroup is one job: what its gang needs, its position in its queue, and where it runs.",
    annotation("helm.sh/resource-policy", "keep"),
    selectable = ".spec.queue",
    printcolumn(
        name = "STATUS",
        type_ = "string",
        json_path = ".status.federation.status",
        description = "What it does"
    ),
    printcolumn(name = "RUNNING", type_ = "integer", json_path = ".status.running"),
    printcolumn(name = "QUEUE", type_ = "string", json_path = ".spec.queue"),
    printcolumn(
        name = "POS",
        type_ = "integer",
        json_path = ".status.federation.position",
        description = "Place in its queue; from 10 on rounded down to a power of ten"
    ),
    printcolumn(
        name = "PLACEMENT",
        type_ = "string",
        json_path = ".status.federation.placementSummary",
        description = "Pods per cluster"
    ),
    printcolumn(
        name = "REASON",
        type_ = "string",
        json_path = ".status.federation.reason",
        description = "Why it is where it is"
    ),
    printcolumn(
        name = "PHASE",
        type_ = "string",
        json_path = ".status.phase",
        description = "Volcano's word for it",
        priority = 1
    ),
    printcolumn(
        name = "minMember",
        type_ = "integer",
        json_path = ".spec.minMember",
        priority = 1
    ),
    printcolumn(
        name = "PRIORITY",
        type_ = "integer",
        json_path = ".status.federation.priority",
        priority = 1
    ),
    printcolumn(
        name = "ATTEMPT",
        type_ = "integer",
        json_path = ".status.federation.attempt",
        priority = 1
    ),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = ".status.federation.message",
        priority = 1
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// The minimum of pods that run together. The gang never starts with fewer.
    #[schemars(range(min = 0))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub min_member: Option<i32>,
    /// The same per task.
    #[serde(
        deserialize_with = "lenient",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub min_task_member: BTreeMap<String, i32>,
    /// The queue that it is charged to.
    #[schemars(length(max = 253), regex(pattern = NAME_PATTERN))]
    #[serde(default = "default_queue", deserialize_with = "lenient")]
    pub queue: String,
    /// Its PriorityClass.
    #[schemars(length(max = 253))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// The requests of its minimum of pods.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub min_resources: Option<QuantityList>,
    /// How far apart its pods may run, in the form of Volcano's network topology scheduling.
    #[schemars(schema_with = "any_object")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<Value>,
    /// Gangs within the gang, in Volcano's form.
    #[schemars(schema_with = "any_objects")]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub sub_group_policy: Vec<Value>,
}

/// Pattern of names of queues, as in Volcano's CRD.
const NAME_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

fn default_queue() -> String {
    crate::names::DEFAULT_QUEUE.to_owned()
}

fn any_objects(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "array", "items": any_object(generator)})
}

/// The status of a job. Empty fields are written as `null`, so that a merge patch clears them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(description = "The status of a job.")]
pub struct PodGroupStatus {
    /// Pending, Inqueue, Running, Unknown or Completed.
    #[serde(deserialize_with = "lenient")]
    pub phase: Option<String>,
    /// Volcano's conditions, and Admitted, Placed, Ready and Finished.
    #[serde(deserialize_with = "lenient")]
    pub conditions: Vec<PodGroupCondition>,
    /// Pods that run, in all clusters.
    #[serde(deserialize_with = "lenient")]
    pub running: Option<i32>,
    /// Pods that succeeded.
    #[serde(deserialize_with = "lenient")]
    pub succeeded: Option<i32>,
    /// Pods that failed.
    #[serde(deserialize_with = "lenient")]
    pub failed: Option<i32>,
    /// Its status in the federation.
    #[serde(deserialize_with = "lenient")]
    pub federation: Option<FederationStatus>,
}

/// A condition in Volcano's shape.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// Volcano's id of the scheduling session; Muster's conditions have none.
    #[serde(rename = "transitionID", skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    /// When its status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// A CamelCase word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// Formats `gpu-a:8,gpu-b:8`; `None` if it is not placed.
#[must_use]
pub fn placement_summary(parts: &[PlacedPart]) -> Option<String> {
    let words: Vec<String> = parts
        .iter()
        .map(|part| format!("{}:{}", part.cluster, part.pods))
        .collect();
    (!words.is_empty()).then(|| words.join(","))
}

/// The first position that is not shown exactly.
pub const EXACT_POSITIONS: usize = 10;

/// The largest count that is shown exactly.
pub const EXACT_COUNTS: i64 = 20;

/// Returns `place` (1 is next) as it is shown: exact below [`EXACT_POSITIONS`], then rounded down to a power of ten, so
/// that a moving queue causes few writes.
#[must_use]
pub fn shown_position(place: u64) -> i64 {
    let shown = match place {
        0..10 => place,
        _ => 10_u64.pow(place.ilog10()),
    };
    i64::try_from(shown).unwrap_or(i64::MAX)
}

/// Returns `count` as it is shown: exact up to [`EXACT_COUNTS`], then rounded down to its two leading digits.
#[must_use]
pub fn shown_count(count: u64) -> i64 {
    let unit = match count {
        0..=20 => 1,
        _ => 10_u64.pow(count.ilog10() - 1),
    };
    i64::try_from(count / unit * unit).unwrap_or(i64::MAX)
}

/// Sets `statement` in `conditions`; the transition time becomes `now` only if the status changes. Returns
/// true if anything changed.
pub fn set_condition(
    conditions: &mut Vec<PodGroupCondition>,
    statement: &Statement<'_>,
    now: jiff::Timestamp,
) -> bool {
    let old = conditions
        .iter()
        .position(|condition| condition.type_ == statement.type_);
    let same_status = old
        .map(|index| &conditions[index])
        .filter(|condition| condition.status == statement.status());
    let new = PodGroupCondition {
        type_: statement.type_.to_owned(),
        status: statement.status().to_owned(),
        transition_id: None,
        last_transition_time: same_status
            .and_then(|condition| condition.last_transition_time.clone())
            .or(Some(Time(now))),
        reason: statement.reason.to_owned(),
        message: statement.message.to_owned(),
    };
    match old {
        Some(index) if conditions[index] == new => false,
        Some(index) => {
            conditions[index] = new;
            true
        }
        None => {
            conditions.push(new);
            true
        }
    }
}

#[cfg(test)]
mod tests;
