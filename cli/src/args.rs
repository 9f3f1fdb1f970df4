//! The command line.

mod completion;
mod simulate;

pub(crate) use completion::CompletionTarget;
pub(crate) use simulate::{ChangeArgs, QueueField, SimulateCommand};

use crate::pools::Shape;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use crds::podgroup::StatusWord;
use std::path::PathBuf;

/// The name by which kubectl finds the plugin.
pub(crate) const PROGRAM: &str = "kubectl-muster";

/// Shows the queues and jobs of Muster, and acts on them.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, bin_name = "kubectl muster", version, propagate_version = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: KubectlConnection,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The connection to the server, with kubectl's flags.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct KubectlConnection {
    /// Path of the kubeconfig; else KUBECONFIG, else ~/.kube/config
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
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
        /// Compute what would help now, also if Muster has published it
        #[arg(long)]
        live: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show what would happen after a change, and do not make it
    ///
    /// It reads what Muster's leader reads, with your own rights, and decides as the leader does, once as things
    /// are and once with the change. It shows the jobs for which that makes a difference.
    Simulate(SimulateCommand),
    /// Delete jobs
    ///
    /// It deletes the workloads that were submitted, not only their pods.
    Cancel(NamedJobs),
    /// Hold jobs, so that they are not admitted
    ///
    /// It sets the label muster.io/hold. A held job keeps its place. A job that is admitted already goes on,
    /// and is held once it is queued again.
    Hold(NamedJobs),
    /// Release jobs that are held
    ///
    /// It removes the label muster.io/hold.
    Release(NamedJobs),
    /// Give jobs another PriorityClass
    ///
    /// It sets the label muster.io/priority-class.
    Priority(PriorityCommand),
    /// Move pending jobs to another queue
    ///
    /// It sets the label muster.io/queue, and the field of the kind if that names a queue.
    Move(MoveCommand),
    /// Show pools, and where a gang would fit now
    ///
    /// A pool is the nodes of one class in one cluster.
    Pools(PoolsCommand),
    /// Show the nodes that are avoided because of faults, or clear them
    Nodes(NodesCommand),
    /// Keep new jobs out of a cluster or off a node, and have those that run there run elsewhere
    ///
    /// It sets the annotation muster.io/drain of a Cluster. A node is cordoned and its pods are evicted, through
    /// Karmada's cluster proxy with your own rights.
    Drain(DrainCommand),
    /// Let jobs into a cluster or onto a node again that was drained
    Undrain(UndrainCommand),
    /// Find what keeps Muster from working, and say how to mend it
    ///
    /// It changes nothing. Exit codes: 0 nothing blocks, 1 a finding blocks, 2 the server could not be asked.
    Check {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show the versions of this program and of the server
    Version(VersionCommand),
    /// Print a completion script: source <(kubectl-muster completion bash)
    ///
    /// `kubectl` prints the program by which kubectl itself completes `kubectl muster`.
    Completion {
        /// The shell, or kubectl
        shell: CompletionTarget,
    },
    /// Print candidates for the last word, as kubectl asks for them
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete {
        /// The words after `kubectl muster`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

impl CliCommand {
    /// Returns true if it goes on until the user ends it.
    pub(crate) fn watches(&self) -> bool {
        let list = match self {
            Self::Queue(QueueCommand::List { list, .. }) => list,
            Self::Jobs(command) => &command.list,
            Self::Pools(command) => &command.list,
            Self::Nodes(NodesCommand { act: None, list }) => list,
            _ => return false,
        };
        list.watch
    }
}

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
    #[arg(long, value_parser = job_status(), value_delimiter = ',', ignore_case = true)]
    pub(crate) status: Vec<StatusWord>,
}

/// Returns the parser of the status of a job, which knows what each word means.
fn job_status() -> impl TypedValueParser<Value = StatusWord> {
    let word = |(status, meaning): (StatusWord, &'static str)| {
        PossibleValue::new(status.as_str()).help(meaning)
    };
    PossibleValuesParser::new(StatusWord::ALL.map(word)).try_map(|word| word.parse::<StatusWord>())
}

impl JobFilter {
    /// Returns true if it selects jobs, and is more than the place to look in.
    pub(crate) fn selects(&self) -> bool {
        self.selector.is_some() || self.queue.is_some() || !self.status.is_empty()
    }
}

#[derive(Debug, Args)]
pub(crate) struct JobsCommand {
    #[command(flatten)]
    pub(crate) filter: JobFilter,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Default, Args)]
