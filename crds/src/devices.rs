//! Slim read types of Dynamic Resource Allocation (`resource.k8s.io/v1`): what devices nodes
//! have, what makes classes of them, and who has claimed which.

use crate::loose::{lenient, nullable, slim_metadata};
use crate::slim_resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Devices that a driver offers: all of one pool, or a part of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceSlice {
    /// Name, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The pool, where it is, and the devices.
    #[serde(default)]
    pub spec: ResourceSliceSpec,
}
slim_resource!(
    ResourceSlice,
    ClusterResourceScope,
    "resource.k8s.io",
    "v1",
    "ResourceSlice",
    "resourceslices"
);

/// `spec` of a ResourceSlice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSliceSpec {
    /// Who offers the devices.
    pub driver: String,
    /// The pool that they belong to.
    pub pool: ResourcePool,
    /// The node that has them all, if one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Whether each device says itself where it is.
    pub per_device_node_selection: bool,
    /// The devices.
    #[serde(deserialize_with = "nullable")]
    pub devices: Vec<Device>,
}

/// A pool of devices, as each of its slices names it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcePool {
    /// Unique for its driver.
    pub name: String,
    /// Higher with each change of the pool: slices of an older one do not count.
    pub generation: i64,
    /// Slices that the pool has in this generation.
    pub resource_slice_count: i64,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Unique in its pool.
    pub name: String,
    /// What it is, by name or `domain/name`; each has one of `int`, `bool`, `string`, `version`.
    #[serde(deserialize_with = "nullable")]
    pub attributes: BTreeMap<String, Value>,
    /// What it has, by name or `domain/name`.
    #[serde(deserialize_with = "nullable")]
    pub capacity: BTreeMap<String, Value>,
    /// Not empty where it is made of what other devices are made of, too.
    #[serde(deserialize_with = "nullable")]
    pub consumes_counters: Vec<Value>,
    /// The node that has it, where each device says so itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Whether it can be allocated to several claims at a time.
    #[serde(deserialize_with = "nullable")]
    pub allow_multiple_allocations: bool,
    /// Why it should not be used.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<DeviceTaint>,
}

/// A taint of a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceTaint {
    /// What is wrong.
    pub key: String,
    /// `None`, `NoSchedule` or `NoExecute`.
    pub effect: String,
}

impl Device {
    /// Whether it should not be given to anybody.
    #[must_use]
    pub fn is_unhealthy(&self) -> bool {
        // An effect that a later version has is no weaker than these.
        self.taints.iter().any(|taint| taint.effect != "None")
    }
}

/// A class of devices: those that all its selectors match.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceClass {
    /// Name, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The selectors.
    #[serde(default)]
    pub spec: DeviceClassSpec,
}
slim_resource!(
    DeviceClass,
    ClusterResourceScope,
    "resource.k8s.io",
    "v1",
    "DeviceClass",
    "deviceclasses"
);

/// `spec` of a DeviceClass.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceClassSpec {
    /// All of them must match; none match every device.
    #[serde(deserialize_with = "nullable")]
    pub selectors: Vec<DeviceSelector>,
}

/// A selector of devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSelector {
    /// An expression over one device; `None` in selectors of another kind, which later versions
    /// may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CelSelector>,
}

/// An expression of the Common Expression Language.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CelSelector {
    /// True for the devices that are selected.
    pub expression: String,
}

/// A claim of devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceClaim {
    /// Name, owner (the pod that it was made for), ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// What it got.
    #[serde(default)]
    pub status: ResourceClaimStatus,
}
slim_resource!(
    ResourceClaim,
    NamespaceResourceScope,
    "resource.k8s.io",
    "v1",
    "ResourceClaim",
    "resourceclaims"
);

/// `status` of a ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceClaimStatus {
    /// What it got, if it has been given anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
}

/// What a claim got.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allocation {
    /// Its devices.
    #[serde(deserialize_with = "nullable")]
    pub devices: AllocatedDevices,
}

/// The devices that a claim got.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatedDevices {
    /// One entry a device.
    #[serde(deserialize_with = "nullable")]
    pub results: Vec<AllocatedDevice>,
}

/// A device that a claim got.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDevice {
    /// Whose it is.
    pub driver: String,
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    /// Whether it is only looked after, and free for others to use.
    #[serde(deserialize_with = "nullable")]
    pub admin_access: bool,
}

/// What claims of pods are made from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceClaimTemplate {
    /// Name, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The claim, as it stands: `workload` reads it.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: Value,
}
slim_resource!(
    ResourceClaimTemplate,
    NamespaceResourceScope,
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates"
);

impl ResourceClaimTemplate {
    /// What it claims for one pod.
    #[must_use]
    pub fn claimed_devices(&self) -> workload::ClaimedDevices {
        workload::claimed_devices(&serde_json::json!({"spec": self.spec}))
    }
}
