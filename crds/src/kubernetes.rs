//! Slim read types of Kubernetes' own kinds: nodes, pods, namespaces, priority classes.
//!
//! Members send them by the hundred thousand, so they decode only what Muster looks at. Facts
//! are made from them and the objects dropped.

use crate::karmada::{LooseCondition, LooseTaint, condition};
use crate::loose::{QuantityList, QuantityText, nullable, slim_metadata};
use crate::names::{
    DEFAULT_QUEUE_KEY, DOMAIN_LABELS, GPU_PRODUCT_LABEL, MANAGED_LABEL, is_system_namespace,
};
use crate::slim_resource;
use engine::facts::{NodeFact, PodFact, PriorityClassFact};
use engine::{ClusterName, JobKey, NodeName, PoolClass, ResourceName, Resources, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use workload::AskError;

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name, labels, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// Taints and cordon.
    #[serde(default)]
    pub spec: NodeSpec,
    /// Conditions and what pods may request.
    #[serde(default)]
    pub status: NodeStatus,
}
slim_resource!(Node, ClusterResourceScope, "", "v1", "Node", "nodes");

/// `spec` of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Its taints.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<LooseTaint>,
}

/// `status` of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// What pods may request of it.
    #[serde(deserialize_with = "nullable")]
    pub allocatable: QuantityList,
    /// `Ready`, ...
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<LooseCondition>,
}

/// The taint by which the node controller repeats `spec.unschedulable`.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

impl Node {
    /// What the engine is told of it, as a node of `cluster`.
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
        }
    }

    /// Ready, uncordoned, and not being deleted.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let ready =
            condition(&self.status.conditions, "Ready").is_some_and(LooseCondition::is_true);
        ready && !self.spec.unschedulable && self.metadata.deletion_timestamp.is_none()
    }

    /// What pods may request of it. A quantity that cannot be read is left out: the node then
    /// has none of that resource, and nothing that needs it is placed there.
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

/// The topology domains of a node with `labels`, outermost first. A name is unique within the
/// domain around it only: two zones may each have a rack `r1`.
fn domains(labels: &BTreeMap<String, String>) -> Vec<String> {
    DOMAIN_LABELS
        .iter()
        .filter_map(|label| labels.get(*label))
        .filter(|name| !name.is_empty())
        .cloned()
        .collect()
}

/// The class of a node's pool: the product of its GPUs, else its device's resource, else `cpu`;
/// as a DNS label. A device counts even where there are 0 of it: a device plugin that fails
/// does not move its node to another pool.
#[must_use]
pub fn pool_class(labels: &BTreeMap<String, String>, allocatable: &Resources) -> PoolClass {
    let product = labels.get(GPU_PRODUCT_LABEL).map(|text| dns_label(text));
    let class = product
        .filter(|label| !label.is_empty())
        .or_else(|| device(allocatable).map(|name| dns_label(name.as_str())))
        .filter(|label| !label.is_empty());
    PoolClass::new(class.as_deref().unwrap_or(ResourceName::CPU))
}

/// The resource that a node is counted by: an accelerator before other devices (a node with
/// GPUs has RDMA devices too), then the first by name.
#[must_use]
pub fn device(resources: &Resources) -> Option<&ResourceName> {
    let accelerator = |name: &&ResourceName| {
        let kind = name.as_str().rsplit('/').next().unwrap_or_default();
        ["gpu", "npu", "tpu", "ascend"]
            .iter()
            .any(|word| kind.to_ascii_lowercase().contains(word))
    };
    let devices = || {
        resources
            .iter()
            .map(|(name, _)| name)
            .filter(|name| name.is_device())
    };
    devices().find(accelerator).or_else(|| devices().next())
}

/// `text` in lower case, everything but letters and digits as single dashes, at most 63 long.
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
    /// Where it is bound, and what it requests.
    #[serde(default)]
    pub spec: PodSpec,
    /// Whether it has ended.
    #[serde(default)]
    pub status: PodStatus,
}
slim_resource!(Pod, NamespaceResourceScope, "", "v1", "Pod", "pods");

/// `spec` of a pod: its node, and what its request is computed from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Its containers.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    /// Its init containers, sidecars among them.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    /// What its runtime class adds.
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "QuantityList::is_empty"
    )]
    pub overhead: QuantityList,
    /// Requests of the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ContainerResources>,
}

/// What a container requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// `Always` makes a sidecar of an init container.
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
    /// At least.
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "QuantityList::is_empty"
    )]
    pub requests: BTreeMap<String, QuantityText>,
    /// At most.
    #[serde(
        deserialize_with = "nullable",
        skip_serializing_if = "QuantityList::is_empty"
    )]
    pub limits: BTreeMap<String, QuantityText>,
}

/// `status` of a pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: String,
}

impl Pod {
    /// What the engine is told of it, as a pod of `cluster` that belongs to `job`.
    ///
    /// # Errors
    /// Where what it requests cannot be read or counted: no API server stores such a pod.
    pub fn to_fact(&self, cluster: &ClusterName, job: Option<JobKey>) -> Result<PodFact, AskError> {
        Ok(PodFact {
            cluster: cluster.clone(),
            uid: Uid::new(self.metadata.uid.as_deref().unwrap_or_default()),
            node: self.spec.node_name.as_ref().map(NodeName::new),
            request: self.request()?,
            job,
            ended: self.has_ended(),
        })
    }

    /// What it requests of a node, one `pods` included.
    fn request(&self) -> Result<Resources, AskError> {
        // Maps of text serialize to JSON without fail.
        let spec = serde_json::to_value(&self.spec).unwrap_or_default();
        workload::pod_request(&spec)
    }

