//! `kubectl muster`: queues and jobs for people.
//!
//! It reads what Muster publishes on the Karmada control plane (Queues, CapacityPolicies, PodGroups, its
//! Lease) with the rights of its user. It prints tables for people, and the server's objects with `-o json`
//! and `-o yaml` for programs. It decides nothing and computes no number that the server does not show, so
//! that it never disagrees with `kubectl get cap`.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage.

mod age;
mod args;
mod connect;
mod explain;
mod nodes;
mod output;
mod queue;
mod version;

use anyhow::Result;
use args::{Cli, CliCommand};
use clap::{CommandFactory, Parser};
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<()> {
    let text = match &cli.command {
        CliCommand::Queue(command) => {
            queue::run(command, &connect::connect(&cli.connection).await?).await?
        }
        CliCommand::Explain { job, output } => {
            explain::run(job, output, &connect::connect(&cli.connection).await?).await?
        }
        CliCommand::Nodes { output, no_headers } => {
            nodes::run(
                output,
                *no_headers,
                &connect::connect(&cli.connection).await?,
            )
            .await?
        }
        CliCommand::Version(command) => version::run(command, &cli.connection).await?,
        CliCommand::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), args::PROGRAM, &mut script);
            String::from_utf8(script)?
        }
    };
    output::print(&text)?;
    Ok(())
}
