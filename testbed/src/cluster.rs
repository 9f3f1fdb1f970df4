//! One API server of the testbed: its address, its kubeconfig, and clients for it.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, Result};
use crate::pki::{Pki, write_private};

/// The name of the control plane among the clusters.
pub const KARMADA: &str = "karmada";

/// An API server with its address and administrator credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TestbedCluster {
    /// `karmada`, or the member's name.
    pub name: String,
    /// Its URL, `https://127.0.0.1:<port>`.
    pub server: String,
    /// The port in the URL.
    pub port: u16,
    /// A kubeconfig with inlined certificates.
    pub kubeconfig: PathBuf,
}

impl TestbedCluster {
    pub(super) fn create(name: &str, port: u16, pki: &Pki, dir: &Path) -> Result<Self> {
        let cluster = Self {
            name: name.to_owned(),
            server: format!("https://127.0.0.1:{port}"),
            port,
            kubeconfig: dir.join(format!("{name}.kubeconfig")),
        };
        let inline = |path: &Path| -> Result<String> {
            let content = std::fs::read(path).map_err(Error::io("read", path))?;
            Ok(BASE64_STANDARD.encode(content))
        };
        // YAML is a superset of JSON.
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {
                "server": cluster.server,
                "certificate-authority-data": inline(&pki.ca)?,
            }}],
            "users": [{"name": "admin", "user": {
                "client-certificate-data": inline(&pki.admin.cert)?,
                "client-key-data": inline(&pki.admin.key)?,
            }}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
            "current-context": name,
        });
        write_private(&cluster.kubeconfig, &format!("{config:#}\n"))?;
        Ok(cluster)
    }

    /// Returns a new client. Clients are not shared: a client belongs to the async runtime that
    /// created it, and each `#[tokio::test]` has its own runtime.
    ///
    /// # Errors
    /// Returns an error if the kubeconfig is invalid.
    pub async fn client(&self) -> Result<Client> {
        self.client_of(self.config().await?)
    }

    /// Returns a new client that impersonates `user` in `groups`, so that authorization and
    /// admission treat its requests as those of that user.
    ///
    /// # Errors
    /// Returns an error if the kubeconfig is invalid.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let mut config = self.config().await?;
        let groups = groups.iter().map(|&group| group.to_owned());
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = Some(groups.collect());
        self.client_of(config)
    }

    async fn config(&self) -> Result<kube::Config> {
        let failed = |cause| Error::Kubeconfig {
            path: self.kubeconfig.clone(),
            cause: Box::new(cause),
        };
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).map_err(failed)?;
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.map_err(failed)
    }

    fn client_of(&self, config: kube::Config) -> Result<Client> {
        Client::try_from(config).map_err(Error::kube(format!("make a client for {}", self.name)))
    }
}