    /// Whether it has ended and so holds nothing on its node.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
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
    /// Whether its workloads are handed to Muster.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        let labels = self.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.get(MANAGED_LABEL).is_some_and(|v| v == "true"))
            && !is_system_namespace(self.metadata.name.as_deref().unwrap_or_default())
    }

    /// The queue of its jobs that name none, if it says so: the annotation, else the label.
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
    /// Higher goes first.
    #[serde(default)]
    pub value: i32,
    /// Whether jobs that name no class get this one.
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
    /// What the engine is told of it.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn nodes_are_classed_by_what_makes_devices_interchangeable() {
        for (product, allocatable, want) in [
            (
                Some("NVIDIA-A100-SXM4-80GB"),
                vec![("nvidia.com/gpu", "8")],
                "nvidia-a100-sxm4-80gb",
            ),
            (
                Some("NVIDIA A100 80GB PCIe, MIG 1g.10gb"),
                vec![],
                "nvidia-a100-80gb-pcie-mig-1g-10gb",
            ),
            (Some("  "), vec![("nvidia.com/gpu", "8")], "nvidia-com-gpu"),
            (
                None,
                vec![
                    ("cpu", "8"),
                    ("mellanox.com/rdma", "1"),
                    ("nvidia.com/gpu", "0"),
                ],
                "nvidia-com-gpu",
            ),
            (
                None,
                vec![("huawei.com/Ascend910", "8")],
                "huawei-com-ascend910",
            ),
            (None, vec![("rdma/hca", "1")], "rdma-hca"),
            (None, vec![("cpu", "8"), ("hugepages-2Mi", "0")], "cpu"),
        ] {
            let labels = product.map(|text| (GPU_PRODUCT_LABEL.to_owned(), text.to_owned()));
            let allocatable = Resources::parse(allocatable).unwrap();
            let class = pool_class(&labels.into_iter().collect(), &allocatable);
            assert_eq!(class.as_str(), want, "{product:?}");
        }
    }

    #[test]
    fn domains_are_named_outermost_first() {
        let domains = |labels: Value| -> Vec<String> {
            let node: Node =
                serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}}))
                    .unwrap();
            node.to_fact(&"m1".into()).domains
        };
        assert_eq!(
            domains(
                json!({"topology.kubernetes.io/rack": "r1", "topology.kubernetes.io/zone": "a"})
            ),
            ["a", "r1"]
        );
        assert_eq!(
            domains(json!({"volcano.sh/tor": "t", "topology.kubernetes.io/zone": ""})),
            ["t"]
        );
        assert!(domains(json!({})).is_empty());
    }

    #[test]
    fn a_class_that_never_preempts_says_so() {
        for (policy, want) in [
            (json!(null), true),
            (json!("PreemptLowerPriority"), true),
            (json!("Never"), false),
        ] {
            let class: PriorityClass =
                serde_json::from_value(json!({"value": 1, "preemptionPolicy": policy})).unwrap();
            assert_eq!(class.to_fact().preempts, want, "{policy}");
        }
    }

    #[test]
    fn a_cordon_is_no_taint() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1", "labels": {"zone": "z"}},
            "spec": {"unschedulable": true, "taints": [
                {"key": CORDON_TAINT, "effect": "NoSchedule"}, {"key": "gpu", "value": "a", "effect": "NoExecute"},
            ]},
            "status": {"allocatable": {"cpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        let fact = node.to_fact(&"m1".into());
        assert!(!fact.usable);
        assert_eq!(fact.taints.len(), 1);
        assert_eq!(fact.allocatable.to_string(), "cpu 8, pods 110");

        let uncordoned = Node {
            spec: NodeSpec::default(),
            ..node
        };
        assert!(uncordoned.is_usable());
    }

    #[test]
    fn a_pod_requests_what_its_containers_do() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {
                "nodeName": "n1",
                "containers": [
                    {"name": "a", "image": "x", "resources": {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": 2}}},
                    {"name": "b", "resources": {"requests": {"cpu": 1}}},
                ],
                "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
                "overhead": {"cpu": "250m"},
            },
            "status": {"phase": "Running"},
        }))
        .unwrap();
        let fact = pod.to_fact(&"m1".into(), None).unwrap();
        assert_eq!(
            fact.request.to_string(),
            "cpu 2250m, nvidia.com/gpu 2, pods 1"
        );
        assert_eq!((fact.node, fact.ended), (Some(NodeName::new("n1")), false));
    }

    #[test]
    fn system_namespaces_are_never_managed() {
        let namespace = |name: &str, managed: &str| -> Namespace {
            serde_json::from_value(
                json!({"metadata": {"name": name, "labels": {MANAGED_LABEL: managed}}}),
            )
            .unwrap()
        };
        assert!(namespace("team-a", "true").is_managed());
        assert!(!namespace("team-a", "false").is_managed());
        assert!(!namespace("karmada-es-m1", "true").is_managed());
    }

    #[test]
    fn slim_metadata_drops_the_weight_and_keeps_the_rest() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {
            "name": "p", "uid": "u", "resourceVersion": "9", "labels": {"a": "b"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "muster.io/run-for": "3s"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "o"}],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}}],
        }}))
        .unwrap();
        assert_eq!(pod.metadata.managed_fields, None);
        assert_eq!(pod.metadata.annotations.unwrap().len(), 1);
        assert_eq!(pod.metadata.owner_references.unwrap()[0].name, "j");
        assert_eq!(pod.metadata.resource_version.as_deref(), Some("9"));
    }
}
