//! `PodGroup` (scheduling.volcano.sh/v1beta1): one per job, on the control plane.
//!
//! The CRD made from these types is a superset of Volcano's (v1.14): all its fields, a status
//! subresource, printer columns, and `status.federation`. It is for people: no decision is
//! read from it. Where Volcano's own CRD is installed it is left alone; what that would prune
//! goes into conditions.

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

/// Values of `status.phase`, as Volcano names them. Kept as text: a new one must not break a
/// LIST.
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

/// Types of our own conditions, beside Volcano's.
pub mod condition_type {
    /// Quota is charged and it may go.
    pub const ADMITTED: &str = "Admitted";
    /// Its clusters are written.
    pub const PLACED: &str = "Placed";
    /// At least its minimum runs.
    pub const READY: &str = "Ready";
    /// It ended, well or not: the reason tells.
    pub const FINISHED: &str = "Finished";
    /// Its admission record can be acted on. Stands there only where it could not be.
    pub const RECORD_READABLE: &str = "RecordReadable";
    /// Its Works ask for no more than was admitted. Stands there only where they did.
    pub const WITHIN_ADMISSION: &str = "WithinAdmission";
    /// Its admission record is as Muster wrote it. Stands there only where somebody else has changed
    /// it, until the next attempt is admitted.
    pub const RECORD_INTACT: &str = "RecordIntact";
}

/// A PodGroup. Also what Volcano's own CRD admits is read: one without a spec, for instance.
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
    /// What the gang needs.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: PodGroupSpec,
    /// Where it stands.
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
    /// A PodGroup with `metadata` and `spec`, and no status.
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
    doc = "PodGroup is one job: what its gang needs, where it stands in its queue, and where it runs.",
    annotation("helm.sh/resource-policy", "keep"),
    selectable = ".spec.queue",
    printcolumn(name = "STATUS", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "RUNNING", type_ = "integer", json_path = ".status.running"),
    printcolumn(name = "QUEUE", type_ = "string", json_path = ".spec.queue"),
    printcolumn(
        name = "POS",
        type_ = "string",
        json_path = ".status.federation.position",
        description = "Place in its queue; exact up to 10"
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
    /// Pods that must run together: fewer never start.
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
    /// What its minimum requests.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub min_resources: Option<QuantityList>,
    /// How far apart its pods may run, as Volcano's network topology scheduling takes it.
    #[schemars(schema_with = "any_object")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<Value>,
    /// Gangs within the gang, as Volcano takes them.
    #[schemars(schema_with = "any_objects")]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub sub_group_policy: Vec<Value>,
}

/// Names of queues, as Volcano's CRD has it.
const NAME_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

fn default_queue() -> String {
    crate::names::DEFAULT_QUEUE.to_owned()
}

fn any_objects(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "array", "items": any_object(generator)})
}

/// Where a job stands. Empty fields are written as `null`, so that a merge patch clears them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(description = "Where a job stands.")]
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
    /// Pods that ended well.
    #[serde(deserialize_with = "lenient")]
    pub succeeded: Option<i32>,
    /// Pods that failed.
    #[serde(deserialize_with = "lenient")]
    pub failed: Option<i32>,
    /// What the federation does with it.
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
    /// Volcano's id of the scheduling session; ours have none.
    #[serde(rename = "transitionID", skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    /// When its status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// A CamelCase word.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// What the federation does with a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FederationStatus {
    /// Its place in its queue: exact up to 10, then coarse (`10+`, `100+`).
    #[serde(deserialize_with = "lenient")]
    pub position: Option<String>,
    /// Its parts, by cluster.
    #[serde(deserialize_with = "lenient")]
    pub placement: Vec<PlacedPart>,
    /// The same in a word: `gpu-a:8,gpu-b:8`.
    #[serde(deserialize_with = "lenient")]
    pub placement_summary: Option<String>,
    /// Why it is where it is: one word of a closed list.
    #[serde(deserialize_with = "lenient")]
    pub reason: Option<String>,
    /// The same in words, with numbers.
    #[serde(deserialize_with = "lenient")]
    pub message: Option<String>,
    /// What the reason rests on, a fact a line, the most telling first.
    #[serde(deserialize_with = "lenient")]
    pub evidence: Vec<String>,
    /// Changes each of which would let it start now.
    #[serde(deserialize_with = "lenient")]
    pub helps: Vec<String>,
    /// What stands before it in its queue.
    #[serde(deserialize_with = "lenient")]
    pub ahead: Option<Ahead>,
    /// When it is expected to start, where anything is known of that.
    #[serde(deserialize_with = "lenient")]
    pub start: Option<Start>,
    /// How its last attempt was evicted, if one was.
    #[serde(deserialize_with = "lenient")]
    pub eviction: Option<Eviction>,
    /// The former name of `eviction`: read for one version, never written.
    #[serde(deserialize_with = "lenient", skip_serializing)]
    pub taken_back: Option<Eviction>,
    /// How often it was released, this time included.
    #[serde(deserialize_with = "lenient")]
    pub attempt: Option<i32>,
    /// The value of its PriorityClass.
    #[serde(deserialize_with = "lenient")]
    pub priority: Option<i32>,
    /// When it came how far.
    #[serde(deserialize_with = "lenient")]
    pub timeline: Timeline,
}

