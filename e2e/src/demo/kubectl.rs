//! Runs kubectl against the demo's control plane, as a user would.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

/// kubectl for the demo's control plane.
pub(super) struct Kubectl {
    pub(super) program: PathBuf,
    pub(super) kubeconfig: PathBuf,
}

impl Kubectl {
    /// Runs kubectl and prints its output, as in a terminal.
    ///
    /// # Errors
    /// Returns an error if it fails.
    pub(super) async fn run(&self, args: &[&str]) -> Result<()> {
        println!("$ kubectl {}", args.join(" "));
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(args)
            .kill_on_drop(true);
        let output = command.output().await.context("run kubectl")?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            bail!(
                "kubectl {}: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }
}
