//! LeaderWorkerSet's controller in members, which runs LeaderWorkerSets.
//!
//! It runs with its webhooks. They set the defaults of a LeaderWorkerSet, without which its controller cannot read
//! it, and number the pods of each group. The control plane needs only the CRD, before karmada-controller-manager
//! starts; a member needs the CRD before it is joined.

use std::path::PathBuf;

use serde_json::json;

use crate::Testbed;
use crate::error::Result;
use crate::manifests::Manifests;
use crate::tools::{Tool, Tools, ToolsError, Toolset};

/// The webhook that numbers pods.
const POD_WEBHOOK: &str = "mpod.kb.io";
/// All webhooks but the one that looks at pods and accepts them.
const WEBHOOKS: [&str; 3] = [
    "mleaderworkerset.kb.io",
    "vleaderworkerset.kb.io",
    POD_WEBHOOK,
];
/// The label of its pods.
const LABEL: &str = "leaderworkerset.sigs.k8s.io/name";

/// Returns the CRD of LeaderWorkerSets, for the CRD lists of [`crate::TestbedSpec`].
///
/// # Errors
/// Returns [`ToolsError::NotBuilt`] if its toolset is not built.
pub fn crd(tools: &Tools) -> Result<PathBuf, ToolsError> {
    let module = tools.module_dir(Toolset::LeaderWorkerSet)?;
    Ok(module.join("config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml"))
}

impl Testbed {
    /// Starts the controller in a member and returns when its webhooks serve. Its pods go to the member's
    /// kube-scheduler one by one: a LeaderWorkerSet is placed there only if one of its groups fits.
    ///
    /// # Errors
    /// Returns an error if there is no such member, its toolset is not built, or it does not become ready.
    pub async fn start_leader_worker_set(&self, member: &str) -> Result<()> {
        let cluster = self.cluster(member)?;
        let port = self
            .start_configured(
                Tool::LeaderWorkerSet,
                &cluster,
                "lws",
                "config.lws.x-k8s.io",
            )
            .await?;
        let module = self.tools.module_dir(Toolset::LeaderWorkerSet)?;
        let registrations = module.join("config/webhook/manifests.yaml");
        let own = json!({"matchExpressions": [{"key": LABEL, "operator": "Exists"}]});
        let url = format!("https://127.0.0.1:{port}");
        // The prefix and the selector are those of upstream's kustomization.
        Manifests::read(&[registrations])?
            .with_name_prefix("lws-")
            .with_webhooks_only(&WEBHOOKS)
            .with_webhook_selecting(POD_WEBHOOK, &own)
            .with_webhooks_at(&url, &self.ca_bundle())
            .apply(&cluster.client().await?, member)
            .await
    }
}
