//! `muster check` and `kubectl muster check`: what keeps Muster from working on a control plane, and how to mend it.
//!
//! Each check reads, and changes nothing; the webhook's is a dry run. It returns findings, each with its fix. What
//! a check may not read, or cannot see from where it runs, is reported as unchecked: never as healthy.

mod control_plane;
mod karmada;
mod leader;
mod members;
mod report;
mod skew;
#[cfg(test)]
mod tests;
mod token;
mod webhook;

pub use control_plane::{INTERPRETERS, PODGROUPS, has_volcanos_podgroups};
pub use leader::is_fresh;
pub use report::{CheckFinding, CheckReport, NotChecked, Severity};
pub use token::{TokenLifetime, account_of_token};
pub use webhook::{WebhookReach, probe_webhook};

use jiff::Timestamp;
use kube::Client;
use runtime::client::CallError;

/// With whose account and from where the control plane is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckedBy {
    /// The account of Muster's processes, from where they run: its rights and connections are those that count.
    Server {
        /// How long the token of its kubeconfig is valid, if it expires.
        token: Option<TokenLifetime>,
    },
    /// A user, from anywhere: what only the server can tell is read from what it publishes.
    User,
}

/// A control plane could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A call failed other than by a lack of rights.
    #[error("cannot read {what}: {}", .source.message())]
    Call {
        /// What was to be read.
        what: &'static str,
        /// The failure.
        source: CallError,
    },
    /// A manifest of this program is wrong.
    #[error("a manifest of this program cannot be read: {0}")]
    Manifest(String),
}

impl CheckError {
    fn call(what: &'static str) -> impl Fn(CallError) -> Self {
        move |source| Self::Call { what, source }
    }

    /// Returns true if the account lacks the right to read it.
    fn is_forbidden(&self) -> bool {
        matches!(self, Self::Call { source, .. } if source.code() == Some(403))
    }
}

/// Runs all checks.
///
/// # Errors
/// Returns an error if the control plane does not answer.
pub async fn check(client: &Client, by: CheckedBy) -> Result<CheckReport, CheckError> {
    let mut report = before_install(client).await?;
    if let CheckedBy::Server { token } = by {
        let expires = token.and_then(|token| token::finding(token, Timestamp::now()));
        report.findings.extend(expires);
        let clock = skew::check(client, "the control plane").await;
        report.findings.extend(clock);
    } else {
        report.unchecked(
            "token",
            "the token with which Muster's processes connect is theirs",
            "`muster check` with their kubeconfig, or the metric muster_control_plane_token_expiry_timestamp_seconds",
        );
    }
    if report.findings.iter().any(|f| f.check == karmada::KARMADA) {
        return Ok(report);
    }
    control_plane::installed(client, &mut report).await?;
    webhook::check(client, by, &mut report).await?;
    leader::check(client, &mut report).await?;
    karmada::services(client, &mut report).await?;
    members::check(client, by, &mut report).await?;
    Ok(report)
}

/// Runs the checks of what has to be there before an installation.
///
/// # Errors
/// Returns an error if the control plane does not answer.
pub async fn before_install(client: &Client) -> Result<CheckReport, CheckError> {
    let mut report = CheckReport::default();
    if karmada::apis(client, &mut report).await? {
        karmada::version(client, &mut report).await?;
        control_plane::before_install(client, &mut report).await?;
    }
    Ok(report)
}
