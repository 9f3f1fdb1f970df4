//! `check`: what keeps Muster from working, as a user sees it. The crate `checks` has the checks.

use crate::args::{Format, KubectlConnection, OutputArgs};
use crate::{connect, output};
use anyhow::Result;
use checks::{CheckReport, CheckedBy};
use std::process::ExitCode;

/// Exit code if the control plane could not be asked.
const UNASKED: u8 = 2;

/// Runs all checks and prints what they found. Exit codes are those of `muster check`.
pub(crate) async fn run(output: &OutputArgs, connection: &KubectlConnection) -> Result<ExitCode> {
    let asked = async {
        let client = connect::connect(connection).await?;
        Ok::<_, anyhow::Error>(checks::check(&client, CheckedBy::User).await?)
    };
    match asked.await {
        Ok(report) => {
            output::print(&render(&report, output.format)?)?;
            Ok(ExitCode::from(u8::from(report.blocks())))
        }
        Err(error) => {
            eprintln!("error: cannot check: {error:#}");
            Ok(ExitCode::from(UNASKED))
        }
    }
}

fn render(report: &CheckReport, format: Format) -> Result<String> {
    Ok(match format {
        Format::Json | Format::Yaml => output::machine(report, format)?,
        // Names of checks, for scripts.
        Format::Name => {
            let names = report.findings.iter().map(|found| found.check);
            names.map(|name| name.to_owned() + "\n").collect()
        }
        Format::Table | Format::Wide => report.text(true),
    })
}
