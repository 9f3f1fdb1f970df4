//! Slim read types of Karmada's objects, with the fields that Muster reads.
//!
//! They are never written back. Every field may be missing and every enum value may be new: one unexpected
//! object must not break a LIST.

mod cluster;

pub use cluster::{
    ApiEnablement, ApiResource, Cluster, ClusterSpec, ClusterStatus, LooseTaint, SecretReference,
};

use crate::loose::nullable;
use crate::names::{
    APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES, BINDING_NAME_ANNOTATION,
    BINDING_NAMESPACE_ANNOTATION, PART_ANNOTATION,
};
use facts::JobKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// Implements [`kube::Resource`] for a slim type with a `metadata` field.
#[macro_export]
macro_rules! slim_resource {
    ($type:ty, $scope:ty, $group:literal, $version:literal, $kind:literal, $plural:literal) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = $scope;
            fn kind(_: &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group(_: &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version(_: &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// `work.karmada.io/v1alpha2 ResourceBinding`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ResourceBinding {
    /// Name, labels, annotations, finalizers, ...
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The bound object, and its clusters.
    #[serde(default)]
    pub spec: BindingSpec,
    /// The reports of members.
    #[serde(default)]
    pub status: BindingStatus,
}
slim_resource!(
    ResourceBinding,
    NamespaceResourceScope,
    "work.karmada.io",
    "v1alpha2",
    "ResourceBinding",
    "resourcebindings"
);

impl ResourceBinding {
    /// Returns the job that it binds, which has its name.
    #[must_use]
    pub fn job_key(&self) -> JobKey {
        JobKey::new(
            self.metadata.namespace.as_deref().unwrap_or_default(),
            self.metadata.name.as_deref().unwrap_or_default(),
        )
    }
}

/// `policy.karmada.io/v1alpha1 PropagationPolicy`, with an unparsed spec.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PropagationPolicy {
    /// Name, labels, annotations, finalizers, ...
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is propagated, and how.
    #[serde(default)]
    pub spec: Value,
}
slim_resource!(
    PropagationPolicy,
    NamespaceResourceScope,
    "policy.karmada.io",
    "v1alpha1",
    "PropagationPolicy",
    "propagationpolicies"
);

/// `spec` of a binding.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindingSpec {
    /// The template.
    pub resource: ObjectReference,
    /// Replicas, if Karmada's interpreter counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// The requests of one replica, unparsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<Value>,
    /// Pod templates of kinds with several, unparsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<Vec<Value>>,
    /// The clusters of the placement.
    #[serde(deserialize_with = "nullable")]
    pub clusters: Vec<TargetCluster>,
    /// The policy's placement, unparsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Value>,
    /// True if the objects of its Works stay in the members when the Works are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// The scheduler that places it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Which steps are suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// Bindings that this one depends on; set on dependencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_by: Option<Vec<Value>>,
    /// When a rescheduling was last requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reschedule_triggered_at: Option<jiff::Timestamp>,
}

/// Reference to a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// `batch.volcano.sh/v1alpha1`.
    pub api_version: String,
    /// `Job`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version from which the binding was created.
    pub resource_version: String,
}

/// One cluster of a placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetCluster {
    /// The cluster.
    pub name: String,
    /// Replicas there, for kinds that Karmada divides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// `spec.suspension`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Suspension {
    /// Whether scheduling is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<bool>,
    /// Whether dispatching is suspended, for all clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching: Option<bool>,
    /// The clusters for which dispatching is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<Value>,
}

impl Suspension {
    /// Returns the clusters for which dispatching is suspended.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        let on = self.dispatching_on_clusters.as_ref();
        let names = on.and_then(|on| on.get("clusterNames")?.as_array());
        names.into_iter().flatten().filter_map(Value::as_str)
    }
}

/// `status` of a binding.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindingStatus {
    /// Generation that the scheduler has seen.
    pub scheduler_observed_generation: Option<i64>,
    /// When it was last scheduled.
    pub last_scheduled_time: Option<jiff::Timestamp>,
    /// `Scheduled`, `FullyApplied`, ...
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<LooseCondition>,
    /// The report of each member.
    #[serde(deserialize_with = "nullable")]
    pub aggregated_status: Vec<AggregatedStatusItem>,
}

/// A condition whose fields may be missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LooseCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// When its status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<jiff::Timestamp>,
}

impl LooseCondition {
    /// Returns true if its status is `True`.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

impl From<Condition> for LooseCondition {
    fn from(condition: Condition) -> Self {
        Self {
            type_: condition.type_,
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
            last_transition_time: Some(condition.last_transition_time.0),
        }
    }
}

/// The report of one member about a template.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregatedStatusItem {
    /// The member.
    pub cluster_name: String,
    /// The template's status there, as Karmada's interpreter reflects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    /// True if it was applied there.
    pub applied: bool,
    /// Why it was not.
    pub applied_message: String,
    /// Healthy, Unhealthy or Unknown.
    pub health: String,
}

