//! The description of a testbed: the members, their nodes, and the options of Karmada.
//!
//! The `testbed` command reads it from YAML; tests build it in code. This module starts nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A control plane with its members.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TestbedSpec {
    /// The options of the control plane.
    #[serde(default)]
    pub karmada: KarmadaSpec,
    /// The member clusters, in the order in which they are listed and joined.
    pub members: Vec<MemberSpec>,
    /// CRDs (files, or folders of `*.yaml`) applied to the control plane before
    /// karmada-controller-manager starts, whose detector looks for new kinds only every 30 s.
    #[serde(default)]
    pub control_plane_crds: Vec<PathBuf>,
    /// CRDs (files, or folders of `*.yaml`) applied to every member before it is joined, except
    /// members with [`MemberSpec::without_crds`].
    #[serde(default)]
    pub member_crds: Vec<PathBuf>,
}

/// Options of the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KarmadaSpec {
    /// Installs Volcano's own PodGroup CRD on the control plane. Then the superset of it that
    /// Muster brings is left out of [`TestbedSpec::control_plane_crds`]; by default, Volcano's is left
    /// out.
    pub volcano_podgroup_crd_on_control_plane: bool,
    /// Writes an audit log with the bodies of all writes to resourcebindings and works, and of all
    /// writes to queues and capacitypolicies except their status.
    pub audit_log: bool,
    /// More flags of karmada-controller-manager, e.g. `--kube-api-qps=5000`, or
    /// `--cluster-failure-threshold=5s` to notice a lost member sooner. The last flag of a name
    /// wins.
    pub controller_manager_flags: Vec<String>,
    /// More flags of karmada-scheduler.
    pub scheduler_flags: Vec<String>,
}

/// One member cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberSpec {
    /// The name of the Cluster object and prefix of its processes; a DNS label.
    pub name: String,
    /// Whether Karmada pushes Works to it or its agent pulls them.
    #[serde(default)]
    pub sync: SyncMode,
    /// Runs Volcano's scheduler and controllers beside kube-scheduler.
    #[serde(default)]
    pub volcano: bool,
    /// Runs Volcano's admission webhook as well, which sets defaults (a job's scheduler and queue)
    /// and refuses jobs whose queue does not exist. Without it, jobs must set `schedulerName:
    /// volcano` themselves.
    #[serde(default)]
    pub volcano_webhook: bool,
    /// Installs none of [`TestbedSpec::member_crds`]. The member runs no jobs of those kinds, and its API
    /// server starts in half the time.
    #[serde(default)]
    pub without_crds: bool,
    /// Labels of the Cluster object.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its nodes, simulated by KWOK.
    #[serde(default)]
    pub nodes: Vec<NodeGroup>,
    /// Real nodes instead, which run the programs of their pods.
    #[serde(default)]
    pub real_nodes: Option<RealNodes>,
}

/// The component that applies Works in a member and reports their status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SyncMode {
    /// karmada-controller-manager.
    #[default]
    Push,
    /// A karmada-agent of the member, which also joins it.
    Pull,
}

/// Nodes with a kubelet and a container runtime each, which have the CPUs and the memory of this machine. They need
/// the tools of [`crate::tools::ensure_real`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RealNodes {
    /// The number of nodes. They are named by their addresses, which are loopback addresses.
    pub count: u8,
    /// Devices of the resource `nvidia.com/gpu` of each node, which its device plugin offers. Containers get the ids
    /// of theirs in `NVIDIA_VISIBLE_DEVICES`, and no device.
    #[serde(default)]
    pub gpus: u32,
    /// Labels of the nodes.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Nodes of one shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeGroup {
    /// The number of nodes.
    pub count: u32,
    /// Nodes are named `<member>-<prefix>-<1..count>`; `n` if unset. One group per prefix and member.
    pub prefix: Option<String>,
    /// Allocatable CPU, a Kubernetes quantity.
    pub cpu: String,
    /// Allocatable memory, a Kubernetes quantity.
    pub memory: String,
    /// Allocatable pods.
    pub pods: u32,
    /// Devices of the resource `nvidia.com/gpu`.
    pub gpus: u32,
    /// The label `nvidia.com/gpu.product`, as NVIDIA's feature discovery sets it.
    pub product: Option<String>,
    /// More labels, e.g. `topology.kubernetes.io/zone`.
    pub labels: BTreeMap<String, String>,
    /// Taints of the nodes from their creation.
    pub taints: Vec<NodeTaint>,
}

