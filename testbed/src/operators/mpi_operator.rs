//! Kubeflow's mpi-operator in members, so that MPIJobs run.
//!
//! It is the real controller in a program of the testbed's own (`testbed/tools/mpi-operator`). The control
//! plane needs only the kind, before karmada-controller-manager starts; a member needs the kind
//! before it is joined, and the operator.

use std::path::PathBuf;

use crate::Testbed;
use crate::tools::{Tool, Tools, ToolsError, Toolset};

/// The CRD of MPIJobs, for [`crate::TestbedSpec`]'s lists of CRDs.
///
/// # Errors
/// [`ToolsError::NotBuilt`] if the operator's set was not asked for.
pub fn crd(tools: &Tools) -> Result<PathBuf, ToolsError> {
    let module = tools.module_dir(Toolset::MpiOperator)?;
    Ok(module.join("manifests/base/kubeflow.org_mpijobs.yaml"))
}

/// Starts it in a member. Its pods go to the member's kube-scheduler one by one: that they all fit
/// was seen to before the job came.
///
/// # Errors
/// If there is no such member, its set was not asked for, or it cannot be started.
pub fn start(testbed: &Testbed, tools: &Tools, member: &str) -> anyhow::Result<()> {
    let program = tools.program(Tool::MpiOperator)?;
    let kubeconfig = testbed.cluster(member)?.kubeconfig;
    testbed.start_process(&format!("{member}-mpi-operator"), &program, 0, |_| {
        vec![
            format!("--kubeConfig={}", kubeconfig.display()),
            "--kube-api-qps=50".into(),
            "--kube-api-burst=100".into(),
        ]
    })?;
    Ok(())
}
