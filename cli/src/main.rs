//! `kubectl muster`: queues and jobs for people.
//!
//! It reads what Muster publishes on the Karmada control plane (Queues, CapacityPolicies, PodGroups, its
//! Lease) with the rights of its user. It prints tables for people, and the server's objects with `-o json`
//! and `-o yaml` for programs. It decides nothing, and the only number that it computes itself is how often a
//! shape fits in a pool, so that it never disagrees with `kubectl get cap`. What would happen or help
//! (`simulate`, `explain`) the controller's own functions say (`live`). It acts on jobs and queues by labels and
//! fields that kubectl can write too.
//!
//! Exit codes: 0 done, 1 failed or only in part done, 2 wrong usage; for `check`, 2 says that the server did not
//! answer; `wait` has those of the job, and 124 if the time is over.

mod acts;
mod age;
mod args;
mod check;
mod clear_nodes;
mod complete;
mod connect;
#[cfg(test)]
mod documented;
mod drain;
mod events;
mod explain;
mod jobs;
mod live;
mod logs;
mod nodes;
mod output;
mod pods;
mod pools;
mod queue;
mod run;
mod simulate;
mod top;
mod version;
mod wait;
mod watch;

use acts::JobAct;
use anyhow::Result;
use args::{
    Cli, CliCommand, CompletionTarget, KubectlConnection, NodesAct, NodesCommand, PoolsCommand,
    QueueCommand,
};
use clap::{CommandFactory, FromArgMatches};
use crds::capacity_policy::CapacityPolicy;
use crds::gpu_pool::GpuPool;
use std::process::ExitCode;

/// Wrong usage, as clap exits too.
const USAGE: u8 = 2;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = complete::asked().unwrap_or_else(parsed);
    match run(cli).await {
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

/// Returns the command line; wrong usage ends the program.
fn parsed() -> Cli {
    let matches = args::with_examples(Cli::command()).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

async fn run(cli: Cli) -> Result<ExitCode> {
    let connection = &cli.connection;
    let client = || connect::connect(connection);
    let text = match cli.command {
        command if command.watches() => watched(&command, connection).await?,
        CliCommand::Run(command) => return run::run(&command, connection).await,
        CliCommand::Queue(command) => queue::run(&command, &client().await?).await?,
        CliCommand::Jobs(command) => jobs::run(&command, &client().await?).await?,
        CliCommand::Explain { job, live, output } => {
            explain::run(&job, live, &output, connection).await?
        }
        CliCommand::Pods(command) => return pods::run(&command, &client().await?).await,
        CliCommand::Logs(command) => return logs::run(&command, connection).await,
        CliCommand::Events(command) => return events::run(&command, &client().await?).await,
        CliCommand::Wait(command) => return wait::run(&command, connection).await,
        CliCommand::Top(command) => {
            top::run(&command, connection).await?;
            return Ok(ExitCode::SUCCESS);
        }
        CliCommand::Simulate(command) => simulate::run(&command, connection).await?,
        CliCommand::Cancel(jobs) => return acts::run(JobAct::Cancel, jobs, connection).await,
        CliCommand::Hold(jobs) => return acts::run(JobAct::Hold, jobs, connection).await,
        CliCommand::Release(jobs) => return acts::run(JobAct::Release, jobs, connection).await,
        CliCommand::Resume(jobs) => return acts::run(JobAct::Resume, jobs, connection).await,
        CliCommand::Priority(command) => {
            let (jobs, class) = command.split();
            return acts::run(JobAct::Priority(class), jobs, connection).await;
        }
        CliCommand::Move(command) => {
            let (jobs, queue) = command.split();
            return acts::run(JobAct::Move(queue), jobs, connection).await;
        }
        CliCommand::Pools(command) => pools::run(&command, &client().await?).await?,
        CliCommand::Nodes(NodesCommand {
            act: Some(NodesAct::Clear(args)),
            ..
        }) => return clear_nodes::run(&args, connection).await,
        CliCommand::Nodes(command) => nodes::run(&command.list, &client().await?).await?,
        CliCommand::Drain(command) => return drain::drain(&command, connection).await,
        CliCommand::Undrain(command) => return drain::undrain(&command, connection).await,
        CliCommand::Check { output } => return check::run(&output, connection).await,
        CliCommand::Version(command) => version::run(&command, connection).await?,
        CliCommand::Completion { shell } => completion(shell)?,
        CliCommand::Complete { words } => complete::run(&words, connection).await?,
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a command with `--watch`, which ends only with an error.
async fn watched(command: &CliCommand, connection: &KubectlConnection) -> Result<String> {
    let client = connect::connect_to_watch(connection).await?;
    match command {
        // It follows its jobs one by one.
        CliCommand::Jobs(command) => return jobs::run(command, &client).await,
        CliCommand::Queue(QueueCommand::List {
            list,
            selector,
            mine,
        }) => {
            let whole = QueueCommand::List {
                list: list.with_header(),
                selector: selector.clone(),
                mine: *mine,
            };
            let api = match mine {
                true => queue::mine::api(&client),
                false => connect::objects::<CapacityPolicy>(&client),
            };
            watch::run(&api, async || queue::run(&whole, &client).await, 1, list).await?;
        }
        CliCommand::Pools(command) => {
            let whole = PoolsCommand {
                list: command.list.with_header(),
                ..*command
            };
            let api = connect::objects::<GpuPool>(&client);
            let rows = async || pools::run(&whole, &client).await;
            watch::run(&api, rows, 1, &command.list).await?;
        }
        CliCommand::Nodes(command) => {
            let whole = command.list.with_header();
            let api = connect::objects::<GpuPool>(&client);
            // A node has the name of its cluster before its own.
            let rows = async || nodes::run(&whole, &client).await;
            watch::run(&api, rows, 2, &command.list).await?;
        }
        _ => {}
    }
    Ok(String::new())
}

fn completion(target: CompletionTarget) -> Result<String> {
    let Some(shell) = target.shell() else {
        return Ok(complete::PROGRAM.to_owned());
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), args::PROGRAM, &mut script);
    Ok(String::from_utf8(script)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::completion;
    use crate::args::CompletionTarget;

    #[test]
    fn each_shell_completes_the_commands() {
        for shell in [
            CompletionTarget::Bash,
            CompletionTarget::Zsh,
            CompletionTarget::Fish,
        ] {
            let script = completion(shell).unwrap();
            for word in ["release", "resume", "dry-run", "fits"] {
                assert!(script.contains(word), "{shell:?} {word}");
            }
        }
    }
}
