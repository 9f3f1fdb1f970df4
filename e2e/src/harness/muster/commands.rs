//! The commands of `muster` that end by themselves.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use testbed::{Testbed, TestbedCluster};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::Muster;

impl Muster {
    /// Runs `muster uninstall` with these flags, and returns its output.
    ///
    /// # Errors
    /// Returns its output if it fails.
    pub async fn uninstall(&self, testbed: &Testbed, flags: &[&str]) -> anyhow::Result<String> {
        run_once(&self.program, &testbed.karmada(), "uninstall", flags).await
    }

    /// Runs `muster uninstall` in a cluster with these flags, and kills it when it has printed `lines` lines.
    /// Returns what it printed until then.
    ///
    /// # Errors
    /// Returns an error if it cannot be run.
    pub async fn uninstall_killed(
        &self,
        cluster: &TestbedCluster,
        flags: &[&str],
        lines: usize,
    ) -> anyhow::Result<Vec<String>> {
        let mut child = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&cluster.kubeconfig)
            .arg("uninstall")
            .args(flags)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("run muster uninstall")?;
        let stdout = child.stdout.take().context("it has no output")?;
        let mut output = BufReader::new(stdout).lines();
        let mut printed = Vec::new();
        while printed.len() < lines
            && let Some(line) = output.next_line().await?
        {
            printed.push(line);
        }
        child.kill().await?;
        Ok(printed)
    }

    /// Runs `muster uninstall --member` against a member, and returns its output.
    ///
    /// # Errors
    /// Returns an error if there is no such member, or the output if it fails.
    pub async fn uninstall_in_member(
        &self,
        testbed: &Testbed,
        member: &str,
    ) -> anyhow::Result<String> {
        let cluster = testbed.cluster(member)?;
        run_once(&self.program, &cluster, "uninstall", &["--member"]).await
    }

    /// Runs `muster check` with a kubeconfig, and returns its exit code and output.
    ///
    /// # Errors
    /// Returns an error if it cannot be run.
    pub async fn check(&self, kubeconfig: &Path) -> anyhow::Result<(Option<i32>, String)> {
        let mut command = Command::new(&self.program);
        let output = command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["check", "--output=json"])
            .kill_on_drop(true)
            .output()
            .await
            .context("run muster check")?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((output.status.code(), stdout))
    }
}

/// Runs a subcommand that ends by itself, and returns its output.
pub(super) async fn run_once(
    program: &Path,
    cluster: &TestbedCluster,
    subcommand: &str,
    flags: &[&str],
) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command
        .arg("--kubeconfig")
        .arg(&cluster.kubeconfig)
        .arg(subcommand)
        .args(flags)
        .kill_on_drop(true);
    let named = || format!("run muster {subcommand}");
    let output = command.output().await.with_context(named)?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!(
            "muster {subcommand} failed in {} ({}):\n{stdout}{}",
            cluster.name,
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(stdout)
}
