//! `kubectl muster`: queues and jobs for people.
//!
//! It reads what Muster publishes on the Karmada control plane (Queues, CapacityPolicies, PodGroups, its
//! Lease) with the rights of its user. It prints tables for people, and the server's objects with `-o json`
//! and `-o yaml` for programs. It decides nothing and computes no number that the server does not show, so
//! that it never disagrees with `kubectl get cap`. It acts on jobs and queues by labels and fields that
//! kubectl can write too.
//!
//! Exit codes: 0 done, 1 failed or only in part done, 2 wrong usage.

mod age;
mod args;
mod connect;
mod explain;
mod jobs;
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
        Ok(code) => code,
        Err(error) if output::is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<ExitCode> {
    let connection = &cli.connection;
    let client = || connect::connect(connection);
    let text = match cli.command {
        CliCommand::Queue(command) => queue::run(&command, &client().await?).await?,
        CliCommand::Jobs(command) if command.watch => {
            jobs::run(&command, &connect::connect_to_watch(connection).await?).await?
        }
        CliCommand::Jobs(command) => jobs::run(&command, &client().await?).await?,
        CliCommand::Explain { job, output } => {
            explain::run(&job, &output, &client().await?).await?
        }
        CliCommand::Nodes { output, no_headers } => {
            nodes::run(&output, no_headers, &client().await?).await?
        }
        CliCommand::Version(command) => version::run(&command, connection).await?,
        CliCommand::Completion { shell } => completion(shell)?,
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn completion(shell: clap_complete::Shell) -> Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), args::PROGRAM, &mut script);
    Ok(String::from_utf8(script)?)
}
