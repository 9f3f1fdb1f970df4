//! Controllers of Kubernetes' batch projects that read a `Configuration` file: JobSet's and LeaderWorkerSet's.

use serde_json::json;

use crate::cluster::TestbedCluster;
use crate::components::flag;
use crate::error::Result;
use crate::tools::Tool;
use crate::{Testbed, wait};

impl Testbed {
    /// Starts `tool` in a member as `<member>-<word>`, with a configuration of the API group `group`. Returns the
    /// port of its webhooks once they serve. It listens on loopback only.
    pub(super) async fn start_configured(
        &self,
        tool: Tool,
        cluster: &TestbedCluster,
        word: &str,
        group: &str,
    ) -> Result<u16> {
        let components = self.components();
        let (webhook, health) = (components.port()?, components.port()?);
        let name = format!("{}-{word}", cluster.name);
        let config = json!({
            "apiVersion": format!("{group}/v1alpha1"),
            "kind": "Configuration",
            "leaderElection": {"leaderElect": false},
            "internalCertManagement": {"enable": false},
            "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": self.pki.webhook_dir},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
        });
        let path = components.write_conf(&format!("{name}.json"), &config.to_string())?;
        let mut launch = components.launch(tool, &name, &[webhook, health])?;
        launch.args = vec![
            flag("kubeconfig", &cluster.kubeconfig),
            flag("config", &path),
        ];
        self.spawn(launch)?;
        wait::serving(&self.supervisor, &name).await?;
        Ok(webhook)
    }
}
