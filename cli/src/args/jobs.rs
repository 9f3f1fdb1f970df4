//! The flags that choose jobs, and the commands that act on several of them.

use super::{Cli, ListArgs, Span, WriteArgs};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, ValueEnum};
use crds::podgroup::StatusWord;

/// Which jobs, by what they are.
#[derive(Debug, Default, Clone, Args)]
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
    /// Only my jobs
    #[arg(long, conflicts_with = "user_name")]
    pub(crate) mine: bool,
    /// Only jobs of this user, as the column USER shows it (--user is the kubeconfig's)
    #[arg(long, value_name = "USER")]
    pub(crate) user_name: Option<String>,
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
        let by_user = self.mine || self.user_name.is_some();
        by_user || self.selector.is_some() || self.queue.is_some() || !self.status.is_empty()
    }
}

#[derive(Debug, Default, Clone, Args)]
pub(crate) struct JobsCommand {
    #[command(flatten)]
    pub(crate) filter: JobFilter,
    /// Ended jobs only if they ended within this time (2h, 3d); without it and --all, tables have those of an hour
    #[arg(long, value_name = "DURATION", conflicts_with = "all")]
    pub(crate) since: Option<Span>,
    /// All jobs that ended
    #[arg(long)]
    pub(crate) all: bool,
    /// The order of the list
    #[arg(
        long,
        value_enum,
        value_name = "ORDER",
        default_value_t,
        hide_default_value = true
    )]
    pub(crate) sort_by: JobOrder,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

/// The order of a list of jobs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum JobOrder {
    /// By queue: what is placed, what waits in its order, what ended
    #[default]
    Queue,
    /// By name
    Name,
    /// By user
    User,
    /// The most devices first
    Gpus,
    /// The longest run time first
    Runtime,
    /// The oldest first
    Age,
}

#[derive(Debug, Default, Args)]
pub(crate) struct NamedJobs {
    /// The jobs: name of the workload, KIND/NAME, KIND.GROUP/NAME, or name of the PodGroup
    #[arg(value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    #[command(flatten)]
    pub(crate) act: ActArgs,
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
                "name the jobs, or select them with --selector, --queue, --status, --mine or --user-name",
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
