//! The commands about pools, clusters and nodes.

use super::{ListArgs, WriteArgs};
use crate::pools::Shape;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct PoolsCommand {
    /// Only pools with room now for so many pods of so many devices each: 2x8
    ///
    /// It is a snapshot and no promise: quota, reservations, other resources and the constraints of a job do
    /// not count.
    #[arg(long, value_name = "PODSxDEVICES")]
    pub(crate) fits: Option<Shape>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct NodesCommand {
    #[command(subcommand)]
    pub(crate) act: Option<NodesAct>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesAct {
    /// Clear nodes, so that they are avoided no more
    ///
    /// It writes the time into the annotation muster.io/cleared-nodes of the Cluster. What was seen of a node
    /// before does not count any more; what is seen later does.
    Clear(ClearNodesArgs),
}

#[derive(Debug, Default, Args)]
pub(crate) struct ClearNodesArgs {
    /// The nodes; CLUSTER/* clears all nodes of a cluster, and lets it take new jobs if it is paused
    #[arg(value_name = "CLUSTER/NODE")]
    pub(crate) nodes: Vec<String>,
    /// All nodes that Muster avoids
    #[arg(long, conflicts_with = "nodes")]
    pub(crate) all: bool,
    /// All nodes that are avoided by this rule
    #[arg(long, value_name = "RULE", conflicts_with_all = ["nodes", "all"])]
    pub(crate) rule: Option<String>,
    /// Do not ask before several nodes are cleared
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DrainCommand {
    /// The cluster, or a node of it
    #[arg(value_name = "CLUSTER[/NODE]")]
    pub(crate) place: String,
    /// Do not ask before jobs are evicted
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Wait until they have left
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UndrainCommand {
    /// The cluster, or a node of it
    #[arg(value_name = "CLUSTER[/NODE]")]
    pub(crate) place: String,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}
