//! Slim read types of Kubernetes' own kinds: nodes, pods, namespaces, priority classes.
//!
//! Members send hundreds of thousands of them, so they decode only the fields that Muster reads. They are
//! converted into facts and dropped.

use crate::karmada::{LooseCondition, LooseTaint, condition};
use crate::loose::{QuantityList, QuantityText, nullable, slim_metadata};
use crate::names::{
    ADOPTED_AT_ANNOTATION, DEFAULT_QUEUE_KEY, DOMAIN_LABELS, GPU_PRODUCT_LABEL, MANAGED_LABEL,
    is_system_namespace,
};
use crate::slim_resource;
use facts::{
    ClusterName, JobKey, NodeFact, NodeName, PodFact, PoolClass, PriorityClassFact, ResourceName,
    Resources, Uid,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, ClusterResourceScope, GroupVersionKind, NamespaceResourceScope};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use workload::SpecError;

mod node_images;
mod pod_status;

pub use pod_status::{
    ContainerReason, ContainerState, ContainerStatus, PodStatus, ResourceHealth, ResourceStatus,
    symptom,
};

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name, labels, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// Taints and cordon.
    #[serde(default)]
    pub spec: NodeSpec,
    /// Conditions and allocatable resources.
    #[serde(default)]
    pub status: NodeStatus,
}
slim_resource!(Node, ClusterResourceScope, "", "v1", "Node", "nodes");

/// `spec` of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// True if it is cordoned.
    pub unschedulable: bool,
    /// Its taints.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<LooseTaint>,
}

/// `status` of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// The resources that pods may request.
    #[serde(deserialize_with = "nullable")]
    pub allocatable: QuantityList,
    /// `Ready`, ...
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<LooseCondition>,
    /// The full names of its large images (`status.images` names all); the others are dropped as it is read.
    #[serde(deserialize_with = "node_images::large", skip_serializing)]
    pub images: Vec<String>,
}

/// The taint with which the node controller repeats `spec.unschedulable`.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

impl Node {
    /// Returns the fact for the engine, as a node of `cluster`.
    #[must_use]
    pub fn to_fact(&self, cluster: &ClusterName) -> NodeFact {
        let labels = self.metadata.labels.clone().unwrap_or_default();
        let allocatable = self.allocatable();
        let domains = domains(&labels);
        NodeFact {
            cluster: cluster.clone(),
            name: NodeName::new(self.metadata.name.as_deref().unwrap_or_default()),
            class: pool_class(&labels, &allocatable),
            labels,
            taints: self
                .spec
                .taints
                .iter()
                .filter(|taint| taint.key != CORDON_TAINT)
                .map(LooseTaint::to_taint)
                .collect(),
            allocatable,
            domains,
            usable: self.is_usable(),
            lost: self.is_lost(),
        }
    }

    /// Not Ready, or being deleted.
    fn is_lost(&self) -> bool {
        let ready = condition(&self.status.conditions, "Ready");
        !ready.is_some_and(LooseCondition::is_true) || self.metadata.deletion_timestamp.is_some()
    }

    /// Returns true if it is Ready, not cordoned, and not being deleted.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.spec.unschedulable && !self.is_lost()
    }

    /// Returns the resources that pods may request. An unreadable quantity is left out: the node then has none
    /// of that resource, and no pod that needs it is placed there.
    fn allocatable(&self) -> Resources {
        self.status
            .allocatable
            .iter()
            .filter_map(|(name, text)| {
                let name = ResourceName::new(name);
                let amount = name.amount(&text.0).ok()?;
                Some((name, amount))
            })
            .collect()
    }
}

/// Returns the topology domains of a node with `labels`, outermost first. A name is unique only within its
/// parent domain: two zones may each have a rack `r1`.
fn domains(labels: &BTreeMap<String, String>) -> Vec<String> {
    DOMAIN_LABELS
        .iter()
        .filter_map(|label| labels.get(*label))
        .filter(|name| !name.is_empty())
        .cloned()
        .collect()
}

/// Returns the class of a node's pool, as a DNS label: the product of its GPUs, or of the parts into which
/// these are divided; else its device's DeviceClass or resource, else `cpu`. A device counts even if there
/// are 0 of it, so that a failing device plugin does not move its node to another pool.
#[must_use]
pub fn pool_class(labels: &BTreeMap<String, String>, allocatable: &Resources) -> PoolClass {
    let product = labels.get(GPU_PRODUCT_LABEL).map(|text| dns_label(text));
    let product = match (product, parts_of_gpus(allocatable)) {
        (product, None) => product,
        // gpu-feature-discovery reports the product of the parts themselves.
        (product, Some(parts)) => match labels.get(&format!("{parts}.product")) {
            Some(own) => Some(dns_label(own)),
            None => product.map(|product| dns_label(&format!("{product}-{}", suffix(parts)))),
        },
    };
    let class = product
        .filter(|label| !label.is_empty())
        .or_else(|| device(allocatable).map(|name| dns_label(class_name(name))))
        .filter(|label| !label.is_empty());
    PoolClass::new(class.as_deref().unwrap_or(ResourceName::CPU))
}

