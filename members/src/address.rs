//! The address of a member and how it is reached, as its Cluster object says. Pure.
//!
//! ```text
//! annotation muster.io/access   else spec.syncMode   way
//! Direct                        Push                 its API server, with the credentials in spec.secretRef
//! Proxy                         Pull                 the control plane's clusters/NAME/proxy, as Muster itself
//! ```
//!
//! Karmada's proxy calls `spec.apiEndpoint` with the token in `spec.impersonatorSecretRef` and impersonates
//! the account of the request (pkg/util/proxy `ConnectCluster`, v1.18).

use crds::karmada::{Cluster, SecretReference};
use crds::names::ACCESS_ANNOTATION;

/// How a member is reached: everything that a connection is made from, except the content of Secrets. A
/// connection lasts while this stays the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Direct(Direct),
    Proxy(Proxied),
}

/// A member whose API server Muster calls directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Direct {
    pub(super) name: String,
    pub(super) endpoint: String,
    pub(super) proxy: Option<String>,
    pub(super) skip_verification: bool,
    pub(super) secret: SecretReference,
}

/// A member that Muster reaches through Karmada's cluster proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proxied {
    name: String,
    /// The URL that the proxy calls: a new one may be a new cluster, which has to list again.
    endpoint: String,
}

/// Why a member has no address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemberAddressError {
    #[error(
        "annotation {ACCESS_ANNOTATION} is {0:?}; Direct (with the credentials in spec.secretRef) or Proxy (through Karmada's cluster proxy) is needed"
    )]
    Access(String),
    #[error("spec.syncMode is {0:?}; Push or Pull is needed")]
    SyncMode(String),
    #[error("spec.apiEndpoint is empty; the URL of its API server is needed")]
    NoEndpoint,
    #[error(
        "spec.apiEndpoint is empty; Karmada's cluster proxy needs the URL of its API server (karmada-agent's flag --cluster-api-endpoint)"
    )]
    NoEndpointForProxy,
    #[error("spec.secretRef is not set; a Secret with token and caBundle is needed")]
    NoSecretRef,
    #[error(
        "spec.impersonatorSecretRef is not set; Karmada's cluster proxy needs a Secret with the token of who may impersonate there (karmada-agent makes it, unless its flag --report-secrets leaves KubeImpersonator out)"
    )]
    NoImpersonator,
}

/// The ways to reach a member.
enum Access {
    Direct,
    Proxy,
}

impl Access {
    fn of(cluster: &Cluster) -> Result<Self, MemberAddressError> {
        let annotations = cluster.metadata.annotations.as_ref();
        let stated = annotations.and_then(|all| all.get(ACCESS_ANNOTATION));
        match (stated.map(String::as_str), &*cluster.spec.sync_mode) {
            (Some("Direct"), _) | (None, "Push") => Ok(Self::Direct),
            (Some("Proxy"), _) | (None, "Pull") => Ok(Self::Proxy),
            (Some(other), _) => Err(MemberAddressError::Access(other.to_owned())),
            (None, other) => Err(MemberAddressError::SyncMode(other.to_owned())),
        }
    }
}

impl Address {
    /// Returns the address in `cluster`.
    pub(crate) fn of(cluster: &Cluster) -> Result<Self, MemberAddressError> {
        match Access::of(cluster)? {
            Access::Direct => Direct::of(cluster).map(Self::Direct),
            Access::Proxy => Proxied::of(cluster).map(Self::Proxy),
        }
    }

    /// Returns the same, or the way through Karmada's cluster proxy whatever way `cluster` states.
    pub(crate) fn by(cluster: &Cluster, through_proxy: bool) -> Result<Self, MemberAddressError> {
        match through_proxy {
            true => Proxied::of(cluster).map(Self::Proxy),
            false => Self::of(cluster),
        }
    }

    /// Returns the kind of access as a word, for logs.
    pub(crate) fn access(&self) -> &'static str {
        match self {
            Self::Direct(_) => "Direct",
            Self::Proxy(_) => "Proxy",
        }
    }
}

impl Direct {
    fn of(cluster: &Cluster) -> Result<Self, MemberAddressError> {
        let spec = &cluster.spec;
        if spec.api_endpoint.is_empty() {
            return Err(MemberAddressError::NoEndpoint);
        }
        Ok(Self {
            name: name(cluster),
            endpoint: spec.api_endpoint.clone(),
            proxy: Some(spec.proxy_url.clone()).filter(|url| !url.is_empty()),
            skip_verification: spec.insecure_skip_tls_verification,
            secret: spec
                .secret_ref
                .clone()
                .ok_or(MemberAddressError::NoSecretRef)?,
        })
    }
}

