//! The commands about queues.

use super::{ListArgs, OutputArgs, QueueField, WriteArgs};
use clap::{Args, Subcommand};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum QueueCommand {
    /// List all queues, or those of a namespace
    List {
        #[command(flatten)]
        list: ListArgs,
        /// Only queues whose CapacityPolicy has these labels
        #[arg(long, short = 'l', value_name = "SELECTOR")]
        selector: Option<String>,
        /// The queues of the namespace, with what it uses and may use: its users may read these
        #[arg(long)]
        mine: bool,
    },
    /// Show one queue: by resource, cluster and pool
    Get {
        /// Name of the queue
        #[arg(value_name = "QUEUE")]
        name: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show the queues below their parents: used, deserved, capability
    Tree {
        /// Print no header
        #[arg(long)]
        no_headers: bool,
    },
    /// Create a queue
    ///
    /// It creates a CapacityPolicy, for which Muster creates the Queue.
    Create(CreateQueue),
    /// Change the quota, the parent or the order of a queue
    ///
    /// It changes the CapacityPolicy of the queue or its Queue: what states the field now.
    Set {
        /// Name of the queue
        #[arg(value_name = "QUEUE")]
        name: String,
        /// A field: capability.nvidia.com/gpu=64; nothing after = removes it
        #[arg(value_name = "FIELD=VALUE", required = true)]
        fields: Vec<QueueField>,
        #[command(flatten)]
        write: WriteArgs,
    },
    /// Stop a queue, so that it admits no jobs
    ///
    /// It sets spec.stopPolicy of the CapacityPolicy.
    Stop {
        /// Name of the queue
        #[arg(value_name = "QUEUE")]
        name: String,
        /// Evict the jobs that are admitted too; else they go on
        #[arg(long)]
        drain: bool,
        #[command(flatten)]
        write: WriteArgs,
    },
    /// Resume a queue that was stopped
    Resume {
        /// Name of the queue
        #[arg(value_name = "QUEUE")]
        name: String,
        #[command(flatten)]
        write: WriteArgs,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CreateQueue {
    /// Name of the queue
    pub(crate) name: String,
    /// The queue above it
    #[arg(long, value_name = "QUEUE")]
    pub(crate) parent: Option<String>,
    /// How many GPUs it deserves: it gets them back when it needs them
    #[arg(long, value_name = "N", required_unless_present = "max_gpus")]
    pub(crate) gpus: Option<u32>,
    /// How many GPUs it may use at most, borrowed ones included; else what it deserves
    #[arg(long, value_name = "N")]
    pub(crate) max_gpus: Option<u32>,
    /// How many GPUs stay free for it
    #[arg(long, value_name = "N")]
    pub(crate) guarantee_gpus: Option<u32>,
    /// Bound these GPUs to one class, as `kubectl muster pools` shows it
    #[arg(long, value_name = "GPU_CLASS")]
    pub(crate) class: Option<String>,
    /// The resource that is counted
    #[arg(long, value_name = "RESOURCE", default_value = "nvidia.com/gpu")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}
