//! JobSet's controller in members, so that JobSets run.
//!
//! It runs with its webhook, without which it cannot read a JobSet: what the template leaves out,
//! its network above all, is filled in there. The control plane needs only the kind, before
//! karmada-controller-manager starts; a member needs the kind before it is joined.

use std::path::PathBuf;

use serde_json::json;

use crate::cluster::TestbedCluster;
use crate::components::flag;
use crate::error::Result;
use crate::manifests::Manifests;
use crate::process::Launch;
use crate::tools::{Tool, Tools, ToolsError, Toolset};
use crate::{Testbed, wait};

/// Of its webhooks those for JobSets; those for pods see to exclusive placement only.
const WEBHOOKS: [&str; 2] = ["mjobset.kb.io", "vjobset.kb.io"];

/// The CRD of JobSets, for [`crate::TestbedSpec`]'s lists of CRDs.
///
/// # Errors
/// [`ToolsError::NotBuilt`] if its set was not asked for.
pub fn crd(tools: &Tools) -> Result<PathBuf, ToolsError> {
    let module = tools.module_dir(Toolset::JobSet)?;
    Ok(module.join("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"))
}

impl Testbed {
    /// Starts it in a member; returns once its webhook serves. Its pods go to the member's
    /// kube-scheduler one by one: that they all fit was seen to before the JobSet came.
    ///
    /// # Errors
    /// If there is no such member, its set was not asked for, or it does not become ready.
    pub async fn start_jobset(&self, member: &str) -> Result<()> {
        let cluster = self.cluster(member)?;
        let launch = self.jobset(&cluster)?;
        let (name, port) = (launch.name.clone(), launch.ports[0]);
        self.spawn(launch)?;
        wait::serving(&self.supervisor, &name).await?;
        let module = self.tools.module_dir(Toolset::JobSet)?;
        let registrations = module.join("config/components/webhook/manifests.yaml");
        let url = format!("https://127.0.0.1:{port}");
        Manifests::read(&[registrations])?
            .with_webhooks_only(&WEBHOOKS)
            .with_webhooks_at(&url, &self.ca_bundle())
            .apply(&cluster.client().await?, member)
            .await
    }

    fn jobset(&self, cluster: &TestbedCluster) -> Result<Launch> {
        let components = self.components();
        let (webhook, health) = (components.port()?, components.port()?);
        let name = format!("{}-jobset", cluster.name);
        let config = json!({
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": false},
            "internalCertManagement": {"enable": false},
            "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": self.pki.webhook_dir},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
        });
        let path = components.write_conf(&format!("{name}.json"), &config.to_string())?;
        let mut launch = components.launch(Tool::JobSet, &name, &[webhook, health])?;
        launch.args = vec![
            flag("kubeconfig", &cluster.kubeconfig),
            flag("config", &path),
        ];
        Ok(launch)
    }
}