/// Returns the name in the class of nodes that are counted in `device`.
fn class_name(device: &ResourceName) -> &str {
    device.device_class().unwrap_or(device.as_str())
}

/// Returns the resource in which a node offers parts of GPUs, if it has no whole ones: MIG instances
/// (strategy `mixed`; of several sizes the most frequent), or time slices (`renameByDefault`). Other ways
/// to divide GPUs show in the product label itself (NVIDIA's k8s-device-plugin and gpu-feature-discovery,
/// v0.17).
fn parts_of_gpus(resources: &Resources) -> Option<&str> {
    let amount = |name: &str| resources.amount_of(&ResourceName::new(name)).0;
    let names = || resources.iter().map(|(name, _)| name.as_str());
    let parts = names().filter(|name| name.starts_with(MIG_PREFIX) || *name == SHARED_GPU);
    let most = parts.max_by_key(|name| (amount(name), std::cmp::Reverse(*name)))?;
    // With none of either left, the node counts as one with whole GPUs.
    let whole = names().any(|name| name == WHOLE_GPU);
    let in_parts = amount(WHOLE_GPU) == 0 && (amount(most) > 0 || !whole);
    in_parts.then_some(most)
}

const WHOLE_GPU: &str = "nvidia.com/gpu";
const SHARED_GPU: &str = "nvidia.com/gpu.shared";
const MIG_PREFIX: &str = "nvidia.com/mig-";

/// Returns the suffix of the class of parts after the product: `mig-1g.5gb`, `shared`.
fn suffix(parts: &str) -> &str {
    parts
        .strip_prefix("nvidia.com/gpu.")
        .or_else(|| parts.strip_prefix("nvidia.com/"))
        .unwrap_or(parts)
}

/// Returns the resource by which a node is counted: an accelerator before other devices (a node with GPUs
/// also has RDMA devices), a device plugin before a DeviceClass (both may offer the same devices), then the
/// first by name.
#[must_use]
pub fn device(resources: &Resources) -> Option<&ResourceName> {
    let names = resources.iter().map(|(name, _)| name);
    let devices = names.filter(|name| name.is_device());
    devices.min_by_key(|name| name.rank_as_device())
}

/// Returns `text` in lower case, with single dashes in place of other characters than letters and digits,
/// at most 63 characters.
fn dns_label(text: &str) -> String {
    let mut label = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            label.push(c.to_ascii_lowercase());
        } else if !label.ends_with('-') {
            label.push('-');
        }
    }
    label.truncate(63);
    label.trim_matches('-').to_owned()
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pod {
    /// Name, owner references, labels, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The node that it is bound to, and its requests.
    #[serde(default)]
    pub spec: PodSpec,
    /// Its phase.
    #[serde(default)]
    pub status: PodStatus,
}
slim_resource!(Pod, NamespaceResourceScope, "", "v1", "Pod", "pods");

/// A gate that keeps a pod from being scheduled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulingGate {
    /// Its name.
    pub name: String,
}

/// `spec` of a pod: its node, and the fields from which its request is computed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The scheduler that binds it; the default one if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// What has to happen before a scheduler looks at it.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub scheduling_gates: Vec<SchedulingGate>,
    /// Its grace period in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Its containers.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    /// Its init containers, sidecars among them.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    /// The overhead of its runtime class.
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "QuantityList::is_empty"
    )]
    pub overhead: QuantityList,
    /// Requests of the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ContainerResources>,
    /// Claims of devices. The claims themselves have the devices; the request does not depend on them.
    #[serde(deserialize_with = "nullable", skip_serializing)]
    pub resource_claims: Vec<PodClaim>,
}

/// A claim that a pod names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaim {
    /// The name by which its containers and its status refer to it.
    pub name: String,
    /// The claim, if it exists already; otherwise it is created from a template, and the status has its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
}

/// A container and its requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// `Always` makes an init container a sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
    /// Requests and limits.
    #[serde(deserialize_with = "nullable")]
    pub resources: ContainerResources,
}

