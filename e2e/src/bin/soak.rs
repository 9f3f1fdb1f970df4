//! Runs soak stories, those that ran longest ago first, and keeps their ledger. It fails if a story fails, if one is
//! cut for the second time in a row, or if the tests' program does not say how all of them ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use clap::Parser;
use e2e::harness::record::{self, RecordLine};
use e2e::harness::soak::{SoakLedger, SoakLine, SoakResult, results};

/// Stories that a run with a limit leaves out, by the beginning of their names: an hour at rest, release builds of
/// the image, and the builds of Prometheus and of the collector.
const LONG: [&str; 5] = [
    "soak::soak_of_an_hour_at_rest",
    "image::make_image",
    "alerts::",
    "prometheus::",
    "traces::",
];

/// The time of a run without a limit: a day.
const NO_LIMIT: u64 = 86_400;

/// The time in which the plane and the last story end after the run's time is over.
const GRACE_SECONDS: u64 = 60;

/// Run soak stories, the oldest first.
#[derive(Debug, Parser)]
struct SoakArgs {
    /// The time of the run; without it, all stories run.
    #[arg(long)]
    seconds: Option<u64>,
    /// The ledger of the repository.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/soak.ledger"))]
    ledger: PathBuf,
    /// Writes the results to the ledger of the repository, to be committed.
    #[arg(long)]
    write: bool,
    /// A ledger of this machine: it is read too, and always written.
    #[arg(long)]
    local: Option<PathBuf>,
    /// The record that the run writes.
    #[arg(long)]
    record: PathBuf,
    /// Runs these stories and no others.
    stories: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = SoakArgs::parse();
    let all = listed()?;
    let mut ledger = read(&args.ledger)?.unwrap_or_default();
    if let Some(local) = args.local.as_deref() {
        ledger.merge(&read(local)?.unwrap_or_default());
    }
    ledger.retain(&all);
    let seconds = args.seconds.unwrap_or(NO_LIMIT);
    let chosen = chosen(&args, &all, &ledger)?;
    if chosen.is_empty() {
        println!("no soak story fits into {seconds} s");
        return Ok(ExitCode::SUCCESS);
    }
    println!("soak stories, the oldest first: {}", chosen.join(" "));
    // The record of an earlier run must not count if this run writes none.
    match std::fs::remove_file(&args.record) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("remove {}", args.record.display()));
        }
        _ => {}
    }
    let (output, ended_well) = run(&chosen, seconds)?;
    let names: Vec<&str> = chosen.iter().map(String::as_str).collect();
    let ends = results(&names, &output)?;
    note(&args, &mut ledger, &ends)?;
    Ok(verdict(&ledger, &names, &ends, ended_well))
}

/// Returns the stories of this run.
fn chosen(
    args: &SoakArgs,
    all: &BTreeSet<String>,
    ledger: &SoakLedger,
) -> anyhow::Result<Vec<String>> {
    for story in &args.stories {
        ensure!(all.contains(story), "there is no soak story {story}");
    }
    if !args.stories.is_empty() {
        return Ok(args.stories.clone());
    }
    let Some(seconds) = args.seconds else {
        return Ok(all.iter().cloned().collect());
    };
    let is_long = |story: &&String| LONG.iter().any(|long| story.starts_with(long));
    let short = all.iter().filter(|story| !is_long(story)).cloned();
    let short: BTreeSet<String> = short.collect();
    let choice = ledger.choose(&short, seconds);
    for story in &choice.too_long {
        println!("{story} takes more than {seconds} s: only `make soak` runs it");
    }
    let chosen = choice.chosen.into_iter();
    Ok(chosen.map(str::to_owned).collect())
}