/// What stands before a job, in numbers that are exact while they are small and coarse beyond, so
/// that a moving queue writes little.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Ahead {
    /// Jobs.
    pub jobs: String,
    /// Devices that they ask for together.
    pub devices: String,
    /// Device-hours that they are expected to take, as far as run times are known.
    pub device_hours: String,
}

/// When a job is expected to start. Times are rounded by how far away they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Start {
    /// Not before.
    pub earliest: Option<Time>,
    /// Likely by; absent where an end that it depends on is not known.
    pub latest: Option<Time>,
    /// What that rests on, in words.
    pub basis: String,
}

/// How an attempt of a job was evicted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Eviction {
    /// When.
    pub time: Option<Time>,
    /// Why: one word of a closed list.
    pub reason: String,
    /// In words.
    pub message: String,
    /// The job that room was made for (`namespace/name` of its PodGroup), if it was for one.
    pub for_job: Option<String>,
}

/// One cluster's part of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacedPart {
    /// The cluster.
    pub cluster: String,
    /// Pods it was given.
    pub pods: i32,
    /// Pods that run there, as it reports.
    pub ready: i32,
    /// How the part stands: Dispatched, Running, Ended, ...
    pub phase: String,
    /// Why, where something is wrong.
    pub reason: String,
}

/// When a job came how far; of the latest attempt, but for `queued`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeline {
    /// It was submitted.
    pub queued: Option<Time>,
    /// Quota was charged.
    pub admitted: Option<Time>,
    /// Its clusters were written.
    pub placed: Option<Time>,
    /// Its minimum ran.
    pub running: Option<Time>,
    /// It was last grown or shrunk.
    pub resized: Option<Time>,
    /// It ended.
    pub finished: Option<Time>,
}

/// `gpu-a:8,gpu-b:8`; `None` where it is placed nowhere.
#[must_use]
pub fn placement_summary(parts: &[PlacedPart]) -> Option<String> {
    let words: Vec<String> = parts
        .iter()
        .map(|part| format!("{}:{}", part.cluster, part.pods))
        .collect();
    (!words.is_empty()).then(|| words.join(","))
}

/// `place` (1 is next) as it is shown: exact up to 10, then by order of magnitude, so that a
/// moving queue writes little.
#[must_use]
pub fn shown_position(place: u64) -> String {
    match place {
        0..=10 => place.to_string(),
        11..=100 => "10+".to_owned(),
        101..=1000 => "100+".to_owned(),
        1001..=10_000 => "1000+".to_owned(),
        _ => "10000+".to_owned(),
    }
}

/// `count` as it is shown: exact up to 20, then its two leading digits.
#[must_use]
pub fn shown_count(count: u64) -> String {
    if count <= 20 {
        return count.to_string();
    }
    let unit = 10_u64.pow(count.ilog10() - 1);
    format!("~{}", count / unit * unit)
}

/// Puts `statement` among `conditions`; `now` becomes the time of transition only where the
/// status changes. Whether anything changed.
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn positions_are_exact_at_the_front_only() {
        let shown: Vec<String> = [1, 10, 11, 100, 101, 1000, 1001, 1_000_000]
            .into_iter()
            .map(shown_position)
            .collect();
        assert_eq!(
            shown,
            ["1", "10", "10+", "10+", "100+", "100+", "1000+", "10000+"]
        );
    }

    #[test]
    fn large_counts_keep_two_digits() {
        let shown = [0, 20, 21, 99, 137, 1_999, 123_456].map(shown_count);
        assert_eq!(shown, ["0", "20", "~21", "~99", "~130", "~1900", "~120000"]);
    }

    #[test]
    fn empty_fields_are_cleared_by_a_merge_patch() {
        let status = serde_json::to_value(PodGroupStatus {
            federation: Some(FederationStatus::default()),
            ..PodGroupStatus::default()
        })
        .unwrap();
        assert!(status["phase"].is_null());
        assert!(status["federation"].as_object().unwrap()["position"].is_null());
        assert!(status["federation"]["timeline"].as_object().unwrap()["finished"].is_null());
    }

    #[test]
    fn parts_are_summed_up_in_a_word() {
        let part = |cluster: &str, pods| PlacedPart {
            cluster: cluster.to_owned(),
            pods,
            ..PlacedPart::default()
        };
        assert_eq!(
            placement_summary(&[part("gpu-a", 8), part("gpu-b", 4)]).as_deref(),
            Some("gpu-a:8,gpu-b:4")
        );
        assert_eq!(placement_summary(&[]), None);
    }
}
