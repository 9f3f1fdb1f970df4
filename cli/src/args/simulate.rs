//! The flags of `simulate`.

use super::OutputArgs;
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;

/// What is changed, in any combination.
#[derive(Debug, Default, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct ChangeArgs {
    /// Submit the workloads of this file, `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) job: Vec<PathBuf>,
    /// Have the Queues and CapacityPolicies of this file, `-` for standard input
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    /// The queue that --set changes
    #[arg(long, value_name = "QUEUE", requires = "set")]
    pub(crate) queue: Option<String>,
    /// Set a field of the Queue's spec: capability.nvidia.com/gpu=64; nothing after = removes it
    #[arg(long, value_name = "FIELD=VALUE", requires = "queue")]
    pub(crate) set: Vec<QueueField>,
    /// Have this cluster leave the federation
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) without_cluster: Vec<String>,
    /// Have this node be gone
    #[arg(long, value_name = "CLUSTER/NODE")]
    pub(crate) without_node: Vec<NodeOfCluster>,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateCommand {
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
    /// Print no header
    #[arg(long)]
    pub(crate) no_headers: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A field of a Queue's spec with its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueField {
    /// The names of the field, from the outside in.
    pub(crate) path: Vec<String>,
    /// The value; empty to remove it.
    pub(crate) value: String,
}

/// The fields with an amount of each resource.
const AMOUNTS: [&str; 3] = ["capability", "deserved", "guarantee"];
/// The other fields.
const PLAIN: [&str; 5] = [
    "weight",
    "priority",
    "parent",
    "reclaimable",
    "dequeueStrategy",
];

impl FromStr for QueueField {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "FIELD=VALUE is needed, and FIELD is {} or {}.RESOURCE",
                PLAIN.join(", "),
                AMOUNTS.join(".RESOURCE, ")
            )
        };
        let (field, value) = text.split_once('=').ok_or_else(wrong)?;
        let path = match field.split_once('.') {
            Some((field @ "guarantee", resource)) => vec![field, "resource", resource],
            Some((field, resource)) if AMOUNTS.contains(&field) => vec![field, resource],
            None if PLAIN.contains(&field) => vec![field],
            _ => return Err(wrong()),
        };
        if path.iter().any(|name| name.is_empty()) {
            return Err(wrong());
        }
        Ok(Self {
            path: path.into_iter().map(str::to_owned).collect(),
            value: value.to_owned(),
        })
    }
}

/// A node, by its cluster and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeOfCluster {
    /// The cluster.
    pub(crate) cluster: String,
    /// The node.
    pub(crate) node: String,
}

impl FromStr for NodeOfCluster {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((cluster, node)) if !cluster.is_empty() && !node.is_empty() => Ok(Self {
                cluster: cluster.to_owned(),
                node: node.to_owned(),
            }),
            _ => Err("CLUSTER/NODE is needed".to_owned()),
        }
    }
}
