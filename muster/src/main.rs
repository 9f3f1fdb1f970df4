//! `muster`: the server binary.
//!
//! `muster all` is the usual process: webhook, controller and scheduler in one. Each can run alone; `muster
//! install` installs what they need on a Karmada control plane, and `muster simulate` simulates jobs in
//! virtual time. This crate only reads flags and connects the parts: it decides nothing.

mod args;
mod install;
mod serve;

use args::{Args, Command};
use clap::Parser;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    runtime::install_crypto();
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    tokio.block_on(run(args))
}

async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Install(install) => install::install(&args.connection, &install).await,
        Command::Uninstall => install::uninstall(&args.connection).await,
        Command::Simulate(simulate) => Ok(simulate.run(&mut std::io::stdout())?),
        Command::All(process) => serve::serve(&args.connection, serve::Parts::ALL, process).await,
        Command::Webhook(process) => {
            serve::serve(&args.connection, serve::Parts::WEBHOOK, process).await
        }
        Command::Controller(process) => {
            serve::serve(&args.connection, serve::Parts::CONTROLLER, process).await
        }
        Command::Scheduler(process) => {
            serve::serve(&args.connection, serve::Parts::SCHEDULER, process).await
        }
    }
}
