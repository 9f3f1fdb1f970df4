//! `make bench-engine`: what a decision costs, and how good decisions are, as one JSON file.
//!
//! No I/O, no control plane: the engine alone, told events and asked for decisions. Each number
//! is printed beside the goal of the project; rows that need a trace which is not there say so.
//! Times are of this machine and this moment: compare ratios within one run.

mod baselines;
mod fixture;
mod hard;
mod openb;
mod philly;
mod sheet;
mod steady;

use cap::Cap;
use sheet::Sheet;
use std::alloc::System;
use std::path::PathBuf;

/// Counts what is allocated, for bytes per job.
#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

/// What is run.
struct Arguments {
    out: Option<PathBuf>,
    traces: Option<PathBuf>,
    /// Only groups whose name begins so.
    only: Option<String>,
    /// A hundredth of the jobs: to see that it works.
    quick: bool,
    /// One cell of the steady case alone: jobs, queues, clusters.
    cell: Option<[usize; 3]>,
    /// Whether queues of that cell are guaranteed something.
    guarantees: bool,
}

fn main() -> std::process::ExitCode {
    match arguments(std::env::args().skip(1)).and_then(run) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        out: None,
        traces: None,
        only: None,
        quick: false,
        cell: None,
        guarantees: false,
    };
    while let Some(flag) = given.next() {
        let mut value = || given.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--out" => arguments.out = Some(value()?.into()),
            "--traces" => arguments.traces = Some(value()?.into()),
            "--only" => arguments.only = Some(value()?),
            "--quick" => arguments.quick = true,
            "--cell" => arguments.cell = Some(cell(&value()?)?),
            "--guarantees" => arguments.guarantees = true,
            // Cargo says so to whatever it runs as a benchmark.
            "--bench" => {}
            _ => {
                return Err(format!(
                    "{flag} is not known; --out FILE, --traces DIR, \
                     --only steady|hard|philly|openb, --cell JOBS,QUEUES,CLUSTERS, \
                     --guarantees or --quick is needed"
                ));
            }
        }
    }
    Ok(arguments)
}

fn cell(text: &str) -> Result<[usize; 3], String> {
    let numbers: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
    let numbers = numbers.ok().and_then(|all| all.try_into().ok());
    numbers.ok_or(format!("--cell is three numbers, not {text}"))
}

fn run(arguments: Arguments) -> Result<(), String> {
    let mut sheet = Sheet::default();
    if let Some(cell) = arguments.cell {
        steady::add_cell(&mut sheet, cell, false, arguments.guarantees);
        return Ok(());
    }
    let wanted = |group: &str| {
        let only = arguments.only.as_deref();
        only.is_none_or(|only| group.starts_with(only))
    };
    if wanted("steady") {
        steady::run(&mut sheet, arguments.quick);
    }
    if wanted("hard") {
        hard::run(&mut sheet, arguments.quick);
    }
    let traces = arguments.traces.as_deref();
    if wanted("philly") {
        philly::run(&mut sheet, traces)?;
    }
    if wanted("openb") {
        openb::run(&mut sheet, traces, arguments.quick)?;
    }
    println!("{}", sheet.table());
    if let Some(out) = &arguments.out {
        let written = std::fs::write(out, sheet.json()?);
        written.map_err(|error| format!("{}: {error}", out.display()))?;
        println!("written to {}", out.display());
    }
    Ok(())
}
