//! Kubeflow's mpi-operator in members, which runs MPIJobs.
//!
//! It is the real controller in a program of the testbed (`testbed/tools/mpi-operator`). The
//! control plane needs only the CRD, before karmada-controller-manager starts; a member needs the
//! CRD before it is joined, and the operator.

use std::path::PathBuf;

use crate::Testbed;
use crate::tools::{Tool, Tools, ToolsError, Toolset};

/// Returns the CRD of MPIJobs, for the CRD lists of [`crate::TestbedSpec`].
///
/// # Errors
/// Returns [`ToolsError::NotBuilt`] if its toolset is not built.
pub fn crd(tools: &Tools) -> Result<PathBuf, ToolsError> {
    let module = tools.module_dir(Toolset::MpiOperator)?;
    Ok(module.join("manifests/base/kubeflow.org_mpijobs.yaml"))
}

/// Starts the operator in a member. Its pods go to the member's kube-scheduler one by one: a job is
/// placed there only if all of them fit.
///
/// # Errors
/// Returns an error if there is no such member, its toolset is not built, or it cannot be started.
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
