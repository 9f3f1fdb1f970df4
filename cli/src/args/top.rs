//! The arguments of `top`.

use super::Span;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct TopCommand {
    /// Jobs of all namespaces
    #[arg(long, short = 'A')]
    pub(crate) all_namespaces: bool,
    /// Only my jobs
    #[arg(long)]
    pub(crate) mine: bool,
    /// The most jobs
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) jobs: usize,
    /// The time between two screens
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) every: Span,
    /// Print one screen and end
    #[arg(long)]
    pub(crate) once: bool,
}
