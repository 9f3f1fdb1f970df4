//! The arguments of `wait`.

use super::Span;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct WaitCommand {
    /// The job: name of the workload, KIND/NAME, or name of its PodGroup
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// What is waited for
    #[arg(long = "for", value_enum, value_name = "STATE", default_value_t)]
    pub(crate) goal: WaitGoal,
    /// For how long (10m, 2h); else until it is so
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Span>,
}

/// What is waited for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitGoal {
    /// Enough of its pods run
    Running,
    /// It has ended; the exit code is that of the job
    #[default]
    Finished,
}
