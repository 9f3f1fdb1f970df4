//! What can complete the command line.

use clap::ValueEnum;
use clap_complete::Shell;

/// What completes the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionTarget {
    /// kubectl, for `kubectl muster`
    Kubectl,
    /// bash, for `kubectl-muster`
    Bash,
    /// zsh, for `kubectl-muster`
    Zsh,
    /// fish, for `kubectl-muster`
    Fish,
    /// elvish, for `kubectl-muster`
    Elvish,
    /// PowerShell, for `kubectl-muster`
    #[value(name = "powershell")]
    PowerShell,
}

impl CompletionTarget {
    /// Returns the shell; `None` for kubectl.
    pub(crate) fn shell(self) -> Option<Shell> {
        Some(match self {
            Self::Kubectl => return None,
            Self::Bash => Shell::Bash,
            Self::Zsh => Shell::Zsh,
            Self::Fish => Shell::Fish,
            Self::Elvish => Shell::Elvish,
            Self::PowerShell => Shell::PowerShell,
        })
    }
}