/// A taint as in the core API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeTaint {
    /// The taint's key.
    pub key: String,
    /// Its value.
    #[serde(default)]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: NodeTaintEffect,
}

/// The effect of a taint on pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the core API's own terms")]
pub enum NodeTaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl NodeTaintEffect {
    /// Returns the name in the core API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl Default for NodeGroup {
    /// Returns an eight-GPU server without a product.
    fn default() -> Self {
        Self {
            count: 1,
            prefix: None,
            cpu: "96".into(),
            memory: "1Ti".into(),
            pods: 110,
            gpus: 8,
            product: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
        }
    }
}

/// The most real nodes of a member; each is a handful of processes of this machine.
const MOST_REAL_NODES: u8 = 8;

/// The products of the default fleet, one per member in turn.
pub const DEFAULT_PRODUCTS: [&str; 3] = ["NVIDIA-H100-80GB", "NVIDIA-A100-80GB", "NVIDIA-L40S"];

impl TestbedSpec {
    /// Returns a spec with `members` clusters named member1, member2, …, each with `nodes` nodes of
    /// `gpus` GPUs. Each member in turn has the next product. All run Volcano.
    pub fn fleet(members: usize, nodes: u32, gpus: u32, products: &[&str]) -> Self {
        let products = if products.is_empty() {
            &DEFAULT_PRODUCTS[..]
        } else {
            products
        };
        let member = |index: usize, product: &str| MemberSpec {
            name: format!("member{index}"),
            volcano: true,
            nodes: vec![NodeGroup {
                count: nodes,
                gpus,
                product: (gpus > 0).then(|| product.to_owned()),
                ..NodeGroup::default()
            }],
            ..MemberSpec::default()
        };
        let members = (1..=members).zip(products.iter().cycle());
        Self {
            members: members
                .map(|(index, &product)| member(index, product))
                .collect(),
            ..Self::default()
        }
    }

    /// Reads a spec from a YAML file; relative paths in it are relative to the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is not a spec, or contradicts itself.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        let mut spec: Self = serde_saphyr::from_str(&text).map_err(|error| Error::Manifest {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let base = path.parent().unwrap_or(Path::new("."));
        let crds = spec.control_plane_crds.iter_mut();
        for entry in crds.chain(&mut spec.member_crds) {
            let joined = base.join(&entry);
            *entry = std::path::absolute(&joined).map_err(Error::io("resolve", &joined))?;
        }
        spec.validate()?;
        Ok(spec)
    }

    /// Checks constraints that the types do not express.
    ///
    /// # Errors
    /// Returns [`Error::Spec`] with the field, its value, and what would be valid.
    pub fn validate(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        for member in &self.members {
            dns_label("members[].name", &member.name)?;
            if matches!(member.name.as_str(), "karmada" | "etcd") {
                return Err(Error::Spec(format!(
                    "members[].name {:?} is taken by the control plane",
                    member.name
                )));
            }
            if !names.insert(&member.name) {
                return Err(Error::Spec(format!(
                    "members[].name {:?} is given twice; names must differ",
                    member.name
                )));
            }
            if member.volcano_webhook && !member.volcano {
                return Err(Error::Spec(format!(
                    "members[{}].volcanoWebhook needs volcano: true",
                    member.name
                )));
            }
            if let Some(real) = &member.real_nodes {
                real.validate(member)?;
            }
            let mut prefixes = BTreeSet::new();
            for group in &member.nodes {
                group.validate()?;
                if !prefixes.insert(group.prefix()) {
                    return Err(Error::Spec(format!(
                        "members[{}].nodes[].prefix {:?} is given twice; prefixes must differ",
                        member.name,
                        group.prefix()
                    )));
                }
            }
        }
        Ok(())
    }
}

impl RealNodes {
    fn validate(&self, member: &MemberSpec) -> Result<()> {
        let field = format!("members[{}].realNodes", member.name);
        if !(1..=MOST_REAL_NODES).contains(&self.count) {
            return Err(Error::Spec(format!(
                "{field}.count {} must be 1 to {MOST_REAL_NODES}",
                self.count
            )));
        }
        match member.nodes.is_empty() {
            true => Ok(()),
            // KWOK would play the kubelet of all nodes of its member.
            false => Err(Error::Spec(format!(
                "{field} excludes nodes: a member has simulated nodes or real ones"
            ))),
        }
    }
}

