//! The flags that say what is printed, and whether anything is changed.

use clap::{Args, ValueEnum};

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

impl Format {
    /// Returns true for what people read.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
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
