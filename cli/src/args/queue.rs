//! The commands about queues.

use super::{ListArgs, OutputArgs, WriteArgs};
use clap::Subcommand;

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
