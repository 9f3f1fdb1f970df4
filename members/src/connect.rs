//! Connections to members: direct ones with the credentials that Karmada itself uses, and those through
//! Karmada's cluster proxy with Muster's own credentials on the control plane.
//!
//! Direct connections follow Karmada's rule (pkg/util/membercluster_client.go `BuildClusterConfig`, v1.18):
//! endpoint and proxy from the Cluster, token and CA bundle from the Secret that it refers to. Neither
//! Karmada nor Muster supports client certificates there.

use super::address::{Address, Direct, Proxied};
use crds::devices::{DeviceClass, ResourceClaim, ResourceSlice};
use crds::karmada::SecretReference;
use crds::kubernetes::{Node, Pod};
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::{
    AuthInfo, Cluster as ConfigCluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo,
    NamedCluster, NamedContext,
};
use kube::{Api, Client, Config, Resource};
use runtime::client::{CallError, beneath, client_of, with_deadline};
use std::sync::Arc;
use std::time::Duration;

/// Creates the client for a member that is reached directly. It is a value, so that tests can replace the
/// network.
pub(crate) type Connector = Arc<
    dyn Fn(&Direct, &Credentials) -> BoxFuture<'static, Result<Client, ConnectError>> + Send + Sync,
>;

/// Returns the real connector.
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
/// Deadline of reading the Secret.
const SECRET_LIMIT: Duration = Duration::from_secs(5);
/// Deadline of the first request to a member.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// Why a member cannot be connected to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
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
    #[error("its {kind} cannot be listed through Karmada's cluster proxy: {error}{hint}")]
    NotListed {
        kind: &'static str,
        /// The HTTP status, if there was an answer.
        code: Option<u16>,
        error: String,
        hint: &'static str,
    },
}

/// What to do about a refusal: rights on the control plane allow the impersonation, and rights in the
/// member allow what the impersonated account does.
const RIGHTS_HINT: &str = "; `muster install` gives these rights on the control plane, and `muster install --member` in the member";

/// Content of the Secret, kept to notice a rotation; never logged.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    token: String,
    ca_bundle: Option<ByteString>,
}

/// A connection and what it was made with.
pub(crate) struct Connected {
    pub(crate) client: Client,
    /// Credentials of a direct connection; other connections use those of the control plane's client.
    credentials: Option<Credentials>,
}

/// Connects to `address`.
pub(crate) async fn connect(
    control_plane: &Client,
    address: &Address,
    connector: &Connector,
) -> Result<Connected, ConnectError> {
    match address {
        Address::Direct(direct) => {
            let credentials = credentials(control_plane, direct).await?;
            Ok(Connected {
                client: connector(direct, &credentials).await?,
                credentials: Some(credentials),
            })
        }
        Address::Proxy(proxied) => Ok(Connected {
            client: through_proxy(control_plane, proxied).await?,
            credentials: None,
        }),
    }
}

/// Returns true if `connected` would now use other credentials. An unreadable Secret changes nothing while
/// the connection works.
pub(crate) async fn is_outdated(
    control_plane: &Client,
    address: &Address,
    connected: &Connected,
) -> bool {
    match (address, &connected.credentials) {
        (Address::Direct(direct), Some(used)) => {
            let now = credentials(control_plane, direct).await;
            now.is_ok_and(|now| now != *used)
        }
        _ => false,
    }
}

/// Checks the rights first: an account that may pass the proxy may still see nothing in the member.
/// Operators grant rights there, and a watch would only report that it lists nothing.
async fn through_proxy(control_plane: &Client, proxied: &Proxied) -> Result<Client, ConnectError> {
    let client = beneath(control_plane, &proxied.path())
        .map_err(|error| ConnectError::Unusable(format!("{error:#}")))?;
    check_listable::<Node>(&client, "nodes").await?;
    check_listable::<Pod>(&client, "pods").await?;
    check_listable_if_served::<ResourceSlice>(&client, "resourceslices").await?;
    check_listable_if_served::<DeviceClass>(&client, "deviceclasses").await?;
    check_listable_if_served::<ResourceClaim>(&client, "resourceclaims").await?;
    Ok(client)
}

/// Checks that objects of a kind may be listed.
#[expect(clippy::disallowed_methods, reason = "of one object")]
async fn check_listable<K>(client: &Client, kind: &'static str) -> Result<(), ConnectError>
where
    K: Resource<DynamicType = ()>,
{
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    let one = ListParams::default().limit(1);
    match with_deadline(objects.list_metadata(&one), CHECK_LIMIT).await {
        Ok(_) => Ok(()),
        Err(error) => Err(ConnectError::NotListed {
            kind,
            code: error.code(),
            hint: match error.code() {
                Some(401 | 403) => RIGHTS_HINT,
                _ => "",
            },
            error: error.message(),
        }),
    }
}

/// Does the same for a kind that a member may not serve.
async fn check_listable_if_served<K>(
    client: &Client,
    kind: &'static str,
) -> Result<(), ConnectError>
where
    K: Resource<DynamicType = ()>,
{
    match check_listable::<K>(client, kind).await {
        Err(ConnectError::NotListed {
            code: Some(404), ..
        }) => Ok(()),
        looked => looked,
    }
}

/// Reads the credentials that `address` refers to on the control plane.
async fn credentials(
    control_plane: &Client,
    address: &Direct,
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

fn check(address: &Direct, secret: Secret) -> Result<Credentials, ConnectError> {
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
    address: &Direct,
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

/// Returns the connection as a kubeconfig, which kube checks and decodes.
fn kubeconfig(address: &Direct, credentials: &Credentials) -> Result<Kubeconfig, ConnectError> {
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

/// `ByteString` serializes as base64, which a kubeconfig expects.
fn base64_of(bytes: &ByteString) -> Result<String, ConnectError> {
    serde_json::to_value(bytes)
        .and_then(serde_json::from_value)
        .map_err(|error| ConnectError::Unusable(error.to_string()))
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

    fn address(spec: Value) -> Direct {
        let cluster = json!({"metadata": {"name": "m1"}, "spec": spec});
        match Address::of(&serde_json::from_value(cluster).unwrap()) {
            Ok(Address::Direct(direct)) => direct,
            other => unreachable!("a Push cluster is reached directly: {other:?}"),
        }
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
        check(&address(spec), secret).map_err(|error| error.to_string())
    }

    #[test]
    fn a_missing_key_of_a_secret_is_named() {
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
    fn a_connection_uses_the_same_fields_as_karmada() {
        let spec = push(&[("proxyURL", json!("http://proxy:3128"))]);
        let credentials = checked(
            spec.clone(),
            json!({"token": "dG9rZW4=", "caBundle": "Y2E="}),
        )
        .unwrap();
        let kubeconfig = kubeconfig(&address(spec), &credentials).unwrap();
        let cluster = kubeconfig.clusters[0].cluster.clone().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://10.0.0.1:6443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Y2E="));
        assert_eq!(cluster.insecure_skip_tls_verify, Some(false));
        assert_eq!(cluster.proxy_url.as_deref(), Some("http://proxy:3128"));
        assert_eq!(credentials.token(), "token");
    }
}
