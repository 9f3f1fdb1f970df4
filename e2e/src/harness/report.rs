//! The report of a run of the end-to-end tests: the slowest stories, the failures, and every wait
//! that took much longer than on an idle machine.
//!
//! A wait ends when its condition is met, within a timeout of minutes. So a single test cannot
//! distinguish an admission that takes 1 s from one that takes 100 s. The record of the whole run
//! can: each wait is compared with its duration on an idle machine ([`Idle`]), and if the total
//! excess is too large, the run fails although each story passed.
//!
//! A machine that had much else to do looks the same as a program that became slow. So the slowest
//! stories are repeated with little beside them ([`RunReport::slowest_stories`]), and their waits of the second
//! time count ([`with_repeats`]): what is slow is slow again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::percentile::percentile;
use super::record::{RecordLine, StoryEnd, milliseconds};

/// The least factor over its idle time from which a wait is reported.
const FACTOR: f64 = 5.0;

/// The largest such factor: a machine that is slower than that excuses nothing more.
const LARGEST_FACTOR: f64 = 10.0;

/// The factor over the slowdown of the whole run, so that a slow machine does not fail a run: the median
/// wait of a run took 1.5 to 2 times its idle time on machines that differ by a half in speed.
const OVER_MEDIAN: f64 = 3.0;

/// The resolution of waits: shorter waits are equal, since conditions are checked five times a
/// second, and six stories share two cores.
const GRAIN: Duration = Duration::from_secs(1);

/// The expected duration of a wait that is not in the table.
const UNKNOWN: Duration = Duration::from_secs(3);

/// The total time that all reported waits may take beyond the factor times their idle time. A
/// single wait that needs most of its timeout of three minutes exceeds it.
const ALLOWED: Duration = Duration::from_secs(120);

/// The number of characters shown of a failure; the story itself printed all of it.
const FAILURE: usize = 500;

/// The number of slowest stories shown.
const SLOWEST: usize = 10;

/// The duration of each wait on an idle machine, in milliseconds, by story and by condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Idle(BTreeMap<String, BTreeMap<String, u64>>);

impl Idle {
    /// Parses the table.
    ///
    /// # Errors
    /// Returns an error if the text is not a table of this form.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let table = serde_json::from_str(text).context("the table of idle times")?;
        Ok(Self(table))
    }

    /// Reads the table from a file; a missing file is an empty table.
    ///
    /// # Errors
    /// Returns an error if the file is not a table of this form.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
        }
    }

    /// Updates the table with the waits of a run. Of two durations it keeps the shorter one, which
    /// the machine disturbed less.
    pub fn learn(&mut self, lines: &[RecordLine]) {
        for (key, took) in longest(lines) {
            let story = self.0.entry(key.0.to_owned()).or_default();
            let idle = story.entry(key.1.to_owned()).or_insert(took);
            *idle = took.min(*idle);
        }
    }

    /// Returns the table as JSON, in a stable order.
    ///
    /// # Errors
    /// Never for a table that was read or learnt.
    pub fn text(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(&self.0)? + "\n")
    }

    fn of(&self, story: &str, what: &str) -> Duration {
        self.known(story, what).unwrap_or(UNKNOWN)
    }

    fn known(&self, story: &str, what: &str) -> Option<Duration> {
        let idle = self.0.get(story)?.get(what)?;
        Some(Duration::from_millis(*idle))
    }

    /// Returns the factor over its idle time from which a wait of this run is reported.
    fn factor(&self, lines: &[RecordLine]) -> f64 {
        let slowdown = |line: &RecordLine| match line {
            RecordLine::Wait {
                story,
                what,
                took_ms,
                ..
            } => {
                let took = Duration::from_millis(*took_ms);
                let idle = self.known(story, what)?.max(GRAIN);
                (took > GRAIN).then(|| took.as_secs_f64() / idle.as_secs_f64())
            }
            RecordLine::Story { .. } => None,
        };
        let mut slowdowns: Vec<f64> = lines.iter().filter_map(slowdown).collect();
        slowdowns.sort_by(f64::total_cmp);
        let median = percentile(&slowdowns, 50).unwrap_or(1.0);
        (OVER_MEDIAN * median).clamp(FACTOR, LARGEST_FACTOR)
    }
}

