//! The ledger of the soak stories (`e2e/soak.ledger`): when each of them ran last, and how it ended. From it follows
//! which of them run next, the oldest first, and whether a run is red. The program `soak` runs them.
//!
//! Nothing here runs a story or reads a clock. A line says what happened in a run, and nothing else makes one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};

/// The lines that are kept of one story.
const LINES_OF_STORY: usize = 2;

/// The seconds that a story is expected to take which has never ended.
const UNKNOWN_SECONDS: u64 = 120;

/// How a soak story ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SoakResult {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// The run's time was over while it ran.
    Cut,
}

impl fmt::Display for SoakResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Cut => "cut",
        })
    }
}

impl FromStr for SoakResult {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "passed" => Ok(Self::Passed),
            "failed" => Ok(Self::Failed),
            "cut" => Ok(Self::Cut),
            _ => bail!("the result {text:?} is not passed, failed or cut"),
        }
    }
}

/// One line of the ledger: STORY COMMIT DATE RESULT SECONDS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoakLine {
    /// The test's name.
    pub story: String,
    /// The commit that was tested, with `+` behind it if the working tree had other changes.
    pub commit: String,
    /// When the run ended, in UTC: 2026-11-26T22:10:00Z. Texts of this form are in the order of time.
    pub date: String,
    /// How the story ended.
    pub result: SoakResult,
    /// How long it took, in seconds.
    pub seconds: u64,
}

impl fmt::Display for SoakLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            story,
            commit,
            date,
            result,
            seconds,
        } = self;
        write!(f, "{story} {commit} {date} {result} {seconds}")
    }
}

impl FromStr for SoakLine {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[story, commit, date, result, seconds] = &fields[..] else {
            bail!("{line:?} is not STORY COMMIT DATE RESULT SECONDS");
        };
        let _: jiff::Timestamp = date.parse().with_context(|| format!("the date {date:?}"))?;
        let seconds = seconds.parse();
        Ok(Self {
            story: story.to_owned(),
            commit: commit.to_owned(),
            date: date.to_owned(),
            result: result.parse()?,
            seconds: seconds.with_context(|| format!("{line:?}: the seconds"))?,
        })
    }
}

/// The last lines of each story.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SoakLedger {
    /// By story, the oldest line first.
    lines: BTreeMap<String, Vec<SoakLine>>,
}

impl FromStr for SoakLedger {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut ledger = Self::default();
        for line in text.lines() {
            if !line.trim().is_empty() && !line.starts_with('#') {
                ledger.add(line.parse()?);
            }
        }
        Ok(ledger)
    }
}

