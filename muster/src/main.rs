//! `muster`: the server binary.
//!
//! `muster all` is the usual process: webhook, controller and scheduler in one. Each can run alone; `muster
//! install` installs what they need on a Karmada control plane, and `muster simulate` simulates jobs in
//! virtual time. This crate only reads flags and connects the parts: it decides nothing.

mod args;
mod check;
mod install;
mod leases;
mod serve;
mod token;
mod uninstall;
mod webhook_reach;

use args::{MusterArgs, MusterCommand};
use clap::Parser;
use mimalloc::MiMalloc;
use std::process::ExitCode;

/// musl's takes 65 % more memory; glibc's takes tens of milliseconds at once after many jobs joined
/// (`docs/decisions/allocator.md`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let args = MusterArgs::parse();
    match started(args) {
        Ok(code) => code,
        Err(error) => {
            // Not its debug form, which has a backtrace if RUST_BACKTRACE asks for those of panics.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn started(args: MusterArgs) -> anyhow::Result<ExitCode> {
    runtime::install_crypto();
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    tokio.block_on(run(args))
}

async fn run(args: MusterArgs) -> anyhow::Result<ExitCode> {
    let done = match args.command {
        MusterCommand::Check(check) => return Ok(check::check(&args.connection, &check).await),
        MusterCommand::Install(install) => install::install(&args.connection, &install).await,
        MusterCommand::Uninstall(options) => uninstall::uninstall(&args.connection, &options).await,
        MusterCommand::Simulate(simulate) => Ok(simulate.run(&mut std::io::stdout())?),
        MusterCommand::All(process) => {
            serve::serve(&args.connection, serve::ProcessParts::ALL, process).await
        }
        MusterCommand::Webhook(process) => {
            serve::serve(&args.connection, serve::ProcessParts::WEBHOOK, process).await
        }
        MusterCommand::Controller(process) => {
            serve::serve(&args.connection, serve::ProcessParts::CONTROLLER, process).await
        }
        MusterCommand::Scheduler(process) => {
            serve::serve(&args.connection, serve::ProcessParts::SCHEDULER, process).await
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}
