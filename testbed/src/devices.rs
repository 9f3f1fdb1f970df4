//! The devices of real nodes: what the device plugin of each offers to its kubelet, which a test may change.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::Api;

use crate::Testbed;
use crate::error::{Error, Result, describe};
use crate::names::NodeProcess;
use crate::nodes::GPU_RESOURCE;
use crate::wait;

/// What a device plugin offers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceOffer {
    /// The ids of devices that work.
    pub healthy: Vec<String>,
    /// The ids of devices that do not.
    pub unhealthy: Vec<String>,
    /// The message with which the plugin refuses to give a device to any container.
    pub refusal: Option<String>,
}

impl DeviceOffer {
    /// Returns an offer of devices that work, named `GPU-1` and so on.
    pub fn of(count: u32) -> Self {
        Self {
            healthy: (1..=count).map(|index| format!("GPU-{index}")).collect(),
            ..Self::default()
        }
    }

    /// Returns it in the words of the plugin's file.
    fn text(&self) -> String {
        let lines = |ids: &[String], health: &str| -> String {
            ids.iter().map(|id| format!("{id} {health}\n")).collect()
        };
        let mut text = lines(&self.healthy, "Healthy") + &lines(&self.unhealthy, "Unhealthy");
        if let Some(message) = &self.refusal {
            text += &format!("refuse {message}\n");
        }
        text
    }

    /// Writes it for the plugin that reads `file`, which never sees half of it.
    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let new = file.with_extension("new");
        fs::write(&new, self.text()).map_err(Error::io("write", &new))?;
        fs::rename(&new, file).map_err(Error::io("rename", &new))
    }
}

/// Returns the file of a machine's device plugin.
pub(super) fn devices_file(machine: &Path) -> PathBuf {
    machine.join("devices")
}

impl Testbed {
    /// Changes what the device plugin of a real node offers, by the node's number from 1. The kubelet knows it a
    /// moment later.
    ///
    /// # Errors
    /// Returns an error if there is no such node, or it has no device plugin.
    pub fn offer_devices(&self, member: &str, number: u8, offer: &DeviceOffer) -> Result<()> {
        self.real_node(member, number)?;
        let file = devices_file(&self.machine_folder(member, number));
        match file.exists() {
            true => offer.write(&file),
            false => Err(Error::Spec(format!(
                "members[{member}].realNodes.gpus is 0: its nodes have no device plugin"
            ))),
        }
    }

    /// Waits until the nodes of a member offer this many devices each.
    pub(super) async fn wait_devices(
        &self,
        client: &Client,
        member: &str,
        names: &[String],
        gpus: u32,
    ) -> Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        let (nodes, wanted) = (&nodes, gpus.to_string());
        for (name, number) in names.iter().zip(1..) {
            let plugin = NodeProcess::DevicePlugin.of(member, number);
            let what = format!("{name} of {member} offers {gpus} devices");
            wait::until(&self.supervisor, &plugin, &what, || async {
                let node = nodes.get(name).await.map_err(|error| describe(&error))?;
                let offered = node.status.and_then(|status| status.allocatable);
                let offered = offered.and_then(|all| all.get(GPU_RESOURCE).cloned());
                match offered.is_some_and(|offered| offered.0 == wanted) {
                    true => Ok(()),
                    false => Err("not yet".to_owned()),
                }
            })
            .await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_has_a_line_for_each_device() {
        let offer = DeviceOffer {
            unhealthy: vec!["GPU-9".into()],
            refusal: Some("no driver".into()),
            ..DeviceOffer::of(2)
        };
        let text = "GPU-1 Healthy\nGPU-2 Healthy\nGPU-9 Unhealthy\nrefuse no driver\n";
        assert_eq!(offer.text(), text);
    }
}