impl fmt::Display for SoakLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# The last two runs of each soak story: STORY COMMIT DATE RESULT SECONDS. `make soak` adds its own; commit them."
        )?;
        let mut lines = self.lines.values().flatten();
        lines.try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl SoakLedger {
    /// Adds a line. A line that is there already is not there twice.
    pub fn add(&mut self, line: SoakLine) {
        let lines = self.lines.entry(line.story.clone()).or_default();
        if lines.contains(&line) {
            return;
        }
        lines.push(line);
        lines.sort_by(|one, other| one.date.cmp(&other.date));
        let old = lines.len().saturating_sub(LINES_OF_STORY);
        lines.drain(..old);
    }

    /// Adds all lines of another ledger.
    pub fn merge(&mut self, other: &Self) {
        for line in other.lines.values().flatten() {
            self.add(line.clone());
        }
    }

    /// Drops stories that do not exist any more.
    pub fn retain(&mut self, stories: &BTreeSet<String>) {
        self.lines.retain(|story, _| stories.contains(story));
    }

    /// Returns the stories that were cut twice in a row: nobody knows how they end.
    pub fn cut_twice(&self) -> Vec<&str> {
        let twice = self.lines.iter().filter(|(_, lines)| {
            lines.len() == LINES_OF_STORY && lines.iter().all(|line| line.result == SoakResult::Cut)
        });
        twice.map(|(story, _)| story.as_str()).collect()
    }

    /// Returns when a story ended last; `None` if it never did. A cut is no end.
    fn ended(&self, story: &str) -> Option<&SoakLine> {
        let lines = self.lines.get(story)?;
        lines
            .iter()
            .rev()
            .find(|line| line.result != SoakResult::Cut)
    }

    fn was_cut(&self, story: &str) -> bool {
        let last = self.lines.get(story).and_then(|lines| lines.last());
        last.is_some_and(|line| line.result == SoakResult::Cut)
    }

    /// Chooses the stories of a run of `seconds`: those that ended longest ago or never, as many as should fit. A
    /// story that was cut has all the time to itself, so that a second cut means that it does not fit. A story that
    /// is known to take longer is left to runs without a limit.
    pub fn choose<'a>(&self, stories: &'a BTreeSet<String>, seconds: u64) -> SoakChoice<'a> {
        let expected = |story: &str| {
            self.ended(story)
                .map_or(UNKNOWN_SECONDS, |line| line.seconds)
        };
        let (fit, too_long): (Vec<&str>, Vec<&str>) = stories
            .iter()
            .map(String::as_str)
            .partition(|story| expected(story) <= seconds);
        let mut choice = SoakChoice {
            chosen: Vec::new(),
            too_long,
        };
        let mut oldest = fit;
        oldest.sort_by_key(|story| self.ended(story).map(|line| line.date.as_str()));
        let mut left = seconds;
        for story in oldest {
            let alone = self.was_cut(story);
            let takes = if alone { seconds } else { expected(story) };
            if takes > left {
                break;
            }
            left -= takes;
            choice.chosen.push(story);
        }
        choice
    }
}

/// The stories of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoakChoice<'a> {
    /// Those that run, the oldest first.
    pub chosen: Vec<&'a str>,
    /// Those that take longer than the run has time.
    pub too_long: Vec<&'a str>,
}

/// Returns how each of the `chosen` stories ended, by what the tests' program printed. A story for which no time was
/// left is not among them.
///
/// # Errors
/// Returns an error if the program did not come to its end, or ran other tests.
pub fn results(chosen: &[&str], output: &str) -> anyhow::Result<BTreeMap<String, SoakResult>> {
    let ended = output
        .lines()
        .find(|line| line.starts_with("test result: "));
    let ended = ended.context("the tests' program did not come to its end")?;
    let count = |what: &str| -> anyhow::Result<usize> {
        let mut parts = ended.split([';', '.']).filter_map(|part| {
            let number = part.trim().strip_suffix(what)?.trim();
            number.parse().ok()
        });
        parts
            .next()
            .with_context(|| format!("{ended:?} has no number of {what}"))
    };
    let (passed, failed) = (count("passed")?, count("failed")?);
    ensure!(
        passed + failed == chosen.len(),
        "{} stories were chosen, and {passed} passed and {failed} failed",
        chosen.len()
    );
    let mut results: BTreeMap<String, SoakResult> = BTreeMap::new();
    let mut listed = 0;
    for &story in chosen {
        let head = format!("---- {story} stdout ----\n");
        let Some((_, said)) = output.split_once(&head) else {
            results.insert(story.to_owned(), SoakResult::Passed);
            continue;
        };
        listed += 1;
        let said = said.split("\n---- ").next().unwrap_or_default();
        if said.contains("\nnot run: ") {
            continue;
        }
        let cut = said.contains("\nthe time of the run was over while it ran");
        let result = if cut {
            SoakResult::Cut
        } else {
            SoakResult::Failed
        };
        results.insert(story.to_owned(), result);
    }
    ensure!(
        listed == failed,
        "{failed} stories failed, and the reasons of {listed} were printed"
    );
    Ok(results)
}

#[cfg(test)]
mod tests;
