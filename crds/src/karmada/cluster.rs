//! Karmada's Cluster: how a member is reached, its taints and what it serves.

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
    /// What it can do.
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
    /// The Secret with the `token` by which Karmada's cluster proxy impersonates users there.
    pub impersonator_secret_ref: Option<SecretReference>,
    /// Whether its certificate is not checked.
    #[serde(rename = "insecureSkipTLSVerification")]
    pub insecure_skip_tls_verification: bool,
    /// Proxy to reach it by.
    #[serde(rename = "proxyURL")]
    pub proxy_url: String,
    /// Who provides it.
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

/// A taint whose effect may be one that we do not know.
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
    /// The taint; an unknown effect keeps everything out, which is the careful reading.
    #[must_use]
    pub fn to_taint(&self) -> engine::matching::Taint {
        use engine::matching::TaintEffect;
        let effect = match self.effect.as_str() {
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            _ => TaintEffect::NoSchedule,
        };
        engine::matching::Taint {
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
    /// What it serves.
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
