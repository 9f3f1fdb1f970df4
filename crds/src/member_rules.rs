//! Slim read types of what a member's API server applies to pods before it stores them: LimitRanges,
//! ResourceQuotas and RuntimeClasses.

use crate::loose::slim_metadata;
use crate::slim_resource;
use facts::Resources;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use workload::{LimitRangeRules, QuotaRules, SpecError};

/// Defaults for containers of a namespace, and bounds on them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitRange {
    /// Name, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The limits.
    #[serde(default)]
    pub spec: Value,
}
slim_resource!(
    LimitRange,
    NamespaceResourceScope,
    "",
    "v1",
    "LimitRange",
    "limitranges"
);

impl LimitRange {
    /// Returns what it does to pods.
    ///
    /// # Errors
    /// Returns an error for a field with an invalid value.
    pub fn rules(&self) -> Result<LimitRangeRules, SpecError> {
        LimitRangeRules::read(&self.spec)
    }
}

/// What all objects of a namespace may use together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceQuota {
    /// Name, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The bounds, and which pods they count.
    #[serde(default)]
    pub spec: Value,
    /// What is used of them.
    #[serde(default)]
    pub status: Value,
}
slim_resource!(
    ResourceQuota,
    NamespaceResourceScope,
    "",
    "v1",
    "ResourceQuota",
    "resourcequotas"
);

impl ResourceQuota {
    /// Returns its bounds on pods and jobs.
    ///
    /// # Errors
    /// Returns an error for a field with an invalid value.
    pub fn rules(&self) -> Result<QuotaRules, SpecError> {
        QuotaRules::read(&self.spec, &self.status)
    }
}

/// A runtime of containers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RuntimeClass {
    /// Name, ...
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// What each pod needs besides its containers.
    #[serde(default)]
    pub overhead: Value,
}
slim_resource!(
    RuntimeClass,
    ClusterResourceScope,
    "node.k8s.io",
    "v1",
    "RuntimeClass",
    "runtimeclasses"
);

impl RuntimeClass {
    /// Returns what each pod needs besides its containers.
    ///
    /// # Errors
    /// Returns an error for an invalid amount.
    pub fn overhead(&self) -> Result<Resources, SpecError> {
        workload::pod_overhead(&self.overhead)
    }
}