fn verdict(
    ledger: &SoakLedger,
    chosen: &[&str],
    ends: &BTreeMap<String, SoakResult>,
    ended_well: bool,
) -> ExitCode {
    let ended = |result| ends.iter().filter(move |(_, end)| **end == result);
    let names = |result| -> Vec<&str> { ended(result).map(|(story, _)| story.as_str()).collect() };
    let late: Vec<&&str> = chosen
        .iter()
        .filter(|story| !ends.contains_key(**story))
        .collect();
    if !late.is_empty() {
        println!("no time was left for {late:?}: they are still the oldest");
    }
    let (failed, cut) = (names(SoakResult::Failed), names(SoakResult::Cut));
    if !cut.is_empty() {
        println!("the time was over while these ran: {cut:?}. The next run is theirs alone");
    }
    let twice: Vec<&str> = ledger
        .cut_twice()
        .into_iter()
        .filter(|story| cut.contains(story))
        .collect();
    if !twice.is_empty() {
        println!("RED: nobody knows how these end, they were cut twice: {twice:?}");
    }
    if !failed.is_empty() {
        println!("RED: these failed: {failed:?}");
    }
    let explained = ended_well || !failed.is_empty() || !cut.is_empty() || !late.is_empty();
    if !explained {
        println!("RED: the tests' program failed, and no story did");
    }
    match failed.is_empty() && twice.is_empty() && explained {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Adds the results to the ledgers.
fn note(
    args: &SoakArgs,
    ledger: &mut SoakLedger,
    ends: &BTreeMap<String, SoakResult>,
) -> anyhow::Result<()> {
    let took = took(&args.record);
    let commit = commit()?;
    let now = jiff::Timestamp::now().round(jiff::Unit::Second)?;
    for (story, &result) in ends {
        let line = SoakLine {
            story: story.clone(),
            commit: commit.clone(),
            date: now.to_string(),
            result,
            seconds: took.get(story).copied().unwrap_or(0).div_ceil(1_000),
        };
        println!("LEDGER {line}");
        ledger.add(line);
    }
    let own = args.write.then_some(&args.ledger);
    for path in own.into_iter().chain(&args.local) {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, ledger.to_string())
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Returns how many milliseconds each story took, all its parts together, as far as it was recorded.
fn took(path: &Path) -> BTreeMap<String, u64> {
    let mut took = BTreeMap::new();
    for line in record::read(path).unwrap_or_default() {
        if let RecordLine::Story { story, took_ms, .. } = line {
            *took.entry(story).or_default() += took_ms;
        }
    }
    took
}

fn read(path: &Path) -> anyhow::Result<Option<SoakLedger>> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        text => {
            let text = text.with_context(|| format!("read {}", path.display()))?;
            let ledger = text.parse();
            ledger.map(Some).with_context(|| path.display().to_string())
        }
    }
}

/// Returns the short name of the commit, with `+` behind it if the working tree differs.
fn commit() -> anyhow::Result<String> {
    let git = |args: &[&str]| -> anyhow::Result<String> {
        let dir = env!("CARGO_MANIFEST_DIR");
        let output = Command::new("git").args(args).current_dir(dir).output()?;
        ensure!(output.status.success(), "git {args:?}: {}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    };
    let commit = git(&["rev-parse", "--short=8", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(format!(
        "{}{}",
        commit.trim(),
        if changed { "+" } else { "" }
    ))
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["test", "--locked", "--workspace", "--test", "e2e", "--"])
        .arg("--ignored")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    cargo
}

/// Returns the names of all soak stories.
fn listed() -> anyhow::Result<BTreeSet<String>> {
    let output = cargo().arg("--list").stderr(Stdio::inherit()).output()?;
    ensure!(
        output.status.success(),
        "list the stories: {}",
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    ensure!(!names.is_empty(), "the tests' program has no soak stories");
    Ok(names)
}

/// Runs stories one after another, shows what they print and returns it, and whether the program succeeded.
fn run(stories: &[String], seconds: u64) -> anyhow::Result<(String, bool)> {
    let tests = cargo();
    let mut timeout = Command::new("timeout");
    timeout
        .arg("--kill-after=10s")
        .arg((seconds + GRACE_SECONDS).to_string())
        .arg(tests.get_program())
        .args(tests.get_args())
        .args(["--exact", "--test-threads=1"])
        .args(stories)
        .current_dir(tests.get_current_dir().unwrap_or(Path::new(".")))
        .env("E2E_DEADLINE_SECONDS", seconds.to_string())
        .stdout(Stdio::piped());
    let mut child = timeout.spawn().context("run the tests' program")?;
    let stdout = child.stdout.take().context("it has no output")?;
    let mut output = String::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        output.push_str(&line);
        output.push('\n');
    }
    Ok((output, child.wait()?.success()))
}
