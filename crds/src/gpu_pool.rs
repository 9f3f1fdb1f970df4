//! `GpuPool` (muster.io/v1alpha2, cluster scope, named `<cluster>.<class>`): the nodes of one
//! class in one member cluster, as the scheduler sees them.
//!
//! It is output for people. No decision reads it.

use crate::loose::lenient;
use crate::node_health::NodeAvoidance;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Values of `status.health`.
pub mod health {
    /// The live view is fresh.
    pub const READY: &str = "Ready";
    /// The numbers are older than they should be.
    pub const STALE: &str = "Stale";
    /// The member cannot be reached.
    pub const UNREACHABLE: &str = "Unreachable";
}

/// The most avoided nodes that a status names.
pub const MOST_AVOIDED: usize = 50;

/// The nodes of the pool.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "muster.io",
    version = "v1alpha2",
    kind = "GpuPool",
    plural = "gpupools",
    status = "GpuPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "gp",
    category = "muster",
    doc = "GpuPool shows the nodes of one class in one member cluster. The scheduler writes it; no decision reads it.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(
        name = "CLUSTER",
        type_ = "string",
        json_path = ".spec.cluster",
        priority = 1
    ),
    printcolumn(
        name = "CLASS",
        type_ = "string",
        json_path = ".spec.class",
        priority = 1
    ),
    printcolumn(name = "NODES", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(
        name = "TOTAL",
        type_ = "integer",
        json_path = ".status.total",
        description = "Devices"
    ),
    printcolumn(
        name = "FREE",
        type_ = "integer",
        json_path = ".status.free",
        description = "Devices that no pod requests, on usable nodes"
    ),
    printcolumn(
        name = "LARGEST",
        type_ = "integer",
        json_path = ".status.largestFreeNode",
        description = "Most devices free on one node"
    ),
    printcolumn(
        name = "FRAG",
        type_ = "integer",
        json_path = ".status.fragmentationPercent",
        description = "Percent of the free devices that are on partly used nodes"
    ),
    printcolumn(
        name = "AVOIDED",
        type_ = "integer",
        json_path = ".status.avoided",
        description = "Nodes that are avoided because of faults"
    ),
    printcolumn(
        name = "USABLE",
        type_ = "integer",
        json_path = ".status.usableNodes",
        priority = 1
    ),
    printcolumn(
        name = "DEVICE",
        type_ = "string",
        json_path = ".spec.device",
        priority = 1
    ),
    printcolumn(name = "STATUS", type_ = "string", json_path = ".status.health"),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster", "class", "device"]))]
pub struct GpuPoolSpec {
    /// The member cluster.
    #[schemars(length(max = 253))]
    pub cluster: String,
    /// The class of its nodes.
    #[schemars(length(max = 63))]
    pub class: String,
    /// The resource that is counted: nvidia.com/gpu, ..., or cpu if there is no device.
    #[schemars(length(max = 317))]
    pub device: String,
}

/// The capacity of these nodes, in devices (or whole CPUs, if there is no device).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuPoolStatus {
    /// Nodes of the class.
    pub nodes: i64,
    /// Nodes that are Ready, not cordoned and not tainted.
    pub usable_nodes: i64,
    /// Devices on all its nodes.
    pub total: i64,
    /// Devices on usable nodes.
    pub allocatable: i64,
    /// Devices that pods request.
    pub used: i64,
    /// Devices on usable nodes that no pod requests.
    pub free: i64,
    /// Usable nodes by free devices, most free first.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["free"]))]
    #[serde(deserialize_with = "lenient")]
    pub histogram: Vec<FreeNodes>,
    /// Most devices free on one node.
    pub largest_free_node: i64,
    /// Percent of the free devices that are on partly used nodes.
    #[serde(deserialize_with = "lenient")]
    pub fragmentation_percent: Option<i32>,
    /// Nodes that are avoided because of faults: they have the taint muster.io/avoid.
    pub avoided: i64,
    /// The first 50 of them by name, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"]))]
    // Present also if empty: a merge patch removes only what it names.
    #[serde(deserialize_with = "lenient")]
    pub avoided_nodes: Vec<AvoidedNode>,
    /// When the member last answered, coarsely.
    #[serde(deserialize_with = "lenient")]
    pub last_seen: Option<Time>,
    /// Ready, Stale or Unreachable.
    pub health: String,
    /// Details of its health.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A node that is avoided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["node"]))]
pub struct AvoidedNode {
    /// Its name.
    pub node: String,
    /// Why; empty values if a person put the taint there.
    #[serde(flatten)]
    pub avoidance: NodeAvoidance,
}

/// The nodes with a number of free devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["free"]))]
pub struct FreeNodes {
    /// Devices free on each.
    pub free: i64,
    /// The number of such nodes.
    pub nodes: i64,
}

/// Returns the name of the GpuPool of `class` in `cluster`.
#[must_use]
pub fn name(cluster: &str, class: &str) -> String {
    format!("{cluster}.{class}")
}
