//! How a member is reached: with the credentials that Karmada itself uses for it.
//!
//! Karmada's rule (pkg/util/membercluster_client.go `BuildClusterConfig`, v1.18): endpoint and
//! proxy from the Cluster, token and CA bundle from the Secret that it refers to. Client
//! certificates are not supported there, nor here.

use crds::karmada::{Cluster, SecretReference};
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::config::{
    AuthInfo, Cluster as ConfigCluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo,
    NamedCluster, NamedContext,
};
use kube::{Api, Client, Config};
use runtime::client::{CallError, client_of, with_deadline};
use std::sync::Arc;
use std::time::Duration;

/// Makes the client for a member. A value, so that tests can stand in for the network.
pub(crate) type Connector = Arc<
    dyn Fn(&Address, &Credentials) -> BoxFuture<'static, Result<Client, ConnectError>>
        + Send
        + Sync,
>;

/// The connector that connects.
pub(crate) fn connector(user_agent: &str) -> Connector {
    let user_agent: Arc<str> = Arc::from(user_agent);
    Arc::new(move |address, credentials| {
        let (address, credentials) = (address.clone(), credentials.clone());
        let user_agent = Arc::clone(&user_agent);
        Box::pin(async move { client(&address, &credentials, &user_agent).await })
    })
}

/// Keys of the Secret (Karmada `SecretTokenKey`, `SecretCADataKey`).
const TOKEN: &str = "token";
const CA_BUNDLE: &str = "caBundle";
/// How long reading the Secret may take.
const SECRET_LIMIT: Duration = Duration::from_secs(5);

/// Where a member is and where its credentials are: what a connection is made from, besides
/// the Secret's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    name: String,
    endpoint: String,
    proxy: Option<String>,
    skip_verification: bool,
    secret: SecretReference,
}

/// Why a member cannot be reached directly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(
        "spec.syncMode is {0:?}; only Push clusters can be reached directly, and this one is reached by its agent only"
    )]
    NotPush(String),
    #[error("spec.apiEndpoint is empty; the URL of its API server is needed")]
    NoEndpoint,
    #[error("spec.secretRef is not set; a Secret with token and caBundle is needed")]
    NoSecretRef,
    #[error("secret {namespace}/{name} cannot be read: {error}")]
    Secret {
        namespace: String,
        name: String,
        error: String,
    },
    #[error("secret {namespace}/{name} has no {key:?}; {want} is needed")]
    Incomplete {
        namespace: String,
        name: String,
        key: &'static str,
        want: &'static str,
    },
    #[error("its endpoint or credentials cannot be used: {0}")]
    Unusable(String),
}

impl Address {
    /// The address that `cluster` states.
    pub(crate) fn of(cluster: &Cluster) -> Result<Self, ConnectError> {
        let spec = &cluster.spec;
        if spec.sync_mode != "Push" {
            return Err(ConnectError::NotPush(spec.sync_mode.clone()));
        }
        if spec.api_endpoint.is_empty() {
            return Err(ConnectError::NoEndpoint);
        }
        Ok(Self {
            name: cluster.metadata.name.clone().unwrap_or_default(),
            endpoint: spec.api_endpoint.clone(),
            proxy: Some(spec.proxy_url.clone()).filter(|url| !url.is_empty()),
            skip_verification: spec.insecure_skip_tls_verification,
            secret: spec.secret_ref.clone().ok_or(ConnectError::NoSecretRef)?,
        })
    }
}

/// What the Secret holds. Compared to notice a rotation; never logged.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    token: String,
    ca_bundle: Option<ByteString>,
}

/// Reads the credentials that `address` refers to on the control plane.
pub(crate) async fn credentials(
    control_plane: &Client,
    address: &Address,
) -> Result<Credentials, ConnectError> {
    let SecretReference { namespace, name } = address.secret.clone();
    let secrets: Api<Secret> = Api::namespaced(control_plane.clone(), &namespace);
    match with_deadline(secrets.get(&name), SECRET_LIMIT).await {
        Ok(secret) => check(address, secret),
        Err(error) => Err(ConnectError::Secret {
            namespace,
            name,
            error: CallError::message(&error),
        }),
    }
}

fn check(address: &Address, secret: Secret) -> Result<Credentials, ConnectError> {
    let incomplete = |key, want| ConnectError::Incomplete {
        namespace: address.secret.namespace.clone(),
        name: address.secret.name.clone(),
        key,
        want,
    };
    let mut data = secret.data.unwrap_or_default();
    let token = data
        .remove(TOKEN)
        .and_then(|bytes| String::from_utf8(bytes.0).ok())
        .filter(|token| !token.is_empty())
        .ok_or_else(|| incomplete(TOKEN, "a bearer token"))?;
    let ca_bundle = data.remove(CA_BUNDLE);
    if ca_bundle.is_none() && !address.skip_verification {
        return Err(incomplete(
            CA_BUNDLE,
            "a PEM bundle, or spec.insecureSkipTLSVerification",
        ));
    }
    Ok(Credentials { token, ca_bundle })
}

