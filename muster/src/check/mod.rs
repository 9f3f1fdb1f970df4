//! `muster check`: what keeps Muster from working on a control plane, and how to mend it.
//!
//! Each check returns findings and changes nothing. Exit codes: 0 if nothing blocks, 1 if a finding blocks,
//! 2 if the control plane could not be asked.

mod control_plane;
mod members;
mod skew;
#[cfg(test)]
mod tests;
mod token;

use crate::args::{CheckArgs, CheckOutput, ConnectionArgs};
use crate::install;
use anyhow::bail;
use kube::Client;
use serde::Serialize;
use std::process::ExitCode;

/// What a finding means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Severity {
    /// Muster does not work, or not for a part of the fleet.
    Blocks,
    /// Muster works, and something is lost.
    Warns,
}

/// One finding: what was found, why it matters, and what mends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CheckFinding {
    pub(crate) severity: Severity,
    /// The name of the check, for scripts.
    pub(crate) check: &'static str,
    pub(crate) found: String,
    pub(crate) why: String,
    pub(crate) fix: String,
}

impl CheckFinding {
    fn blocks(check: &'static str, found: impl Into<String>, why: &str, fix: &str) -> Self {
        Self {
            severity: Severity::Blocks,
            check,
            found: found.into(),
            why: why.to_owned(),
            fix: fix.to_owned(),
        }
    }

    fn warns(check: &'static str, found: impl Into<String>, why: &str, fix: &str) -> Self {
        Self {
            severity: Severity::Warns,
            ..Self::blocks(check, found, why, fix)
        }
    }
}

/// Runs all checks and prints the findings.
pub(crate) async fn check(connection: &ConnectionArgs, options: &CheckArgs) -> ExitCode {
    match findings(connection).await {
        Ok(findings) => {
            print(&findings, options.output);
            match findings.iter().any(|f| f.severity == Severity::Blocks) {
                true => ExitCode::from(1),
                false => ExitCode::SUCCESS,
            }
        }
        Err(error) => {
            eprintln!("error: cannot check: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn findings(connection: &ConnectionArgs) -> anyhow::Result<Vec<CheckFinding>> {
    let client = install::connect(connection).await?;
    let mut all = token::check(connection, jiff::Timestamp::now()).await;
    let of_plane = control_plane::before_install(&client).await?;
    let is_karmada = !of_plane.iter().any(|f| f.check == control_plane::KARMADA);
    all.extend(of_plane);
    all.extend(skew::check(&client, "the control plane").await);
    if is_karmada {
        all.extend(control_plane::installed(&client).await?);
        all.extend(members::check(&client).await?);
    }
    Ok(all)
}

/// Fails if a finding blocks an installation. Nothing was written by then.
pub(crate) async fn before_install(client: &Client) -> anyhow::Result<()> {
    let findings = control_plane::before_install(client).await?;
    let blocking = findings
        .into_iter()
        .filter(|f| f.severity == Severity::Blocks);
    let blocking: Vec<_> = blocking.collect();
    if blocking.is_empty() {
        return Ok(());
    }
    print(&blocking, CheckOutput::Text);
    bail!(
        "{} findings block the installation, so nothing was written; --skip-check installs in spite of them",
        blocking.len()
    )
}

fn print(findings: &[CheckFinding], output: CheckOutput) {
    match output {
        CheckOutput::Json => {
            let json = serde_json::json!({ "findings": findings });
            println!("{json:#}");
        }
        CheckOutput::Text if findings.is_empty() => println!("no findings"),
        CheckOutput::Text => findings.iter().for_each(|finding| {
            let severity = match finding.severity {
                Severity::Blocks => "BLOCKS",
                Severity::Warns => "warns",
            };
            println!(
                "{severity} {}: {}\n  why: {}\n  fix: {}",
                finding.check, finding.found, finding.why, finding.fix
            );
        }),
    }
}
