//! The flags that choose pods of a job, and the commands about them.

use super::{OutputArgs, Span};
use clap::Args;

/// Which pods of a job.
#[derive(Debug, Default, Clone, Args)]
#[group(multiple = false)]
pub(crate) struct PodChoice {
    /// Only the pod of this rank; ranks count through the whole job, from 0
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u64>,
    /// Only the pods of this task, such as worker
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// Only this pod, as POD or CLUSTER/POD
    #[arg(long, value_name = "POD")]
    pub(crate) pod: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PodsCommand {
    /// Name of the workload, KIND/NAME, or name of its PodGroup
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) choice: PodChoice,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print no header
    #[arg(long)]
    pub(crate) no_headers: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogsCommand {
    /// Name of the workload, KIND/NAME, or name of its PodGroup
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) choice: PodChoice,
    /// Only this container of each pod; else the default one
    #[arg(long, short = 'c', value_name = "CONTAINER")]
    pub(crate) container: Option<String>,
    /// All containers of each pod
    #[arg(long, conflicts_with = "container")]
    pub(crate) all_containers: bool,
    /// Go on until the job ends, over restarts and evictions
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// What containers wrote before they were started again
    #[arg(long, short = 'p', conflicts_with = "follow")]
    pub(crate) previous: bool,
    /// Only lines that are younger, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<Span>,
    /// Only the last lines of each container
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) tail: Option<i64>,
    /// Print the time of each line
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Print rank and cluster before each line; the default if the job has several pods
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) prefix: Option<bool>,
    /// Exit as the job does: 0 if it succeeded, else with the exit code of the container that failed, or 1
    #[arg(long, requires = "follow")]
    pub(crate) exit_code: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventsCommand {
    /// Name of the workload, KIND/NAME, or name of its PodGroup
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print no header
    #[arg(long)]
    pub(crate) no_headers: bool,
}
