//! The demo's clusters: three different fleets.

use testbed::operators::training_operator;
use testbed::tools::{Tools, ToolsError};
use testbed::{KarmadaSpec, MemberSpec, NodeGroup, TestbedSpec};

/// The only cluster with H100s.
pub(super) const H100S: &str = "gpu-a";

/// The clusters: name, whether Volcano runs there, nodes, GPUs of each, product.
const MEMBERS: [(&str, bool, u32, u32, &str); 3] = [
    (H100S, true, 4, 8, "NVIDIA-H100-80GB"),
    ("gpu-b", true, 6, 8, "NVIDIA-A100-80GB"),
    ("gpu-c", false, 4, 4, "NVIDIA-L40S"),
];

/// Returns the control plane and the clusters, with an audit log of writes to bindings.
///
/// # Errors
/// Returns an error if the training-operator's toolset is not built.
pub(super) fn spec(tools: &Tools) -> Result<TestbedSpec, ToolsError> {
    let crds = training_operator::crds(tools)?;
    Ok(TestbedSpec {
        karmada: KarmadaSpec {
            audit_log: true,
            ..KarmadaSpec::default()
        },
        members: MEMBERS.map(member).into(),
        control_plane_crds: crds.clone().into(),
        member_crds: crds.into(),
    })
}

fn member((name, volcano, count, gpus, product): (&str, bool, u32, u32, &str)) -> MemberSpec {
    let nodes = NodeGroup {
        count,
        gpus,
        product: Some(product.into()),
        ..NodeGroup::default()
    };
    MemberSpec {
        name: name.into(),
        volcano,
        nodes: vec![nodes],
        ..MemberSpec::default()
    }
}

/// Returns the GPUs of all clusters.
pub(super) fn gpus(spec: &TestbedSpec) -> u64 {
    let groups = spec.members.iter().flat_map(|member| &member.nodes);
    groups
        .map(|group| u64::from(group.count) * u64::from(group.gpus))
        .sum()
}
