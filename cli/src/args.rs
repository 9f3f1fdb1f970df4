//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;

/// The name by which kubectl finds the plugin.
pub(crate) const PROGRAM: &str = "kubectl-muster";

/// Shows the queues and jobs of Muster.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, bin_name = "kubectl muster", version, propagate_version = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: KubectlConnection,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The connection to the server, with kubectl's flags.
#[derive(Debug, Args)]
pub(crate) struct KubectlConnection {
    /// Path of the kubeconfig; else KUBECONFIG, else ~/.kube/config
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true)]
    pub(crate) cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true)]
    pub(crate) user: Option<String>,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Namespace of the job (queues have none)
    #[arg(long, short, global = true)]
    pub(crate) namespace: Option<String>,
    /// Seconds to wait for the server
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) request_timeout: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Show queues: usage, quota, and what the next job waits for
    #[command(subcommand, visible_alias = "queues")]
    Queue(QueueCommand),
    /// Show why a job waits, what would help, and when it may start
    Explain {
        /// Name of the workload, KIND/NAME, or name of its PodGroup
        job: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show the nodes that are avoided because of faults. To clear one, remove the taint in its cluster:
    /// kubectl taint node NAME muster.io/avoid-
    Nodes {
        #[command(flatten)]
        output: OutputArgs,
        /// Print no header
        #[arg(long)]
        no_headers: bool,
    },
    /// Show the versions of this program and of the server
    Version(VersionCommand),
    /// Print a completion script: source <(kubectl-muster completion bash)
    Completion {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List all queues
    List {
        #[command(flatten)]
        output: OutputArgs,
        /// Only queues whose CapacityPolicy has these labels
        #[arg(long, short = 'l', value_name = "SELECTOR")]
        selector: Option<String>,
        /// Print no header
        #[arg(long)]
        no_headers: bool,
    },
    /// Show one queue: by resource, cluster and pool
    Get {
        /// Name of the queue
        name: String,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Output format
    #[arg(long = "output", short = 'o', value_enum, default_value_t = Format::Table, hide_default_value = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct VersionCommand {
    /// Only the version of this program, without a request to the server
    #[arg(long)]
    pub(crate) client: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    Table,
    /// A table with more columns
    Wide,
    /// The server's object.
    Json,
    /// The server's object.
    Yaml,
    /// kind/name, one in each line.
    Name,
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