/// `work.karmada.io/v1alpha1 Work`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Work {
    /// Name, labels, annotations, finalizers, ...
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The objects to apply.
    #[serde(default, deserialize_with = "nullable")]
    pub spec: WorkSpec,
    /// Its conditions.
    #[serde(default)]
    pub status: WorkStatus,
}
slim_resource!(
    Work,
    NamespaceResourceScope,
    "work.karmada.io",
    "v1alpha1",
    "Work",
    "works"
);

/// `spec` of a Work.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkSpec {
    /// The objects to apply.
    #[serde(deserialize_with = "nullable")]
    pub workload: WorkloadTemplate,
    /// True if its objects stay in the member when it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
}

/// `spec.workload` of a Work.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkloadTemplate {
    /// The objects, unparsed; Karmada creates a Work for each one.
    #[serde(deserialize_with = "nullable")]
    pub manifests: Vec<Value>,
}

impl Work {
    /// Returns its member, from its namespace.
    #[must_use]
    pub fn cluster(&self) -> &str {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        namespace
            .strip_prefix(crate::names::EXECUTION_NAMESPACE_PREFIX)
            .unwrap_or(namespace)
    }

    /// Returns the part of its job that it applies, for a job in parts.
    #[must_use]
    pub fn part(&self) -> Option<&str> {
        let manifests = self.spec.workload.manifests.iter();
        let path = format!(
            "/metadata/annotations/{}",
            PART_ANNOTATION.replace('/', "~1")
        );
        let mut parts = manifests.filter_map(|manifest| manifest.pointer(&path)?.as_str());
        parts.next()
    }

    /// Returns namespace and name of its binding, as Karmada records them.
    #[must_use]
    pub fn binding(&self) -> Option<(&str, &str)> {
        let annotations = self.metadata.annotations.as_ref()?;
        let of = |name: &str| annotations.get(name).map(String::as_str);
        Some((
            of(BINDING_NAMESPACE_ANNOTATION)?,
            of(BINDING_NAME_ANNOTATION)?,
        ))
    }

    /// Returns the policies whose overrides Karmada applied to it, except those that can only change labels,
    /// annotations and images; Karmada records them (`RecordAppliedOverrides`, v1.18).
    #[must_use]
    pub fn overridden_by(&self) -> Vec<AppliedOverride> {
        let annotations = self.metadata.annotations.iter().flatten();
        let kinds = annotations.filter_map(|(name, text)| match name.as_str() {
            APPLIED_OVERRIDES => Some((false, text)),
            APPLIED_CLUSTER_OVERRIDES => Some((true, text)),
            _ => None,
        });
        let applied = kinds.flat_map(|(cluster_wide, text)| {
            let items: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
            items.into_iter().filter_map(move |item| {
                let changes = |way| {
                    item["overriders"][way]
                        .as_array()
                        .is_some_and(|w| !w.is_empty())
                };
                let any = ["plaintext", "fieldOverrider"].into_iter().any(changes);
                let name = item["policyName"].as_str().filter(|_| any)?.to_owned();
                Some(AppliedOverride { cluster_wide, name })
            })
        });
        applied.collect()
    }
}

/// A policy whose overrides were applied to a Work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedOverride {
    /// True for a ClusterOverridePolicy; otherwise an OverridePolicy of the job's namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cluster_wide: bool,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for AppliedOverride {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.cluster_wide {
            true => "ClusterOverridePolicy",
            false => "OverridePolicy",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// `policy.karmada.io/v1alpha1 OverridePolicy`: only its metadata.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OverridePolicy {
    /// Name, generation, ...
    #[serde(default)]
    pub metadata: ObjectMeta,
}
slim_resource!(
    OverridePolicy,
    NamespaceResourceScope,
    "policy.karmada.io",
    "v1alpha1",
    "OverridePolicy",
    "overridepolicies"
);

/// `policy.karmada.io/v1alpha1 ClusterOverridePolicy`: only its metadata.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ClusterOverridePolicy {
    /// Name, generation, ...
    #[serde(default)]
    pub metadata: ObjectMeta,
}
slim_resource!(
    ClusterOverridePolicy,
    ClusterResourceScope,
    "policy.karmada.io",
    "v1alpha1",
    "ClusterOverridePolicy",
    "clusteroverridepolicies"
);

/// `status` of a Work.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkStatus {
    /// `Applied`, `Dispatching`, ...
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<LooseCondition>,
}

/// Returns the condition of `type_` in `conditions`.
#[must_use]
pub fn condition<'a>(conditions: &'a [LooseCondition], type_: &str) -> Option<&'a LooseCondition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}
