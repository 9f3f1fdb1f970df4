//! Creates a client from kubectl's flags, and a message from a server's refusal.

use crate::args::KubectlConnection;
use anyhow::{Context, Result, anyhow, ensure};
use kube::api::{DynamicObject, ListParams, ObjectList};
use kube::config::{
    AuthInfo, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
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
    let until_end = Duration::from_secs(WATCH_SECONDS.into());
    config.read_timeout = flags.timeout().map(|limit| until_end + limit);
    client(config)
}

fn client(config: Config) -> Result<Client> {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Client::try_from(config).context("kubeconfig")
}

async fn config(flags: &KubectlConnection) -> Result<Config> {
    let mut options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    let read = match &flags.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let mut kubeconfig = match read {
        // As kubectl, which needs no kubeconfig then.
        Err(_) if flags.server.is_some() && flags.kubeconfig.is_none() => Kubeconfig::default(),
        read => read?,
    };
    overridden(&mut kubeconfig, &mut options, flags);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    if let Some(namespace) = &flags.namespace {
        config.default_namespace.clone_from(namespace);
    }
    let info = &mut config.auth_info;
    if let Some(user) = &flags.impersonate {
        info.impersonate = Some(user.clone());
    }
    if !flags.impersonate_groups.is_empty() {
        info.impersonate_groups = Some(flags.impersonate_groups.clone());
    }
    if let Some(uid) = &flags.impersonate_uid {
        info.impersonate_uid = Some(uid.clone());
    }
    ensure!(
        info.impersonate.is_some()
            || (info.impersonate_groups.is_none() && info.impersonate_uid.is_none()),
        "--as-group and --as-uid need the user of --as"
    );
    config.connect_timeout = flags.timeout();
    config.read_timeout = flags.timeout();
    Ok(config)
}

/// The name under which a kubeconfig has what the flags say instead of it.
const BY_FLAGS: &str = "by the flags of kubectl-muster";

/// Has the kubeconfig say what the flags do: another server, another check of it, other credentials.
fn overridden(
    kubeconfig: &mut Kubeconfig,
    options: &mut KubeConfigOptions,
    flags: &KubectlConnection,
) {
    let chosen = options
        .context
        .clone()
        .or(kubeconfig.current_context.clone());
    let contexts = kubeconfig.contexts.iter();
    let context = contexts
        .clone()
        .find(|context| Some(&context.name) == chosen.as_ref());
    let context = context.and_then(|context| context.context.clone());
    let authority = flags.certificate_authority.as_ref();
    if flags.server.is_some() || authority.is_some() || flags.insecure_skip_tls_verify {
        let name = options.cluster.take();
        let name = name.or(context.as_ref().map(|context| context.cluster.clone()));
        let mut clusters = kubeconfig.clusters.iter();
        let known = clusters.find(|cluster| Some(&cluster.name) == name.as_ref());
        let mut cluster = known
            .and_then(|known| known.cluster.clone())
            .unwrap_or_default();
        if let Some(server) = &flags.server {
            cluster.server = Some(server.clone());
        }
        if let Some(path) = authority {
            cluster.certificate_authority = Some(path.display().to_string());
            cluster.certificate_authority_data = None;
        }
        if flags.insecure_skip_tls_verify {
            cluster.insecure_skip_tls_verify = Some(true);
        }
        kubeconfig.clusters.push(NamedCluster {
            name: BY_FLAGS.to_owned(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        });
        options.cluster = Some(BY_FLAGS.to_owned());
    }
    if flags.token.is_some() || (chosen.is_none() && flags.server.is_some()) {
        kubeconfig.auth_infos.push(NamedAuthInfo {
            name: BY_FLAGS.to_owned(),
            auth_info: Some(AuthInfo {
                token: flags.token.clone().map(Into::into),
                ..AuthInfo::default()
            }),
            ..NamedAuthInfo::default()
        });
        options.user = Some(BY_FLAGS.to_owned());
    }
    if chosen.is_none() && flags.server.is_some() {
        kubeconfig.contexts.push(NamedContext {
            name: BY_FLAGS.to_owned(),
            context: Some(kube::config::Context {
                cluster: BY_FLAGS.to_owned(),
                ..kube::config::Context::default()
            }),
            ..NamedContext::default()
        });
        options.context = Some(BY_FLAGS.to_owned());
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::Cli;
    use clap::Parser as _;

    /// Returns the connection that flags ask for, with a kubeconfig of one context.
    async fn asked(line: &str) -> Result<Config> {
        let text = "
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: one, user: ann, namespace: vision}}]
clusters: [{name: one, cluster: {server: 'https://one:6443'}}]
users: [{name: ann, user: {username: ann, password: secret}}]
";
        let file = std::env::temp_dir().join(format!("kubectl-muster-{}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let line = format!("kubectl-muster jobs --kubeconfig {} {line}", file.display());
        let cli = Cli::try_parse_from(line.split_whitespace())?;
        config(&cli.connection).await
    }

    #[tokio::test]
    async fn flags_say_more_than_the_kubeconfig() {
        let plain = asked("").await.unwrap();
        assert_eq!(plain.cluster_url.to_string(), "https://one:6443/");
        assert_eq!(plain.default_namespace, "vision");
        assert_eq!(plain.read_timeout, Some(Duration::from_secs(30)));
        let flags = "-s https://two:1 --insecure-skip-tls-verify --token t --as bob --as-group a --as-group b \
                     --as-uid 7 --request-timeout 1m -n nlp";
        let config = asked(flags).await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://two:1/");
        assert!(config.accept_invalid_certs);
        assert!(config.auth_info.token.is_some() && config.auth_info.username.is_none());
        let groups = config.auth_info.impersonate_groups.unwrap();
        assert_eq!(
            (groups.len(), config.auth_info.impersonate_uid.unwrap()),
            (2, "7".to_owned())
        );
        assert_eq!(config.read_timeout, Some(Duration::from_secs(60)));
        assert_eq!(config.default_namespace, "nlp");
        for (limit, seconds) in [("0", None), ("5", Some(5)), ("2m", Some(120))] {
            let config = asked(&format!("--request-timeout={limit}")).await.unwrap();
            assert_eq!(
                config.connect_timeout,
                seconds.map(Duration::from_secs),
                "{limit}"
            );
        }
        let error = asked("--as-group a").await.unwrap_err().to_string();
        assert!(error.contains("need the user of --as"), "{error}");
        asked("--request-timeout=soon").await.unwrap_err();
    }
}
