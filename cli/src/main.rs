//! `kubectl muster`: queues and jobs for people.
//!
//! It reads what Muster publishes on the Karmada control plane (Queues, CapacityPolicies, PodGroups, its
//! Lease) with the rights of its user. It prints tables for people, and the server's objects with `-o json`
//! and `-o yaml` for programs. It decides nothing, and the only number that it computes itself is how often a
//! shape fits in a pool, so that it never disagrees with `kubectl get cap`. It acts on jobs and queues by
//! labels and fields that kubectl can write too.
//!
//! Exit codes: 0 done, 1 failed or only in part done, 2 wrong usage; for `check`, 2 says that the server did not
//! answer.

mod acts;
mod age;
mod args;
mod check;
mod clear_nodes;
mod connect;
#[cfg(test)]
mod documented;
mod drain;
mod explain;
mod jobs;
mod nodes;
mod output;
mod pools;
mod queue;
mod version;
mod watch;

use acts::JobAct;
use anyhow::Result;
use args::{
    Cli, CliCommand, KubectlConnection, NodesAct, NodesCommand, PoolsCommand, QueueCommand,
};
use clap::{CommandFactory, Parser};
use crds::capacity_policy::CapacityPolicy;
use crds::gpu_pool::GpuPool;
use std::process::ExitCode;

/// Wrong usage, as clap exits too.
const USAGE: u8 = 2;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(code) => code,
        Err(error) if output::is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<clap::Error>() {
            Some(usage) => {
                // Nothing is left to say if standard error is closed.
                let _ = usage.print();
                ExitCode::from(USAGE)
            }
            None => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

async fn run(cli: Cli) -> Result<ExitCode> {
    let connection = &cli.connection;
    let client = || connect::connect(connection);
    let text = match cli.command {
        CliCommand::Queue(command) if command.is_watch() => {
            watched(&CliCommand::Queue(command), connection).await?
        }
        CliCommand::Queue(command) => queue::run(&command, &client().await?).await?,
        CliCommand::Jobs(command) if command.watch => {
            jobs::run(&command, &connect::connect_to_watch(connection).await?).await?
        }
        CliCommand::Jobs(command) => jobs::run(&command, &client().await?).await?,
        CliCommand::Explain { job, output } => {
            explain::run(&job, &output, &client().await?).await?
        }
        CliCommand::Cancel(jobs) => return acts::run(JobAct::Cancel, jobs, connection).await,
        CliCommand::Hold(jobs) => return acts::run(JobAct::Hold, jobs, connection).await,
        CliCommand::Release(jobs) => return acts::run(JobAct::Release, jobs, connection).await,
        CliCommand::Priority(command) => {
            let (jobs, class) = command.split();
            return acts::run(JobAct::Priority(class), jobs, connection).await;
        }
        CliCommand::Move(command) => {
            let (jobs, queue) = command.split();
            return acts::run(JobAct::Move(queue), jobs, connection).await;
        }
        command @ (CliCommand::Pools(PoolsCommand { watch: true, .. })
        | CliCommand::Nodes(NodesCommand {
            act: None,
            watch: true,
            ..
        })) => watched(&command, connection).await?,
        CliCommand::Pools(command) => pools::run(&command, &client().await?).await?,
        CliCommand::Nodes(NodesCommand {
            act: Some(NodesAct::Clear(args)),
            ..
        }) => return clear_nodes::run(&args, connection).await,
        CliCommand::Nodes(command) => {
            nodes::run(&command.output, command.no_headers, &client().await?).await?
        }
        CliCommand::Drain(command) => return drain::drain(&command, connection).await,
        CliCommand::Undrain(command) => return drain::undrain(&command, connection).await,
        CliCommand::Check { output } => return check::run(&output, connection).await,
        CliCommand::Version(command) => version::run(&command, connection).await?,
        CliCommand::Completion { shell } => completion(shell)?,
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a command with `--watch`, which ends only with an error.
async fn watched(command: &CliCommand, connection: &KubectlConnection) -> Result<String> {
    let client = connect::connect_to_watch(connection).await?;
    let print = &mut output::print;
    match command {
        CliCommand::Queue(
            command @ QueueCommand::List {
                output, no_headers, ..
            },
        ) => {
            watch::check(output.format)?;
            let api = connect::objects::<CapacityPolicy>(&client);
            let list = async || queue::run(&command.with_header(), &client).await;
            watch::run(&api, list, 1, !no_headers, print).await?;
        }
        CliCommand::Pools(command) => {
            watch::check(command.output.format)?;
            let api = connect::objects::<GpuPool>(&client);
            let whole = PoolsCommand {
                no_headers: false,
                ..*command
            };
            let list = async || pools::run(&whole, &client).await;
            watch::run(&api, list, 1, !command.no_headers, print).await?;
        }
        CliCommand::Nodes(command) => {
            watch::check(command.output.format)?;
            let api = connect::objects::<GpuPool>(&client);
            let list = async || nodes::run(&command.output, false, &client).await;
            // A node has the name of its cluster before its own.
            watch::run(&api, list, 2, !command.no_headers, print).await?;
        }
        _ => {}
    }
    Ok(String::new())
}

fn completion(shell: clap_complete::Shell) -> Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), args::PROGRAM, &mut script);
    Ok(String::from_utf8(script)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::completion;
    use clap_complete::Shell;

    #[test]
    fn each_shell_completes_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completion(shell).unwrap();
            for word in ["release", "resume", "dry-run", "fits"] {
                assert!(script.contains(word), "{shell} {word}");
            }
        }
    }
}
