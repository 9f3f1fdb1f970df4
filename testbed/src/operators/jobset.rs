//! JobSet's controller in members, which runs JobSets.
//!
//! It runs with its webhook, which sets the defaults of a JobSet, above all its network; the
//! controller cannot read a JobSet without them. The control plane needs only the CRD, before
//! karmada-controller-manager starts; a member needs the CRD before it is joined.

use std::path::PathBuf;

use crate::Testbed;
use crate::error::Result;
use crate::manifests::Manifests;
use crate::tools::{Tool, Tools, ToolsError, Toolset};

/// The webhooks for JobSets. Those for pods only serve exclusive placement and are left out.
const WEBHOOKS: [&str; 2] = ["mjobset.kb.io", "vjobset.kb.io"];

/// Returns the CRD of JobSets, for the CRD lists of [`crate::TestbedSpec`].
///
/// # Errors
/// Returns [`ToolsError::NotBuilt`] if its toolset is not built.
pub fn crd(tools: &Tools) -> Result<PathBuf, ToolsError> {
    let module = tools.module_dir(Toolset::JobSet)?;
    Ok(module.join("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"))
}

impl Testbed {
    /// Starts the controller in a member and returns when its webhook serves. Its pods go to the
    /// member's kube-scheduler one by one: a JobSet is placed there only if all of them fit.
    ///
    /// # Errors
    /// Returns an error if there is no such member, its toolset is not built, or it does not become
    /// ready.
    pub async fn start_jobset(&self, member: &str) -> Result<()> {
        let cluster = self.cluster(member)?;
        let port = self
            .start_configured(Tool::JobSet, &cluster, "jobset", "config.jobset.x-k8s.io")
            .await?;
        let module = self.tools.module_dir(Toolset::JobSet)?;
        let registrations = module.join("config/components/webhook/manifests.yaml");
        let url = format!("https://127.0.0.1:{port}");
        Manifests::read(&[registrations])?
            .with_webhooks_only(&WEBHOOKS)
            .with_webhooks_at(&url, &self.ca_bundle())
            .apply(&cluster.client().await?, member)
            .await
    }
}