impl NodeGroup {
    /// Returns the part of the nodes' names that distinguishes this group within the member.
    pub fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or("n")
    }

    /// Returns the names of the nodes in `member`.
    pub fn node_names(&self, member: &str) -> Vec<String> {
        let prefix = self.prefix();
        (1..=self.count)
            .map(|index| format!("{member}-{prefix}-{index}"))
            .collect()
    }

    /// Checks constraints that the types do not express.
    ///
    /// # Errors
    /// Returns [`Error::Spec`] if the prefix is not a DNS label.
    pub fn validate(&self) -> Result<()> {
        dns_label("nodes[].prefix", self.prefix())
    }
}

/// Checks for an RFC 1123 label that is short enough for names built on it to be labels too.
fn dns_label(field: &str, value: &str) -> Result<()> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let right = !value.is_empty()
        && value.len() <= 40
        && value.bytes().all(inner)
        && !value.starts_with('-')
        && !value.ends_with('-');
    if right {
        return Ok(());
    }
    Err(Error::Spec(format!(
        "{field} {value:?} must be 1 to 40 lower case letters, digits and inner dashes"
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(yaml: &str) -> Result<TestbedSpec> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("spec.yaml");
        std::fs::write(&file, yaml).unwrap();
        TestbedSpec::from_file(&file)
    }

    #[test]
    fn the_default_fleet_gives_each_member_its_product() {
        let spec = TestbedSpec::fleet(4, 2, 8, &[]);
        let shapes: Vec<_> = spec
            .members
            .iter()
            .map(|member| {
                (
                    member.name.as_str(),
                    member.nodes[0].product.as_deref().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            shapes,
            [
                ("member1", "NVIDIA-H100-80GB"),
                ("member2", "NVIDIA-A100-80GB"),
                ("member3", "NVIDIA-L40S"),
                ("member4", "NVIDIA-H100-80GB"),
            ]
        );
    }

    #[test]
    fn yaml_needs_to_name_only_what_differs() {
        let spec = parse(
            "
karmada: {auditLog: true, controllerManagerFlags: [--kube-api-qps=5000]}
controlPlaneCrds: [crds, /abs/ours.yaml]
members:
- name: east
  sync: Pull
  volcano: true
  nodes:
  - {count: 3, product: NVIDIA-H100-80GB, labels: {topology.kubernetes.io/zone: a}}
  - {count: 1, prefix: cpu, gpus: 0, taints: [{key: dedicated, value: x, effect: NoSchedule}]}
",
        )
        .unwrap();
        assert!(spec.karmada.audit_log);
        assert!(spec.control_plane_crds[0].is_absolute());
        assert_eq!(spec.control_plane_crds[1], Path::new("/abs/ours.yaml"));
        assert_eq!(spec.members[0].sync, SyncMode::Pull);
        let [gpu, cpu] = &spec.members[0].nodes[..] else {
            unreachable!("two groups were given");
        };
        assert_eq!((gpu.cpu.as_str(), gpu.gpus), ("96", 8));
        assert_eq!(cpu.taints[0].effect, NodeTaintEffect::NoSchedule);
        assert_eq!(cpu.node_names("east"), ["east-cpu-1"]);
        let again: TestbedSpec =
            serde_json::from_value(serde_json::to_value(&spec).unwrap()).unwrap();
        assert_eq!(again, spec);
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("members: [{name: a}, {name: a}]", "given twice"),
            ("members: [{name: A_b}]", "\"A_b\""),
            ("members: [{name: karmada}]", "taken by the control plane"),
            (
                "members: [{name: a, nodes: [{prefix: x}, {prefix: x}]}]",
                "prefix \"x\"",
            ),
            ("members: [{name: a, gpu: 3}]", "gpu"),
            ("members: [{name: a, realNodes: {count: 0}}]", "1 to 8"),
            (
                "members: [{name: a, realNodes: {count: 1}, nodes: [{}]}]",
                "simulated nodes or real ones",
            ),
            ("members: [{name: a, sync: pull}]", "pull"),
            (
                "members: [{name: a, volcanoWebhook: true}]",
                "needs volcano",
            ),
            (
                "members: [{name: a, nodes: [{taints: [{key: k, effect: Never}]}]}]",
                "Never",
            ),
        ];
        for (yaml, expected) in cases {
            let message = parse(yaml).unwrap_err().to_string();
            assert!(message.contains(expected), "{yaml}: {message}");
        }
    }
}