impl Proxied {
    fn of(cluster: &Cluster) -> Result<Self, MemberAddressError> {
        let spec = &cluster.spec;
        if spec.api_endpoint.is_empty() {
            return Err(MemberAddressError::NoEndpointForProxy);
        }
        if spec.impersonator_secret_ref.is_none() {
            return Err(MemberAddressError::NoImpersonator);
        }
        Ok(Self {
            name: name(cluster),
            endpoint: spec.api_endpoint.clone(),
        })
    }

    /// Returns the path where the control plane serves the member's API.
    pub(super) fn path(&self) -> String {
        let name = &self.name;
        format!("/apis/cluster.karmada.io/v1alpha1/clusters/{name}/proxy")
    }
}

fn name(cluster: &Cluster) -> String {
    cluster.metadata.name.clone().unwrap_or_default()
}

#[cfg(test)]
impl Direct {
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    /// A Cluster that can be reached in both ways, with `fields` of its spec changed.
    fn cluster(mode: &str, access: Option<&str>, fields: &[(&str, Value)]) -> Cluster {
        let mut cluster = json!({
            "metadata": {"name": "m1", "annotations": {}},
            "spec": {
                "syncMode": mode, "apiEndpoint": "https://10.0.0.1:6443",
                "secretRef": {"namespace": "karmada-cluster", "name": "m1"},
                "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "m1-impersonator"},
            },
        });
        if let Some(access) = access {
            cluster["metadata"]["annotations"][ACCESS_ANNOTATION] = json!(access);
        }
        for (field, value) in fields {
            cluster["spec"][*field] = value.clone();
        }
        serde_json::from_value(cluster).unwrap()
    }

    /// The access, or why there is none.
    fn way(cluster: &Cluster) -> String {
        match Address::of(cluster) {
            Ok(Address::Direct(direct)) => {
                format!("{} as {}", direct.endpoint, direct.secret.name)
            }
            Ok(Address::Proxy(proxied)) => proxied.path(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_sync_mode_says_how_a_member_is_reached_unless_the_annotation_does() {
        let direct = "https://10.0.0.1:6443 as m1";
        let proxy = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy";
        let bad = "annotation muster.io/access is \"proxy\"; Direct (with the credentials in \
                   spec.secretRef) or Proxy (through Karmada's cluster proxy) is needed";
        let rows = [
            ("Push", None, direct),
            ("Push", Some("Direct"), direct),
            ("Push", Some("Proxy"), proxy),
            ("Push", Some("proxy"), bad),
            ("Pull", None, proxy),
            ("Pull", Some("Proxy"), proxy),
            ("Pull", Some("Direct"), direct),
            ("Pull", Some("proxy"), bad),
            (
                "Float",
                None,
                "spec.syncMode is \"Float\"; Push or Pull is needed",
            ),
            ("Float", Some("Proxy"), proxy),
        ];
        for (mode, access, want) in rows {
            assert_eq!(
                way(&cluster(mode, access, &[])),
                want,
                "{mode} with {access:?}"
            );
        }
        let empty = way(&cluster("Push", Some(""), &[]));
        assert!(empty.contains("muster.io/access is \"\";"), "{empty}");
    }

    #[test]
    fn each_access_needs_only_its_own_fields() {
        let way_without =
            |mode: &str, field: &str| way(&cluster(mode, None, &[(field, json!(null))]));
        assert!(way_without("Push", "secretRef").starts_with("spec.secretRef is not set"));
        assert!(way_without("Push", "impersonatorSecretRef").ends_with("as m1"));
        assert!(way_without("Pull", "secretRef").ends_with("/m1/proxy"));
        let no_impersonator = way_without("Pull", "impersonatorSecretRef");
        assert!(
            no_impersonator.starts_with("spec.impersonatorSecretRef is not set"),
            "{no_impersonator}"
        );
        let nowhere = |mode| way(&cluster(mode, None, &[("apiEndpoint", json!(""))]));
        assert!(nowhere("Push").starts_with("spec.apiEndpoint is empty; the URL"));
        assert!(nowhere("Pull").contains("--cluster-api-endpoint"));
    }

    #[test]
    fn who_has_no_credentials_of_members_reaches_all_through_the_proxy() {
        for (mode, access) in [("Push", None), ("Push", Some("Direct")), ("Pull", None)] {
            let cluster = cluster(mode, access, &[("secretRef", json!(null))]);
            let address = Address::by(&cluster, true).unwrap();
            assert_eq!(address.access(), "Proxy", "{mode} with {access:?}");
        }
        let direct = Address::by(&cluster("Push", None, &[]), false).unwrap();
        assert_eq!(direct.access(), "Direct");
    }

    #[test]
    fn a_changed_endpoint_changes_the_address() {
        for access in ["Direct", "Proxy"] {
            let at = |endpoint: &str| {
                let fields = [("apiEndpoint", json!(endpoint))];
                Address::of(&cluster("Push", Some(access), &fields)).unwrap()
            };
            assert_eq!(at("https://a"), at("https://a"));
            assert_ne!(at("https://a"), at("https://b"), "{access}");
        }
    }
}
