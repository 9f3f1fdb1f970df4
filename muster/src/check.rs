//! `muster check`, and what `muster install` checks first. The crate `checks` has the checks.
//!
//! Exit codes: 0 if nothing blocks, 1 if a finding blocks, 2 if the control plane could not be asked.

use crate::args::{CheckArgs, CheckOutput, ConnectionArgs};
use crate::{install, token};
use anyhow::bail;
use checks::{CheckReport, CheckedBy, Severity};
use kube::Client;
use std::process::ExitCode;

/// Runs all checks and prints what they found.
pub(crate) async fn check(connection: &ConnectionArgs, options: &CheckArgs) -> ExitCode {
    match report(connection).await {
        Ok(report) => {
            match options.output {
                CheckOutput::Json => println!("{:#}", serde_json::json!(report)),
                CheckOutput::Text => print!("{}", report.text(true)),
            }
            match report.blocks() {
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

async fn report(connection: &ConnectionArgs) -> anyhow::Result<CheckReport> {
    let client = install::connect(connection).await?;
    let token = token::lifetime(connection).await;
    Ok(checks::check(&client, CheckedBy::Server { token }).await?)
}

/// Fails if a finding blocks an installation. Nothing was written by then.
pub(crate) async fn before_install(client: &Client) -> anyhow::Result<()> {
    let mut report = checks::before_install(client).await?;
    report
        .findings
        .retain(|finding| finding.severity == Severity::Blocks);
    if report.findings.is_empty() {
        return Ok(());
    }
    print!("{}", report.text(false));
    bail!(
        "{} findings block the installation, so nothing was written; --skip-check installs in spite of them",
        report.findings.len()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use runtime::testing::FakeApi;
    use serde_json::json;

    #[tokio::test]
    async fn a_blocked_installation_writes_nothing() {
        let api = FakeApi::new();
        let version = json!({"groupVersion": "apps/v1", "version": "v1"});
        let apps = json!({"name": "apps", "versions": [version], "preferredVersion": version});
        api.document(
            "/apis",
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [apps]}),
        );
        let error = super::before_install(&api.client()).await.unwrap_err();
        assert!(error.to_string().contains("nothing was written"), "{error}");
        assert!(api.requests().iter().all(|request| request.verb == "GET"));
    }
}
