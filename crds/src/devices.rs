//! Slim read types of Dynamic Resource Allocation (`resource.k8s.io/v1`): the devices of nodes, the classes
//! of devices, claims, and the taints that administrators give to devices.

use crate::loose::{lenient, nullable, slim_metadata};
use crate::slim_resource;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Devices that a driver offers: all devices of a pool, or some of them.
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
    /// The driver that offers the devices.
    pub driver: String,
    /// The pool of the devices.
    pub pool: ResourcePool,
    /// The node of all devices, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// True if each device names its node itself.
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
    /// Increases with each change of the pool: slices of older generations do not count.
    pub generation: i64,
    /// Number of slices of the pool in this generation.
    pub resource_slice_count: i64,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Unique in its pool.
    pub name: String,
    /// Its properties, by name or `domain/name`; each has one of `int`, `bool`, `string`, `version`.
    #[serde(deserialize_with = "nullable")]
    pub attributes: BTreeMap<String, Value>,
    /// Its capacities, by name or `domain/name`.
    #[serde(deserialize_with = "nullable")]
    pub capacity: BTreeMap<String, Value>,
    /// Not empty if it shares its hardware with other devices.
    #[serde(deserialize_with = "nullable")]
    pub consumes_counters: Vec<Value>,
    /// The node of the device, if each device names its node itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// True if it can be allocated to several claims at the same time.
    #[serde(deserialize_with = "nullable")]
    pub allow_multiple_allocations: bool,
    /// Why it should not be used.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<DeviceTaint>,
}

/// A taint of a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaint {
    /// The key of the taint.
    pub key: String,
    /// Its value, often what is wrong.
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "String::is_empty"
    )]
    pub value: String,
    /// `None`, `NoSchedule` or `NoExecute`.
    pub effect: String,
    /// Since when it is there; Kubernetes adds it.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Timestamp>,
}

impl Device {
    /// Returns true if it should not be allocated.
    #[must_use]
    pub fn is_unhealthy(&self) -> bool {
        // An effect that only later versions know counts like these.
        self.taints.iter().any(|taint| taint.effect != "None")
    }
}

/// A taint that an administrator gives to devices. It is served in other versions than the rest of the group, which
/// differ only in what a selector can say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceTaintRule {
    /// Name, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The devices and the taint.
    #[serde(default)]
    pub spec: DeviceTaintRuleSpec,
}

impl DeviceTaintRule {
    /// Its API group.
    pub const GROUP: &str = "resource.k8s.io";
    /// Its name in URLs.
    pub const PLURAL: &str = "devicetaintrules";
    /// The versions that can be read, the preferred one first.
    pub const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1alpha3"];

    /// Returns its API in `version`.
    #[must_use]
    pub fn api_resource(version: &str) -> ApiResource {
        ApiResource {
            group: Self::GROUP.to_owned(),
            version: version.to_owned(),
            api_version: format!("{}/{version}", Self::GROUP),
            kind: "DeviceTaintRule".to_owned(),
            plural: Self::PLURAL.to_owned(),
        }
    }
}

/// A cluster serves it in one of several versions, so which one is known only at run time.
impl kube::Resource for DeviceTaintRule {
    type DynamicType = ApiResource;
    type Scope = ClusterResourceScope;
    fn kind(api: &ApiResource) -> Cow<'_, str> {
        api.kind.as_str().into()
    }
    fn group(api: &ApiResource) -> Cow<'_, str> {
        api.group.as_str().into()
    }
    fn version(api: &ApiResource) -> Cow<'_, str> {
        api.version.as_str().into()
    }
    fn plural(api: &ApiResource) -> Cow<'_, str> {
        api.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// `spec` of a DeviceTaintRule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaintRuleSpec {
    /// Which devices have the taint; without it none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_selector: Option<DeviceTaintSelector>,
    /// The taint.
    #[serde(deserialize_with = "nullable")]
    pub taint: DeviceTaint,
}

/// The devices that a rule taints: those to which all that is set applies. An empty selector selects all devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaintSelector {
    /// Their driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Their pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Their name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// A class that selects them; up to Kubernetes 1.34.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_class_name: Option<String>,
    /// Expressions that select them; up to Kubernetes 1.34.
    #[serde(deserialize_with = "nullable")]
    pub selectors: Vec<DeviceSelector>,
    /// What this version does not know. It would narrow the selection.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, Value>,
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
    /// All of them must match; an empty list matches every device.
    #[serde(deserialize_with = "nullable")]
    pub selectors: Vec<DeviceSelector>,
}

/// A selector of devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSelector {
    /// An expression about one device; `None` for other kinds of selectors, which later versions may have.
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
    /// Name, owner (the pod that it was created for), ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// Its allocation.
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
    /// Its allocation, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
}

/// The allocation of a claim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allocation {
    /// Its devices.
    #[serde(deserialize_with = "nullable")]
    pub devices: AllocatedDevices,
}

/// The devices of an allocation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatedDevices {
    /// One entry for each device.
    #[serde(deserialize_with = "nullable")]
    pub results: Vec<AllocatedDevice>,
}

/// An allocated device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDevice {
    /// Its driver.
    pub driver: String,
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    /// True for administrative access: the device stays free for others.
    #[serde(deserialize_with = "nullable")]
    pub admin_access: bool,
}

/// The template from which claims of pods are created.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceClaimTemplate {
    /// Name, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The claim, unparsed: `workload` reads it.
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
    /// Returns what it claims for one pod.
    #[must_use]
    pub fn claimed_devices(&self) -> workload::ClaimedDevices {
        workload::claimed_devices(&serde_json::json!({"spec": self.spec}))
    }
}