pub(crate) struct NamedJobs {
    /// The jobs: name of the workload, KIND/NAME, KIND.GROUP/NAME, or name of the PodGroup
    #[arg(value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

#[derive(Debug, Args)]
#[command(override_usage = "kubectl muster priority [OPTIONS] [JOB]... CLASS")]
pub(crate) struct PriorityCommand {
    /// The jobs, as for `hold`, and last the PriorityClass
    #[arg(value_names = ["JOB", "CLASS"], num_args = 1.., required = true)]
    words: Vec<String>,
    #[command(flatten)]
    act: ActArgs,
}

impl PriorityCommand {
    /// Returns the jobs and the PriorityClass.
    pub(crate) fn split(self) -> (NamedJobs, String) {
        split(self.words, self.act)
    }
}

#[derive(Debug, Args)]
#[command(override_usage = "kubectl muster move [OPTIONS] [JOB]... QUEUE")]
pub(crate) struct MoveCommand {
    /// The jobs, as for `hold`, and last the queue
    #[arg(value_names = ["JOB", "QUEUE"], num_args = 1.., required = true)]
    words: Vec<String>,
    #[command(flatten)]
    act: ActArgs,
}

impl MoveCommand {
    /// Returns the jobs and the queue.
    pub(crate) fn split(self) -> (NamedJobs, String) {
        split(self.words, self.act)
    }
}

/// Separates the last of the words, which clap cannot do if flags stand between them.
fn split(mut words: Vec<String>, act: ActArgs) -> (NamedJobs, String) {
    let last = words.pop().unwrap_or_default();
    (NamedJobs { jobs: words, act }, last)
}

/// Flags of the commands that act on jobs.
#[derive(Debug, Default, Args)]
pub(crate) struct ActArgs {
    #[command(flatten)]
    pub(crate) filter: JobFilter,
    /// Do not ask before several jobs are changed
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

impl NamedJobs {
    /// Returns true if more than one named job may be changed.
    pub(crate) fn is_bulk(&self) -> bool {
        self.jobs.len() != 1
    }

    /// Checks that jobs are either named or selected.
    pub(crate) fn check(&self) -> Result<(), clap::Error> {
        let (kind, text) = match (self.jobs.is_empty(), self.act.filter.selects()) {
            (true, false) => (
                ErrorKind::MissingRequiredArgument,
                "name the jobs, or select them with --selector, --queue or --status",
            ),
            (false, true) => (
                ErrorKind::ArgumentConflict,
                "name the jobs or select them, not both",
            ),
            _ => return Ok(()),
        };
        Err(Cli::command().error(kind, text))
    }
}

/// Flags of the commands that change objects.
#[derive(Debug, Default, Clone, Copy, Args)]
pub(crate) struct WriteArgs {
    /// Change nothing: `server` lets the server check the change, `client` sends nothing
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "WHERE",
        hide_default_value = true
    )]
    pub(crate) dry_run: DryRun,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
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

/// Where a change ends that is not made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// The change is made
    #[default]
    None,
    /// The server checks it
    Server,
    /// Nothing is sent
    Client,
}

impl DryRun {
    /// Returns what kubectl adds to the line of an object.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Server => " (server dry run)",
            Self::Client => " (dry run)",
        }
    }
}

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

/// Flags of the commands that list.
#[derive(Debug, Default, Clone, Copy, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Go on, and print each row again when it changes
    #[arg(long, short = 'w')]
    pub(crate) watch: bool,
    /// Print no header
    #[arg(long)]
    pub(crate) no_headers: bool,
}

impl ListArgs {
    /// Returns the same with a header.
    pub(crate) fn with_header(self) -> Self {
        Self {
            no_headers: false,
            ..self
        }
    }
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
mod tests;
