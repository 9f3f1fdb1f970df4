//! Karmada's Cluster: how a member is reached, its taints and its APIs.

use super::LooseCondition;
use crate::loose::nullable;
use crate::slim_resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ClusterResourceScope;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// `cluster.karmada.io/v1alpha1 Cluster`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cluster {
    /// Name, labels, ...
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// How it is reached, and its taints.
    #[serde(default)]
    pub spec: ClusterSpec,
    /// Its APIs and conditions.
    #[serde(default)]
    pub status: ClusterStatus,
}
slim_resource!(
    Cluster,
    ClusterResourceScope,
    "cluster.karmada.io",
    "v1alpha1",
    "Cluster",
    "clusters"
);

/// `spec` of a cluster.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// `Push` or `Pull`.
    pub sync_mode: String,
    /// URL of its API server.
    pub api_endpoint: String,
    /// The Secret with `token` and `caBundle`.
    pub secret_ref: Option<SecretReference>,
    /// The Secret with the `token` with which Karmada's cluster proxy impersonates users there.
    pub impersonator_secret_ref: Option<SecretReference>,
    /// True if its certificate is not verified.
    #[serde(rename = "insecureSkipTLSVerification")]
    pub insecure_skip_tls_verification: bool,
    /// The proxy to reach it.
    #[serde(rename = "proxyURL")]
    pub proxy_url: String,
    /// Its provider.
    pub provider: String,
    /// Its region.
    pub region: String,
    /// Its zones.
    #[serde(deserialize_with = "nullable")]
    pub zones: Vec<String>,
    /// Its taints.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<LooseTaint>,
}

/// A reference to a Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A taint whose effect may be unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LooseTaint {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Its effect.
    pub effect: String,
}

impl LooseTaint {
    /// Returns the taint; an unknown effect counts as one that keeps all pods out.
    #[must_use]
    pub fn to_taint(&self) -> facts::matching::Taint {
        use facts::matching::TaintEffect;
        let effect = match self.effect.as_str() {
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            _ => TaintEffect::NoSchedule,
        };
        facts::matching::Taint {
            key: self.key.clone(),
            value: self.value.clone(),
            effect,
        }
    }
}

/// `status` of a cluster.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// Its version.
    pub kubernetes_version: String,
    /// The APIs that it serves.
    #[serde(deserialize_with = "nullable")]
    pub api_enablements: Vec<ApiEnablement>,
    /// `Ready`, `CompleteAPIEnablements`.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<LooseCondition>,
}

/// One API group version that a cluster serves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiEnablement {
    /// `batch/v1`.
    pub group_version: String,
    /// Its kinds.
    #[serde(deserialize_with = "nullable")]
    pub resources: Vec<ApiResource>,
}

/// One kind that a cluster serves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApiResource {
    /// `jobs`.
    pub name: String,
    /// `Job`.
    pub kind: String,
}