async fn client(
    address: &Address,
    credentials: &Credentials,
    user_agent: &str,
) -> Result<Client, ConnectError> {
    let unusable = |error: kube::config::KubeconfigError| ConnectError::Unusable(error.to_string());
    let kubeconfig = kubeconfig(address, credentials)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    client_of(config.map_err(unusable)?, user_agent)
        .map_err(|error| ConnectError::Unusable(format!("{error:#}")))
}

/// The connection in the form that kube checks and decodes by itself.
fn kubeconfig(address: &Address, credentials: &Credentials) -> Result<Kubeconfig, ConnectError> {
    let named = || address.name.clone();
    let verified = (!address.skip_verification)
        .then_some(credentials.ca_bundle.as_ref())
        .flatten();
    let cluster = ConfigCluster {
        server: Some(address.endpoint.clone()),
        insecure_skip_tls_verify: Some(address.skip_verification),
        certificate_authority_data: verified.map(base64_of).transpose()?,
        proxy_url: address.proxy.clone(),
        ..ConfigCluster::default()
    };
    let user = AuthInfo {
        token: Some(credentials.token.clone().into()),
        ..AuthInfo::default()
    };
    let context = Context {
        cluster: named(),
        user: Some(named()),
        ..Context::default()
    };
    Ok(Kubeconfig {
        clusters: vec![NamedCluster {
            name: named(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: named(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: named(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some(named()),
        ..Kubeconfig::default()
    })
}

/// `ByteString` serializes as base64, which is what a kubeconfig wants.
fn base64_of(bytes: &ByteString) -> Result<String, ConnectError> {
    serde_json::to_value(bytes)
        .and_then(serde_json::from_value)
        .map_err(|error| ConnectError::Unusable(error.to_string()))
}

#[cfg(test)]
impl Address {
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

#[cfg(test)]
impl Credentials {
    pub(crate) fn token(&self) -> &str {
        &self.token
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn address(spec: Value) -> Result<Address, ConnectError> {
        let cluster =
            serde_json::from_value(json!({"metadata": {"name": "m1"}, "spec": spec})).unwrap();
        Address::of(&cluster)
    }

    fn push(change: &[(&str, Value)]) -> Value {
        let mut spec = json!({
            "syncMode": "Push", "apiEndpoint": "https://10.0.0.1:6443",
            "secretRef": {"namespace": "karmada-cluster", "name": "m1"},
        });
        for (field, value) in change {
            spec[*field] = value.clone();
        }
        spec
    }

    fn checked(spec: Value, data: Value) -> Result<Credentials, String> {
        let secret = serde_json::from_value(json!({"data": data})).unwrap();
        check(&address(spec).unwrap(), secret).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = |spec| address(spec).unwrap_err().to_string();
        assert!(error(push(&[("syncMode", json!("Pull"))])).contains("only Push clusters"));
        assert!(
            error(push(&[("apiEndpoint", json!(""))])).starts_with("spec.apiEndpoint is empty")
        );
        assert!(
            error(push(&[("secretRef", json!(null))])).starts_with("spec.secretRef is not set")
        );
        let token = "dG9rZW4=";
        let error = |data| checked(push(&[]), data).err().unwrap();
        assert_eq!(
            error(json!({"caBundle": "Y2E="})),
            "secret karmada-cluster/m1 has no \"token\"; a bearer token is needed"
        );
        assert!(error(json!({"token": token})).contains("has no \"caBundle\""));
        let skipping = push(&[("insecureSkipTLSVerification", json!(true))]);
        assert!(checked(skipping, json!({"token": token})).is_ok());
    }

    #[test]
    fn a_connection_is_made_of_what_karmada_makes_it_of() {
        let spec = push(&[("proxyURL", json!("http://proxy:3128"))]);
        let credentials = checked(
            spec.clone(),
            json!({"token": "dG9rZW4=", "caBundle": "Y2E="}),
        )
        .unwrap();
        let kubeconfig = kubeconfig(&address(spec).unwrap(), &credentials).unwrap();
        let cluster = kubeconfig.clusters[0].cluster.clone().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://10.0.0.1:6443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Y2E="));
        assert_eq!(cluster.insecure_skip_tls_verify, Some(false));
        assert_eq!(cluster.proxy_url.as_deref(), Some("http://proxy:3128"));
        assert_eq!(credentials.token(), "token");
    }
}