/// Returns the longest successful wait, by story and by condition.
fn longest(lines: &[RecordLine]) -> BTreeMap<(&str, &str), u64> {
    let mut longest = BTreeMap::new();
    for line in lines {
        if let RecordLine::Wait {
            story,
            what,
            took_ms,
            met: true,
        } = line
        {
            let entry = longest.entry((story.as_str(), what.as_str()));
            let longest = entry.or_insert(0);
            *longest = (*took_ms).max(*longest);
        }
    }
    longest
}

/// A wait that took much longer than on an idle machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slow {
    story: String,
    what: String,
    took: Duration,
    idle: Duration,
    /// The time beyond its allowance.
    excess: Duration,
}

/// A story that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Story {
    name: String,
    turn: Duration,
    took: Duration,
    end: StoryEnd,
}

/// The results of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunReport {
    stories: Vec<Story>,
    waits: usize,
    /// The factor over its idle time from which a wait is reported.
    factor: f64,
    slow: Vec<Slow>,
}

impl RunReport {
    /// Reads the record of a run.
    pub fn of(lines: &[RecordLine], idle: &Idle) -> Self {
        let mut report = Self {
            factor: idle.factor(lines),
            ..Self::default()
        };
        for line in lines {
            report.take(line, idle);
        }
        report
            .stories
            .sort_by_key(|story| std::cmp::Reverse(story.took));
        report
            .slow
            .sort_by_key(|slow| std::cmp::Reverse(slow.excess));
        report
    }

    fn take(&mut self, line: &RecordLine, idle: &Idle) {
        match line {
            RecordLine::Story {
                story,
                turn_ms,
                took_ms,
                end,
            } => self.stories.push(Story {
                name: story.clone(),
                turn: Duration::from_millis(*turn_ms),
                took: Duration::from_millis(*took_ms),
                end: end.clone(),
            }),
            RecordLine::Wait {
                story,
                what,
                took_ms,
                ..
            } => {
                self.waits += 1;
                let took = Duration::from_millis(*took_ms);
                let idle = idle.of(story, what);
                let allowed = idle.max(GRAIN).mul_f64(self.factor);
                if let Some(excess) = took.checked_sub(allowed).filter(|time| !time.is_zero()) {
                    self.slow.push(Slow {
                        story: story.clone(),
                        what: what.clone(),
                        took,
                        idle,
                        excess,
                    });
                }
            }
        }
    }

    fn excess(&self) -> Duration {
        self.slow.iter().map(|slow| slow.excess).sum()
    }

    /// Returns the fewest stories without whose slow waits the others keep within half of what is allowed; none if the
    /// run passes, or fails for another reason than slow waits.
    pub fn slowest_stories(&self) -> Vec<&str> {
        if self.unfinished_verdict().is_some() || self.excess() <= ALLOWED {
            return Vec::new();
        }
        let mut by_story: BTreeMap<&str, Duration> = BTreeMap::new();
        for slow in &self.slow {
            *by_story.entry(&slow.story).or_default() += slow.excess;
        }
        let mut by_story: Vec<(&str, Duration)> = by_story.into_iter().collect();
        by_story.sort_by_key(|(_, excess)| std::cmp::Reverse(*excess));
        let mut left = self.excess();
        let is_needed = |(_, excess): &(&str, Duration)| {
            let needed = left > ALLOWED / 2;
            left = left.saturating_sub(*excess);
            needed
        };
        let slowest = by_story.into_iter().take_while(is_needed);
        slowest.map(|(story, _)| story).collect()
    }

    fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stories.iter().filter_map(|story| match &story.end {
            StoryEnd::Failed(why) => Some((story.name.as_str(), why.as_str())),
            StoryEnd::Passed | StoryEnd::Cut | StoryEnd::LeftOut(_) => None,
        })
    }

    fn left_out(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stories.iter().filter_map(|story| match &story.end {
            StoryEnd::LeftOut(why) => Some((story.name.as_str(), why.as_str())),
            StoryEnd::Passed | StoryEnd::Cut | StoryEnd::Failed(_) => None,
        })
    }

    fn cut(&self) -> impl Iterator<Item = &str> {
        let cut = self
            .stories
            .iter()
            .filter(|story| story.end == StoryEnd::Cut);
        cut.map(|story| story.name.as_str())
    }

    /// Returns why the run fails by its stories alone; `None` if no story failed.
    pub fn stories_verdict(&self) -> Option<String> {
        if self.stories.is_empty() {
            return Some("no story was run".to_owned());
        }
        let failed = self.failures().count();
        (failed > 0).then(|| format!("{failed} stories failed"))
    }

    /// Returns why the run fails by stories that failed or were cut off; `None` otherwise.
    fn unfinished_verdict(&self) -> Option<String> {
        let cut = || "the time of the run was over while stories ran".to_owned();
        let was_cut = || self.cut().next().is_some();
        self.stories_verdict().or_else(|| was_cut().then(cut))
    }

    /// Returns why the run fails; `None` if it passes.
    pub fn verdict(&self) -> Option<String> {
        if let Some(verdict) = self.unfinished_verdict() {
            return Some(verdict);
        }
        (self.excess() > ALLOWED).then(|| {
            format!(
                "waits took {:.0} s longer than {:.1} times their idle time, and {} s are \
                 allowed: something is slow that was not, or the machine had much else to do",
                self.excess().as_secs_f64(),
                self.factor,
                ALLOWED.as_secs()
            )
        })
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.stories.len();
        writeln!(out, "{count} stories, of which these took longest:")?;
        writeln!(out, "{:>8} {:>8}  STORY", "TOOK", "TURN")?;
        for story in self.stories.iter().take(SLOWEST) {
            let (took, turn) = (story.took.as_secs_f64(), story.turn.as_secs_f64());
            writeln!(out, "{took:>6.1} s {turn:>6.1} s  {}", story.name)?;
        }
        writeln!(
            out,
            "{} waits, of which {} took more than {:.1} times what they take on an idle \
             machine, {:.1} s beyond that together ({} s are allowed)",
            self.waits,
            self.slow.len(),
            self.factor,
            self.excess().as_secs_f64(),
            ALLOWED.as_secs()
        )?;
        for slow in &self.slow {
            let (took, idle) = (slow.took.as_secs_f64(), slow.idle.as_secs_f64());
            let Slow { story, what, .. } = slow;
            writeln!(out, "{took:>6.1} s, idle {idle:>5.1} s  {story}: {what}")?;
        }
        let left_out: Vec<_> = self.left_out().collect();
        if !left_out.is_empty() {
            writeln!(out, "{} stories were left out:", left_out.len())?;
        }
        for (story, why) in left_out {
            writeln!(out, "LEFT OUT {story}: {why}")?;
        }
        for story in self.cut() {
            writeln!(
                out,
                "CUT {story}: the time of the run was over while it ran"
            )?;
        }
        for (story, failure) in self.failures() {
            let first: String = failure.chars().take(FAILURE).collect();
            writeln!(out, "FAILED {story}: {first}")?;
        }
        Ok(())
    }
}

/// Returns the lines of a run in which the stories of `repeats` ran a second time: of these, the second time counts.
pub fn with_repeats(mut lines: Vec<RecordLine>, repeats: Vec<RecordLine>) -> Vec<RecordLine> {
    let repeated: BTreeSet<&str> = repeats.iter().map(RecordLine::story).collect();
    lines.retain(|line| !repeated.contains(line.story()));
    lines.extend(repeats);
    lines
}

/// Returns a story's line for the record.
pub fn story(name: &str, turn: Duration, took: Duration, end: StoryEnd) -> RecordLine {
    RecordLine::Story {
        story: name.to_owned(),
        turn_ms: milliseconds(turn),
        took_ms: milliseconds(took),
        end,
    }
}

#[cfg(test)]
mod tests;
