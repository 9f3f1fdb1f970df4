//! Creates a client from kubectl's flags, and a message from a server's refusal.

use crate::args::KubectlConnection;
use anyhow::{Context, Result, anyhow};
use kube::api::{DynamicObject, ListParams, ObjectList};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ApiResource;
use kube::{Api, Client, Config, Resource};
use runtime::client::CallError;
use runtime::pages;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

/// Limit of each page of a list; the client applies `--request-timeout` itself.
pub(crate) const LIMIT: Duration = Duration::MAX;

/// After how long the server ends a watch, which then goes on with another one.
pub(crate) const WATCH_SECONDS: u32 = 60;

/// Returns a client of the server that the flags name.
pub(crate) async fn connect(flags: &KubectlConnection) -> Result<Client> {
    client(config(flags).await.context("kubeconfig")?)
}

/// Returns a client that waits for the next event of a watch as long as the server may be silent.
pub(crate) async fn connect_to_watch(flags: &KubectlConnection) -> Result<Client> {
    let mut config = config(flags).await.context("kubeconfig")?;
    let silence = u64::from(WATCH_SECONDS) + u64::from(flags.request_timeout);
    config.read_timeout = Some(Duration::from_secs(silence));
    client(config)
}

fn client(config: Config) -> Result<Client> {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Client::try_from(config).context("kubeconfig")
}

async fn config(flags: &KubectlConnection) -> Result<Config> {
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    let mut config = match &flags.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await?
        }
        None => Config::from_kubeconfig(&options).await?,
    };
    if let Some(namespace) = &flags.namespace {
        config.default_namespace.clone_from(namespace);
    }
    if let Some(user) = &flags.impersonate {
        config.auth_info.impersonate = Some(user.clone());
    }
    let timeout = Duration::from_secs(u64::from(flags.request_timeout));
    config.connect_timeout = Some(timeout);
    config.read_timeout = Some(timeout);
    Ok(config)
}

/// Returns the server's message, without the debug form of its answer. A LIST that is not found means that
/// the server does not serve the kind.
pub(crate) fn plain(error: CallError, listed: &str) -> anyhow::Error {
    let error = match error {
        CallError::Kube(error) => error,
        late @ CallError::Timeout(_) => return anyhow::Error::new(late),
    };
    match error {
        kube::Error::Api(status) if status.code == 404 => anyhow!(
            "the server has no {listed}: Muster is not installed on it (`muster install` does that), or this is not the Karmada control plane"
        ),
        other => api_error(other),
    }
}

/// Returns the server's message, without the debug form of its answer.
pub(crate) fn api_error(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{} ({})", status.message, status.reason),
        other => anyhow::Error::new(other),
    }
}

/// Returns a client of a member, which Karmada's cluster proxy reaches as the same user.
pub(crate) fn member(cluster: &str, client: &Client) -> Result<Client> {
    let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/proxy");
    runtime::client::beneath(client, &path)
}

/// Returns the objects of a kind without namespaces, as the server has them.
pub(crate) fn objects<K: Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

/// Returns an object as the type of its kind.
pub(crate) fn typed<K: DeserializeOwned>(object: &DynamicObject) -> Result<K> {
    Ok(serde_json::from_value(serde_json::to_value(object)?)?)
}

/// Returns true if `error` is the server's refusal to show something to this user.
pub(crate) fn is_forbidden(error: &anyhow::Error) -> bool {
    error.to_string().contains("(Forbidden)")
}

/// Lists objects without managed fields, which kubectl leaves out too. `kinds` is their name in a message.
pub(crate) async fn list(
    api: &Api<DynamicObject>,
    params: &ListParams,
    kinds: &str,
) -> Result<ObjectList<DynamicObject>> {
    let listed = pages::list(api, params, LIMIT).await;
    let mut objects = listed.map_err(|error| plain(error, kinds))?;
    for object in &mut objects {
        object.metadata.managed_fields = None;
    }
    Ok(objects)
}

/// Whether an object exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existence {
    Exists,
    Missing,
    /// The user may not read it.
    Unreadable,
}

/// Returns whether the object of a kind without namespaces exists.
pub(crate) async fn existence<K>(name: &str, client: &Client) -> Result<Existence>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match Api::<K>::all(client.clone()).get_metadata(name).await {
        Ok(_) => Ok(Existence::Exists),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Existence::Missing),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Existence::Unreadable),
        Err(error) => Err(api_error(error)),
    }
}
