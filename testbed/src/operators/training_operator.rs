//! Kubeflow's training-operator in members, which runs PyTorchJobs, TFJobs, JAXJobs, PaddleJobs and
//! XGBoostJobs.
//!
//! It is the real controllers without their webhook, in a program of the testbed
//! (`testbed/tools/training-operator`). The control plane needs only the CRDs, before
//! karmada-controller-manager starts; a member needs the CRDs before it is joined, and the
//! operator.

use std::path::PathBuf;

use crate::Testbed;
use crate::tools::{Tool, Tools, ToolsError, Toolset};

/// The kinds that it runs.
const KINDS: [&str; 5] = ["pytorchjob", "tfjob", "jaxjob", "paddlejob", "xgboostjob"];

/// Returns the CRDs of its kinds, for the CRD lists of [`crate::TestbedSpec`].
///
/// # Errors
/// Returns [`ToolsError::NotBuilt`] if its toolset is not built.
pub fn crds(tools: &Tools) -> Result<[PathBuf; KINDS.len()], ToolsError> {
    let module = tools.module_dir(Toolset::TrainingOperator)?;
    let crd = |kind| module.join(format!("manifests/base/crds/kubeflow.org_{kind}s.yaml"));
    Ok(KINDS.map(crd))
}

/// Starts the operator in a member. Its pods go to the member's kube-scheduler one by one: a job is
/// placed there only if all of them fit.
///
/// # Errors
/// Returns an error if there is no such member, its toolset is not built, or it cannot be started.
pub fn start(testbed: &Testbed, tools: &Tools, member: &str) -> anyhow::Result<()> {
    let program = tools.program(Tool::TrainingOperator)?;
    let kubeconfig = testbed.cluster(member)?.kubeconfig;
    testbed.start_process(&format!("{member}-training-operator"), &program, 0, |_| {
        let schemes = KINDS.map(|kind| format!("--enable-scheme={kind}"));
        let mut args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--health-probe-bind-address=0".into(),
        ];
        args.extend(schemes);
        args
    })?;
    Ok(())
}
