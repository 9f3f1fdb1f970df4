//! Kubeflow's training-operator in members, so that PyTorchJobs and TFJobs run.
//!
//! It is the real controllers in a program without their webhook (`testbed/tools/training-operator`).
//! The control plane needs only the kinds, before karmada-controller-manager starts; a member needs
//! the kinds before it is joined, and the operator.

use std::path::PathBuf;

use crate::Testbed;
use crate::tools::{Tool, Tools, ToolsError, Toolset};

/// The CRDs of PyTorchJobs and TFJobs, for [`crate::TestbedSpec`]'s lists of CRDs.
///
/// # Errors
/// [`ToolsError::NotBuilt`] if the operator's set was not asked for.
pub fn crds(tools: &Tools) -> Result<[PathBuf; 2], ToolsError> {
    let module = tools.module_dir(Toolset::TrainingOperator)?;
    let crd = |kind| module.join(format!("manifests/base/crds/kubeflow.org_{kind}.yaml"));
    Ok(["pytorchjobs", "tfjobs"].map(crd))
}

/// Starts it in a member. Its pods go to the member's kube-scheduler one by one: that they all fit
/// was seen to before the job came.
///
/// # Errors
/// If there is no such member, its set was not asked for, or it cannot be started.
pub fn start(testbed: &Testbed, tools: &Tools, member: &str) -> anyhow::Result<()> {
    let program = tools.program(Tool::TrainingOperator)?;
    let kubeconfig = testbed.cluster(member)?.kubeconfig;
    testbed.start_process(&format!("{member}-training-operator"), &program, 0, |_| {
        vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--enable-scheme=pytorchjob".into(),
            "--enable-scheme=tfjob".into(),
            "--health-probe-bind-address=0".into(),
        ]
    })?;
    Ok(())
}