/// Requests and limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerResources {
    /// Requests.
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "QuantityList::is_empty"
    )]
    pub requests: BTreeMap<String, QuantityText>,
    /// Limits.
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "QuantityList::is_empty"
    )]
    pub limits: BTreeMap<String, QuantityText>,
}

impl Pod {
    /// Returns the fact for the engine, as a pod of `cluster` that belongs to `job`.
    ///
    /// # Errors
    /// Returns an error if its requests are invalid or overflow: no API server stores such a pod.
    pub fn to_fact(
        &self,
        cluster: &ClusterName,
        job: Option<JobKey>,
    ) -> Result<PodFact, SpecError> {
        Ok(PodFact {
            cluster: cluster.clone(),
            uid: Uid::new(self.metadata.uid.as_deref().unwrap_or_default()),
            node: self.spec.node_name.as_ref().map(NodeName::new),
            request: self.request()?,
            job,
            phase: self.phase(),
            symptom: self.symptom().map(Box::new),
            grace_s: self.grace_s(),
        })
    }

    /// Returns the seconds that it may take to end: of its deletion, which may have been given less or more, or else
    /// of its spec. The API server fills in the latter.
    #[must_use]
    pub fn grace_s(&self) -> u32 {
        let of_deletion = self.metadata.deletion_grace_period_seconds;
        let seconds = of_deletion.or(self.spec.termination_grace_period_seconds);
        let most = i64::from(u32::MAX);
        u32::try_from(seconds.unwrap_or(0).clamp(0, most)).unwrap_or(u32::MAX)
    }

    /// Returns the names of its claims of devices, `None` for one that does not exist yet; claims that turned
    /// out not to be needed are left out.
    pub fn claim_names(&self) -> impl Iterator<Item = Option<&str>> {
        self.spec.resource_claims.iter().filter_map(|claim| {
            if let Some(name) = &claim.resource_claim_name {
                return Some(Some(name.as_str()));
            }
            let mut made = self.status.resource_claim_statuses.iter();
            match made.find(|made| made.name == claim.name) {
                Some(made) => made.resource_claim_name.as_deref().map(Some),
                None => Some(None),
            }
        })
    }

    /// Returns its request to a node, including one `pods`.
    fn request(&self) -> Result<Resources, SpecError> {
        // Maps of strings always serialize to JSON.
        let spec = serde_json::to_value(&self.spec).unwrap_or_default();
        workload::pod_request(&spec)
    }
}

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Namespace {
    /// Name, labels, annotations, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
}
slim_resource!(
    Namespace,
    ClusterResourceScope,
    "",
    "v1",
    "Namespace",
    "namespaces"
);

impl Namespace {
    /// Returns true if Muster manages its workloads.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        let labels = self.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.get(MANAGED_LABEL).is_some_and(|v| v == "true"))
            && !is_system_namespace(self.metadata.name.as_deref().unwrap_or_default())
    }

    /// Returns true if all workloads that ran in it before it was managed are adopted.
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.contains_key(ADOPTED_AT_ANNOTATION))
    }

    /// Returns the queue of its jobs that name none, if set: the annotation, else the label.
    #[must_use]
    pub fn default_queue(&self) -> Option<&str> {
        [&self.metadata.annotations, &self.metadata.labels]
            .into_iter()
            .flatten()
            .find_map(|map| map.get(DEFAULT_QUEUE_KEY))
            .map(String::as_str)
            .filter(|queue| !queue.is_empty())
    }
}

/// `scheduling.k8s.io/v1 PriorityClass`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PriorityClass {
    /// Its name, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// A higher value goes first.
    #[serde(default)]
    pub value: i32,
    /// True if it is the class of jobs that name none.
    #[serde(default)]
    pub global_default: bool,
    /// `Never` or `PreemptLowerPriority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption_policy: Option<String>,
}
slim_resource!(
    PriorityClass,
    ClusterResourceScope,
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses"
);

impl PriorityClass {
    /// Returns the fact for the engine.
    #[must_use]
    pub fn to_fact(&self) -> PriorityClassFact {
        PriorityClassFact {
            name: self.metadata.name.clone().unwrap_or_default(),
            value: self.value,
            global_default: self.global_default,
            preempts: self.preemption_policy.as_deref() != Some("Never"),
        }
    }
}

/// Returns the resource of a kind of workload: its plural if the kind is known, else Kubernetes' usual
/// plural.
#[must_use]
pub fn api_resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let known = workload::known_kinds()
        .find(|known| known.group == group && known.version == version && known.kind == kind);
    match known {
        Some(known) => ApiResource::from_gvk_with_plural(&gvk, known.plural),
        None => ApiResource::from_gvk(&gvk),
    }
}

#[cfg(test)]
mod tests;
