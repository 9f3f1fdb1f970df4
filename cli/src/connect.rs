//! Creates a client from kubectl's flags, and a message from a server's refusal.

use crate::args::KubectlConnection;
use anyhow::{Context, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use runtime::client::CallError;
use std::time::Duration;

/// Limit of each page of a list; the client applies `--request-timeout` itself.
pub(crate) const LIMIT: Duration = Duration::MAX;

/// Returns a client of the server that the flags name.
pub(crate) async fn connect(flags: &KubectlConnection) -> Result<Client> {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = config(flags).await.context("kubeconfig")?;
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
        kube::Error::Api(status) => anyhow!("{} ({})", status.message, status.reason),
        other => anyhow::Error::new(other),
    }
}
