//! KubeRay in members, so that RayClusters and RayJobs run.
//!
//! It is upstream's own command, whose webhook is off unless it is asked for. The control plane needs
//! only the kinds, before karmada-controller-manager starts; a member needs the kinds before it is
//! joined, and the operator.
//!
//! Its pods are simulated, so nothing of Ray runs in them. What KubeRay asks the dashboard of a head it asks
//! [`dashboard`] instead, which it takes for its HTTP proxy: programs that were submitted have ended well,
//! and a RayJob that has a pod to submit it ends when that pod does.

use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::Testbed;
use crate::tools::{Tool, Tools, ToolsError, Toolset};

/// The CRDs that KubeRay needs, for [`crate::TestbedSpec`]'s lists of CRDs.
///
/// # Errors
/// [`ToolsError::NotBuilt`] if its set was not asked for.
pub fn crds(tools: &Tools) -> Result<[PathBuf; 3], ToolsError> {
    let module = tools.module_dir(Toolset::KubeRay)?;
    let crd = |kind| module.join(format!("config/crd/bases/ray.io_{kind}.yaml"));
    Ok(["rayclusters", "rayjobs", "rayservices"].map(crd))
}

/// Starts it in a member, with the port of a [`dashboard`]. Its pods go to the member's kube-scheduler
/// one by one: that they all fit was seen to before the job came.
///
/// # Errors
/// If there is no such member, its set was not asked for, or it cannot be started.
pub fn start(testbed: &Testbed, tools: &Tools, member: &str, dashboard: u16) -> anyhow::Result<()> {
    let program = tools.program(Tool::KubeRay)?;
    let kubeconfig = testbed.cluster(member)?.kubeconfig;
    let name = format!("{member}-kuberay");
    // Go asks no proxy for what is on loopback, as the member's API server is.
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

/// Answers on a port of loopback, as long as its runtime is there, as the dashboards of all heads would.
///
/// # Errors
/// If there is no port.
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

/// Says of any program that it has ended well.
async fn answer(mut client: TcpStream) -> std::io::Result<()> {
    const BODY: &str = r#"{"status": "SUCCEEDED", "message": "simulated"}"#;
    // Requests are short, and have come when their first bytes have.
    let _ = client.read(&mut [0; 4096]).await?;
    let length = BODY.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{BODY}"
    );
    client.write_all(answer.as_bytes()).await
}
