//! One API server of the testbed as others reach it: its kubeconfig, and clients made from it.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::error::{Error, Result};
use super::pki::{Pki, write_private};

/// Name of the control plane among the clusters.
pub const KARMADA: &str = "karmada";

/// An API server and how to reach it as administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// `karmada`, or the member's name.
    pub name: String,
    /// Its URL, `https://127.0.0.1:<port>`.
    pub server: String,
    /// The port in the URL.
    pub port: u16,
    /// A kubeconfig with everything inlined.
    pub kubeconfig: PathBuf,
}

impl Cluster {
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
        // JSON is YAML.
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

    /// A new client. Not shared: a client lives on the async runtime it was made on, and every
    /// `#[tokio::test]` has its own.
    ///
    /// # Errors
    /// If the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        let failed = |cause| Error::Kubeconfig {
            path: self.kubeconfig.clone(),
            cause: Box::new(cause),
        };
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).map_err(failed)?;
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let config = config.map_err(failed)?;
        Client::try_from(config).map_err(Error::kube(format!("make a client for {}", self.name)))
    }
}
