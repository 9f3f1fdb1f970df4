//! KubeRay in members, which runs RayClusters and RayJobs.
//!
//! It is upstream's own command, whose webhook is off by default. The control plane needs only the
//! CRDs, before karmada-controller-manager starts; a member needs the CRDs before it is joined, and
//! the operator.
//!
//! Pods are simulated, so no Ray runs in them. [`dashboard`] answers the requests of KubeRay to the
//! dashboard of a head: KubeRay uses it as its HTTP proxy. It reports that submitted programs have
//! succeeded; a RayJob with a submitter pod ends when that pod does.

use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::Testbed;
use crate::tools::{Tool, Tools, ToolsError, Toolset};

/// Returns the CRDs of KubeRay, for the CRD lists of [`crate::TestbedSpec`].
///
/// # Errors
/// Returns [`ToolsError::NotBuilt`] if its toolset is not built.
pub fn crds(tools: &Tools) -> Result<[PathBuf; 3], ToolsError> {
    let module = tools.module_dir(Toolset::KubeRay)?;
    let crd = |kind| module.join(format!("config/crd/bases/ray.io_{kind}.yaml"));
    Ok(["rayclusters", "rayjobs", "rayservices"].map(crd))
}

/// Starts KubeRay in a member, with the port of a [`dashboard`]. Its pods go to the member's
/// kube-scheduler one by one: a job is placed there only if all of them fit.
///
/// # Errors
/// Returns an error if there is no such member, its toolset is not built, or it cannot be started.
pub fn start(testbed: &Testbed, tools: &Tools, member: &str, dashboard: u16) -> anyhow::Result<()> {
    let program = tools.program(Tool::KubeRay)?;
    let kubeconfig = testbed.cluster(member)?.kubeconfig;
    let name = format!("{member}-kuberay");
    // Go uses no proxy for loopback addresses, such as the member's API server.
    testbed.start_process(&name, Path::new("/usr/bin/env"), 0, |_| {
        vec![
            format!("HTTP_PROXY=http://127.0.0.1:{dashboard}"),
            program.display().to_string(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--enable-leader-election=false".into(),
            "--metrics-addr=0".into(),
            "--health-probe-bind-address=0".into(),
        ]
    })?;
    Ok(())
}

/// Serves on a port of loopback, while its runtime exists, as the dashboard of every head.
///
/// # Errors
/// Returns an error if no port is free.
pub async fn dashboard() -> std::io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(answer(client));
        }
    });
    Ok(port)
}

/// Reports any program as succeeded.
async fn answer(mut client: TcpStream) -> std::io::Result<()> {
    const BODY: &str = r#"{"status": "SUCCEEDED", "message": "simulated"}"#;
    // A request is short and arrives in one read.
    let _ = client.read(&mut [0; 4096]).await?;
    let length = BODY.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{BODY}"
    );
    client.write_all(answer.as_bytes()).await
}
