//! `NamespaceQueue` (muster.io/v1alpha2, named like a Queue): what a queue is to one namespace: what its jobs use and
//! request there, what they may use, and what is free.
//!
//! It is output for people who may read their own namespace only. No decision reads it.

use crate::capacity_policy::JobCounts;
use crate::loose::{QuantityText, lenient};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Nothing can be chosen: the name says which queue it is about.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "muster.io",
    version = "v1alpha2",
    kind = "NamespaceQueue",
    plural = "namespacequeues",
    namespaced,
    status = "NamespaceQueueStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "nsq",
    category = "muster",
    doc = "NamespaceQueue shows a queue to the users of one namespace. The controller writes it for the default queue of a managed namespace and for each queue that has jobs of it; no decision reads it.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(
        name = "USED",
        type_ = "string",
        json_path = ".status.resources[?(@.name==\"nvidia.com/gpu\")].used",
        description = "nvidia.com/gpu charged to jobs of the namespace"
    ),
    printcolumn(
        name = "FREE",
        type_ = "string",
        json_path = ".status.resources[?(@.name==\"nvidia.com/gpu\")].free",
        description = "nvidia.com/gpu that the namespace may use besides, by quota"
    ),
    printcolumn(
        name = "PENDING",
        type_ = "integer",
        json_path = ".status.counts.pending",
        description = "Pending jobs of the namespace"
    ),
    printcolumn(
        name = "RUNNING",
        type_ = "integer",
        json_path = ".status.counts.running",
        description = "Running jobs of the namespace"
    ),
    printcolumn(
        name = "AHEAD",
        type_ = "integer",
        json_path = ".status.pendingAhead",
        description = "Pending jobs of the queue before the first of the namespace"
    ),
    printcolumn(
        name = "OPEN",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Open\")].status",
        description = "True if jobs of the namespace may be admitted from the queue"
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceQueueSpec {}

/// The queue as the namespace sees it. Amounts of other namespaces are not told apart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceQueueStatus {
    /// Open: whether jobs of the namespace may be admitted from the queue.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(deserialize_with = "lenient")]
    pub conditions: Vec<Condition>,
    /// Use and limits by resource.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(deserialize_with = "lenient")]
    pub resources: Vec<NamespaceResource>,
    /// The number of jobs of the namespace by state.
    #[serde(deserialize_with = "lenient")]
    pub counts: JobCounts,
    /// The number of pending jobs of the whole queue.
    pub queue_pending: i64,
    /// The number of pending jobs of the queue that come before the first of the namespace, if it has one and less than
    /// 100 do.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub pending_ahead: Option<i64>,
    /// When the last of its pending jobs is expected to start at the latest, if that is known. In a queue with more
    /// than 100 it is the last of the first 100.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub last_pending_start: Option<Time>,
}

/// One resource of a queue, as a namespace sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct NamespaceResource {
    /// The resource.
    pub name: String,
    /// Charged to admitted jobs of the namespace.
    pub used: QuantityText,
    /// Requested by its pending jobs.
    pub pending: QuantityText,
    /// The most that one namespace may use of the queue, if that is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<QuantityText>,
    /// Charged to admitted jobs of all namespaces, those of the queues below included.
    pub queue_used: QuantityText,
    /// What the queue gets back when it needs it, if that is stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_deserved: Option<QuantityText>,
    /// The most that the queue may use at present, if that is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_limit: Option<QuantityText>,
    /// What the namespace may use besides, by these limits; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<QuantityText>,
    /// What is free on usable nodes of all clusters, at most a minute ago. A job may need more than that in one cluster
    /// or on one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_in_clusters: Option<QuantityText>,
}
