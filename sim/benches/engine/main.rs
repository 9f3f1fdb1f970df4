//! `make bench-engine`: measures the cost and the quality of decisions and writes one JSON file.
//!
//! It runs the engine alone, without I/O or a control plane: events go in, decisions come out. Each
//! number is printed beside the goal of the project; rows whose trace is missing say so. Times
//! depend on the machine and its load: compare ratios within one run.

mod baselines;
mod calls;
mod fixture;
mod hard;
mod openb;
mod philly;
mod sheet;
mod steady;

use cap::Cap;
use mimalloc::MiMalloc;
use sheet::Sheet;
use std::path::PathBuf;

/// Counts allocated bytes, from which the bytes per job follow.
#[global_allocator]
static ALLOCATED: Cap<MiMalloc> = Cap::new(MiMalloc, usize::MAX);

/// The command line.
struct Arguments {
    out: Option<PathBuf>,
    traces: Option<PathBuf>,
    /// Runs only groups whose name begins with this.
    only: Option<String>,
    /// Of the calls, runs only cases whose name contains this.
    case: Option<String>,
    /// Runs a hundredth of the jobs, as a smoke test.
    quick: bool,
    /// Runs one cell of the steady case alone: jobs, queues, clusters.
    cell: Option<[usize; 3]>,
    /// Gives queues of that cell guarantees.
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
        case: None,
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
            "--case" => arguments.case = Some(value()?),
            "--quick" => arguments.quick = true,
            "--cell" => arguments.cell = Some(cell(&value()?)?),
            "--guarantees" => arguments.guarantees = true,
            // Cargo passes this flag to every benchmark.
            "--bench" => {}
            _ => {
                return Err(format!(
                    "{flag} is not known; --out FILE, --traces DIR, \
                     --only steady|hard|calls|philly|openb, \
                     --case TEXT, --cell JOBS,QUEUES,CLUSTERS, \
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
    if wanted("calls") {
        let case = arguments.case.as_deref().unwrap_or_default();
        calls::run(&mut sheet, arguments.quick, case);
    }
    let traces = arguments.traces.as_deref();
    if wanted("philly") {
        philly::run(&mut sheet, traces)?;
    }
    if wanted("openb") {
        openb::run(&mut sheet, traces, arguments.quick)?;
    }
    sheet.add_longest_call();
    println!("{}", sheet.table());
    if let Some(out) = &arguments.out {
        let written = std::fs::write(out, sheet.json()?);
        written.map_err(|error| format!("{}: {error}", out.display()))?;
        println!("written to {}", out.display());
    }
    Ok(())
}
