//! The command line.

mod completion;
mod connection;
mod examples;
mod jobs;
mod output;
mod places;
mod pods;
mod queue;
mod run;
mod simulate;
mod span;
mod top;
mod wait;

pub(crate) use completion::CompletionTarget;
pub(crate) use connection::KubectlConnection;
pub(crate) use examples::with_examples;
pub(crate) use jobs::{
    ActArgs, JobFilter, JobOrder, JobsCommand, MoveCommand, NamedJobs, PriorityCommand,
};
pub(crate) use output::{DryRun, Format, ListArgs, OutputArgs, WriteArgs};
pub(crate) use places::{
    ClearNodesArgs, DrainCommand, NodesAct, NodesCommand, PoolsCommand, UndrainCommand,
};
pub(crate) use pods::{EventsCommand, LogsCommand, PodChoice, PodsCommand};
pub(crate) use queue::{CreateQueue, QueueCommand};
pub(crate) use run::{JobFramework, RunCommand};
pub(crate) use simulate::{ChangeArgs, QueueField, SimulateCommand};
pub(crate) use span::Span;
pub(crate) use top::TopCommand;
pub(crate) use wait::{WaitCommand, WaitGoal};

use clap::{Args, Parser, Subcommand};

/// The name by which kubectl finds the plugin.
pub(crate) const PROGRAM: &str = "kubectl-muster";

/// Submits jobs to Muster, shows where they and their queues stand, and acts on them.
///
/// Submit and follow    run, jobs, explain, wait, top
/// Change jobs          cancel, hold, release, resume, priority, move
/// Queues and clusters  queue, pools, nodes, drain, undrain
/// Try and check        simulate, check
#[derive(Debug, Parser)]
#[command(name = PROGRAM, bin_name = "kubectl muster", version, propagate_version = false, verbatim_doc_comment)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: KubectlConnection,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Submit a job without a manifest
    ///
    /// It creates an indexed Job, a PyTorchJob or a Volcano Job with what the flags say, and prints where it stands and
    /// the commands that show more of it.
    Run(Box<RunCommand>),
    /// Show queues: usage, quota, and what the next job waits for
    #[command(subcommand, visible_alias = "queues")]
    Queue(QueueCommand),
    /// List the jobs that Muster manages
    ///
    /// They are listed by queue: first those that are admitted, then the pending ones in their order, and
    /// last those that ended within an hour. json, yaml and name list all of them.
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
    /// Show the pods of a job in all of its clusters
    ///
    /// They are read through Karmada's cluster proxy with your own rights.
    Pods(PodsCommand),
    /// Print what the pods of a job write, merged by time
    ///
    /// They are read through Karmada's cluster proxy with your own rights.
    Logs(LogsCommand),
    /// Show the events of a job and of its pods in all of its clusters
    ///
    /// They are read through Karmada's cluster proxy with your own rights.
    Events(EventsCommand),
    /// Wait until a job runs or has ended
    ///
    /// Exit codes: 0 it runs or has succeeded; it has failed: the exit code of its container if Muster knows it, else
    /// 1; 124 the time is over.
    Wait(WaitCommand),
    /// Show queues, pools and jobs in one screen, every two seconds
    ///
    /// Ctrl-C ends it. Where standard output is no terminal, one screen follows the other.
    Top(TopCommand),
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
    /// Resume jobs that are suspended or were aborted
    ///
    /// It sets the field of the kind that suspends it to false, or the annotation muster.io/resume-attempt.
    Resume(NamedJobs),
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

#[derive(Debug, Args)]
pub(crate) struct VersionCommand {
    /// Only the version of this program, without a request to the server
    #[arg(long)]
    pub(crate) client: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[cfg(test)]
mod tests;
