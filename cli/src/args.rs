//! The command line.

use crate::jobs::ListedStatus;
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
    /// List the jobs that Muster manages
    ///
    /// They are listed by queue: first those that are admitted, then the pending ones in their order, and
    /// last those that ended.
    Jobs(JobsCommand),
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

/// Which jobs, by what they are.
#[derive(Debug, Default, Args)]
pub(crate) struct JobFilter {
    /// Jobs of all namespaces
    #[arg(long, short = 'A')]
    pub(crate) all_namespaces: bool,
    /// Only jobs with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// Only jobs of this queue
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Only jobs in one of these states
    #[arg(long, value_enum, value_delimiter = ',', ignore_case = true)]
    pub(crate) status: Vec<ListedStatus>,
}

#[derive(Debug, Args)]
pub(crate) struct JobsCommand {
    #[command(flatten)]
    pub(crate) filter: JobFilter,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Go on, and print each job again when it changes
    #[arg(long, short = 'w')]
    pub(crate) watch: bool,
    /// Print no header
    #[arg(long)]
    pub(crate) no_headers: bool,
}

#[derive(Debug, Default, Clone, Copy, Args)]
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
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    #[default]
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
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    fn parse(line: &str) -> Result<CliCommand, clap::Error> {
        let words = std::iter::once(PROGRAM).chain(line.split_whitespace());
        Ok(Cli::try_parse_from(words)?.command)
    }

    #[test]
    fn wrong_values_are_wrong_usage() {
        for line in ["jobs --status Sleeping", "jobs -o html", "queue get"] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    /// Returns all commands without commands of their own, by the words that call them.
    fn verbs(command: &clap::Command, words: &str) -> Vec<(String, clap::Command)> {
        let inner = command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help");
        let inner: Vec<_> = inner
            .flat_map(|inner| verbs(inner, &format!("{words} {}", inner.get_name())))
            .collect();
        match inner.is_empty() {
            true => vec![(words.to_owned(), command.clone())],
            false => inner,
        }
    }

    #[test]
    fn the_reference_has_every_command_with_its_flags_and_an_example() {
        let page = include_str!("../../docs/reference/cli.md");
        for (verb, command) in verbs(&Cli::command(), "kubectl muster") {
            let heading = format!("\n## `{verb}`\n");
            let (_, section) = page
                .split_once(&heading)
                .unwrap_or_else(|| panic!("no section {verb}"));
            let section = section.split("\n## ").next().unwrap_or_default();
            let example = format!("\n$ {verb}");
            assert!(section.contains(&example), "no example of {verb}");
            for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
                let shared = flag == "help" || flag == "output";
                assert!(
                    shared || section.contains(&format!("`--{flag}")),
                    "{verb} --{flag} is not described"
                );
            }
        }
        for flag in Cli::command()
            .get_arguments()
            .filter_map(clap::Arg::get_long)
        {
            assert!(
                page.contains(&format!("`--{flag}")),
                "--{flag} is not described"
            );
        }
    }
}
