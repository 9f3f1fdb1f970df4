//! Ranges of expected starts, from how past estimates erred.
//!
//! For each pending job the caller asks for a range, which is remembered once for each stage of its wait.
//! When the job starts, the wait that was left is compared with the estimate. The ratios of the latest
//! starts of a kind give the range of the next estimate of that kind: from the low quantile to the high one.
//! A kind is how long the job has waited, what the estimate comes from, its queue and its size; the most
//! specific kind with enough starts counts.
//!
//! The high quantile follows what came of the ranges that a kind gave: a start after its range raises it by much, any
//! other lowers it by little. So in the long run at most two of a hundred starts that count come too late while a
//! higher quantile is left, however the ratios change (adaptive conformal inference, Gibbs and Candès 2021).
//!
//! This is beside the engine's state: no decision reads it, and the caller owns it.

use crate::api::decision::{EstimateSource, PastRanges, StartEstimate, StartRange};
use facts::{JobKey, QueueName, Time};
use std::collections::{BTreeMap, VecDeque};

/// The latest starts of a kind that count.
const LATEST: usize = 200;
/// Milliseconds between two starts of a kind that count. Jobs often start together, and load changes over
/// hours and days: starts of one hour say little about the next day.
const SPACING_MS: i64 = 1_800_000;
/// The fewest starts of a kind that a range comes from.
const ENOUGH: usize = 20;
/// The most kinds.
const KINDS: usize = 4_096;
/// The share of ratios below a range, in ten-thousandths.
const BELOW: usize = 300;
/// The share of ratios above a range, in ten-thousandths: at first, and the most.
const BEYOND: (usize, usize) = (300, 3_000);
/// By how much a start after its range lowers the share above the next one, and by how much any other raises it, in
/// ten-thousandths: in balance, two starts of a hundred come after their range.
const LATE_STEPS: (usize, usize) = (392, 8);
/// Added to both waits of a ratio, in milliseconds: with short waits the difference counts, not the ratio.
const OFFSET_MS: i64 = 60_000;
/// Ratios are in thousandths.
const ONE: i64 = 1_000;
/// The ratios of the range of a kind without enough starts.
const UNTRIED: (i64, i64) = (ONE / 8, ONE * 8);
/// What is left of a wait at least, in milliseconds: a job that is blocked does not start now.
const LEAST_MS: i64 = 1_000;

/// The waits, in milliseconds, at which a stage of a wait begins: an estimate for a job that has waited for
/// long errs otherwise than one for a new job.
pub const WAIT_STAGES: [i64; 6] = [0, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000];

/// The ranges that were given for pending jobs, and how past ones fared.
#[derive(Debug, Clone, Default)]
pub struct StartForecasts {
    open: BTreeMap<JobKey, Vec<GivenRange>>,
    kinds: BTreeMap<StartKind, PastStarts>,
    /// The number of starts that were ever compared.
    count: u64,
}

/// A range that was given for a job that has not started.
#[derive(Debug, Clone)]
struct GivenRange {
    kind: StartKind,
    /// Which of [`StartKind::wider`] it came from; `None` if no kind had enough starts.
    level: Option<usize>,
    at: Time,
    wait_ms: Option<i64>,
    range: (Time, Option<Time>),
}

/// Estimates that err alike. `None` means any.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StartKind {
    stage: usize,
    source: EstimateSource,
    queue: Option<QueueName>,
    /// The size as a power of two.
    size: Option<u32>,
}

/// The latest starts of one kind.
#[derive(Debug, Clone)]
struct PastStarts {
    /// The wait that was left over the estimate, and whether the range held the start.
    latest: VecDeque<(i64, bool)>,
    /// When the last of them came.
    at: Option<Time>,
    /// [`StartForecasts::count`] at the last start.
    used: u64,
    /// The share of the ratios that is above the range, in ten-thousandths.
    beyond: usize,
}

/// How a range fared that was given for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaredRange {
    /// The stage of the wait in which it was given, an index of [`WAIT_STAGES`].
    pub stage: usize,
    /// Where the start came.
    pub result: StartResult,
    /// The milliseconds from when it was given to the start.
    pub left_ms: i64,
    /// How many milliseconds wide it was; `None` if it had no end.
    pub width_ms: Option<i64>,
}

/// Where a start came relative to its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartResult {
    /// Before the range.
    Early,
    /// Within the range, which had an end.
    Within,
    /// After the range.
    Late,
    /// After the beginning of a range without an end: that says little.
    Open,
}

impl StartForecasts {
    /// Returns the range of an estimate for a job, and remembers it if it is the first one in its stage of
    /// the wait.
    pub fn range(&mut self, key: &JobKey, estimate: &StartEstimate, now: Time) -> StartRange {
        let range = self.range_of(estimate, now);
        let kind = StartKind::of(estimate);
        let last = self.open.get(key).and_then(|given| given.last());
        if last.is_none_or(|last| last.kind.stage < kind.stage) {
            let level = self.known(&kind).map(|(level, _)| level);
            let given = self.open.entry(key.clone()).or_default();
            given.push(GivenRange {
                kind,
                level,
                at: now,
                wait_ms: estimate.wait_ms,
                range: (range.earliest, range.latest),
            });
        }
        range
    }

    /// Returns the range of an estimate.
    #[must_use]
    pub fn range_of(&self, estimate: &StartEstimate, now: Time) -> StartRange {
        let past = self.known(&StartKind::of(estimate)).map(|(_, past)| past);
        let ratios = past.map(PastStarts::ratios);
        // Without a past, an estimate that is not known has no end.
        let open = ratios.is_none() && estimate.wait_ms.is_none();
        let (low, high) = ratios.unwrap_or(UNTRIED);
        let earliest = left(estimate.wait_ms, low).max(LEAST_MS);
        let latest = left(estimate.wait_ms, high).max(earliest);
        StartRange {
            earliest: now.after(earliest),
            latest: (!open).then(|| now.after(latest)),
            basis: estimate.basis.clone(),
            past: past.map(PastStarts::fared),
        }
    }

    /// The most specific kind with enough starts, and which of [`StartKind::wider`] it is.
    fn known(&self, kind: &StartKind) -> Option<(usize, &PastStarts)> {
        let wider = kind.wider();
        let known = wider.iter().map(|kind| self.kinds.get(kind)).enumerate();
        let mut known = known.filter_map(|(level, past)| Some((level, past?)));
        known.find(|(_, past)| past.latest.len() >= ENOUGH)
    }

    /// A job starts. Returns how the ranges fared that were given for it, the first given first.
    pub fn started(&mut self, key: &JobKey, now: Time) -> Vec<FaredRange> {
        let given = self.open.remove(key).unwrap_or_default();
        given
            .into_iter()
            .map(|given| self.compare(&given, now))
            .collect()
    }

    /// Forgets a job that no longer waits, or for which a start was not meant.
    pub fn forget(&mut self, key: &JobKey) {
        self.open.remove(key);
    }

    fn compare(&mut self, given: &GivenRange, now: Time) -> FaredRange {
        let left_ms = now.millis_since(given.at);
        let (earliest, latest) = given.range;
        let result = match latest {
            _ if now < earliest => StartResult::Early,
            Some(latest) if now > latest => StartResult::Late,
            Some(_) => StartResult::Within,
            None => StartResult::Open,
        };
        let ratio = ratio(left_ms, given.wait_ms);
        self.count += 1;
        for (level, kind) in given.kind.wider().into_iter().enumerate() {
            let past = self.kinds.entry(kind).or_default();
            past.used = self.count;
            past.add(ratio, result, given.level == Some(level), now);
        }
        if self.kinds.len() > KINDS {
            self.forget_half();
        }
        FaredRange {
            stage: given.kind.stage,
            result,
            left_ms,
            width_ms: latest.map(|latest| latest.millis_since(earliest)),
        }
    }

    /// Forgets the less recently used half of the kinds.
    fn forget_half(&mut self) {
        let mut used: Vec<u64> = self.kinds.values().map(|past| past.used).collect();
        let middle = used.len() / 2;
        let since = *used.select_nth_unstable(middle).1;
        self.kinds.retain(|_, past| past.used > since);
    }
}

impl StartKind {
    fn of(estimate: &StartEstimate) -> Self {
        let waited = estimate.waited_ms;
        let begun = WAIT_STAGES.iter().filter(|stage| **stage <= waited).count();
        Self {
            stage: begun.saturating_sub(1),
            source: estimate.source,
            queue: Some(estimate.queue.clone()),
            size: Some(estimate.amount.max(1).ilog2()),
        }
    }

    /// The kind, then wider ones.
    fn wider(&self) -> [Self; 4] {
        let queue = self.queue.clone();
        let of = |queue, size| Self {
            stage: self.stage,
            source: self.source,
            queue,
            size,
        };
        [
            self.clone(),
            of(queue, None),
            of(None, self.size),
            of(None, None),
        ]
    }
}

impl Default for PastStarts {
    fn default() -> Self {
        Self {
            latest: VecDeque::new(),
            at: None,
            used: 0,
            beyond: BEYOND.0,
        }
    }
}

impl PastStarts {
    /// Adds a start, if it counts. `own` says whether its range came from this kind.
    fn add(&mut self, ratio: i64, result: StartResult, own: bool, now: Time) {
        if self.at.is_some_and(|at| now.millis_since(at) < SPACING_MS) {
            return;
        }
        self.at = Some(now);
        if own {
            let (late, other) = LATE_STEPS;
            self.beyond = match result {
                StartResult::Late => self.beyond.saturating_sub(late),
                _ => (self.beyond + other).min(BEYOND.1),
            };
        }
        let within = result == StartResult::Within;
        self.latest.push_back((ratio, within));
        if self.latest.len() > LATEST {
            self.latest.pop_front();
        }
    }

    /// The low and the high quantile of the ratios.
    fn ratios(&self) -> (i64, i64) {
        let mut sorted: Vec<i64> = self.latest.iter().map(|(ratio, _)| *ratio).collect();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        let at = |index: usize| sorted.get(index.min(last)).copied().unwrap_or(ONE);
        let low = (sorted.len() + 1) * BELOW / 10_000;
        let high = ((sorted.len() + 1) * (10_000 - self.beyond)).div_ceil(10_000);
        (at(low.saturating_sub(1)), at(high.saturating_sub(1)))
    }

    fn fared(&self) -> PastRanges {
        PastRanges {
            within: self.latest.iter().filter(|(_, within)| *within).count(),
            of: self.latest.len(),
        }
    }
}

/// The wait that was left over the estimate, in thousandths.
fn ratio(left_ms: i64, wait_ms: Option<i64>) -> i64 {
    let actual = i128::from(left_ms.saturating_add(OFFSET_MS)) * i128::from(ONE);
    let expected = wait_ms.unwrap_or_default().saturating_add(OFFSET_MS);
    i64::try_from(actual / i128::from(expected.max(1))).unwrap_or(i64::MAX)
}

/// The wait that is left if the estimate errs by `ratio`.
fn left(wait_ms: Option<i64>, ratio: i64) -> i64 {
    let expected = wait_ms.unwrap_or_default().saturating_add(OFFSET_MS);
    let left = i128::from(expected) * i128::from(ratio) / i128::from(ONE);
    i64::try_from(left - i128::from(OFFSET_MS)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(waited_ms: i64, wait_ms: Option<i64>) -> StartEstimate {
        StartEstimate {
            queue: QueueName::from("q"),
            amount: 8,
            waited_ms,
            source: match wait_ms {
                Some(_) => EstimateSource::Work,
                None => EstimateSource::Unknown,
            },
            wait_ms,
            basis: "a basis".to_owned(),
        }
    }

    /// Jobs whose waits were estimated to be `wait_ms`, and the waits that were left.
    fn after(wait_ms: Option<i64>, left: impl IntoIterator<Item = i64>) -> StartForecasts {
        let mut forecasts = StartForecasts::default();
        let mut now = Time(0);
        for (index, left) in left.into_iter().enumerate() {
            let key = JobKey::new("team", &format!("job-{index}"));
            now = now.after(2 * SPACING_MS);
            forecasts.range(&key, &estimate(0, wait_ms), now);
            now = now.after(left);
            forecasts.started(&key, now);
        }
        forecasts
    }

    fn shown(forecasts: &StartForecasts, estimate: &StartEstimate) -> (i64, Option<i64>) {
        let range = forecasts.range_of(estimate, Time(1_000_000));
        let since = |at: Time| at.millis_since(Time(1_000_000));
        (since(range.earliest), range.latest.map(since))
    }

    #[test]
    fn a_range_is_as_wide_as_past_estimates_erred() {
        let hour = 3_600_000;
        // Estimated as one hour, starts came after half an hour to two hours.
        let lefts = (0..100).map(|n| hour / 2 + (n * 37 % 100) * hour * 3 / 200);
        let forecasts = after(Some(hour), lefts);
        let (earliest, latest) = shown(&forecasts, &estimate(0, Some(2 * hour)));
        assert!((hour..hour * 6 / 5).contains(&earliest), "{earliest}");
        let latest = latest.unwrap_or_default();
        assert!((hour * 35 / 10..hour * 4).contains(&latest), "{latest}");
        let range = forecasts.range_of(&estimate(0, Some(hour)), Time(0));
        let past = range.past.unwrap_or_default();
        assert_eq!(past.of, 100);
        assert!(past.within > 80, "{past:?}");
        // Starts that come together count once.
        let mut together = StartForecasts::default();
        for index in 0..100 {
            let key = JobKey::new("team", &format!("job-{index}"));
            together.range(&key, &estimate(0, Some(hour)), Time(0));
            together.started(&key, Time(hour + index));
        }
        let range = together.range_of(&estimate(0, Some(hour)), Time(0));
        assert_eq!(range.past, None);
    }

    /// Starts of one kind, each asked for one hour before its turn: those that came after their range.
    fn late(lefts: impl IntoIterator<Item = i64>) -> (usize, Vec<i64>) {
        let (hour, mut now) = (3_600_000, Time(0));
        let mut forecasts = StartForecasts::default();
        let (mut late, mut widths) = (0, Vec::new());
        for (index, left) in lefts.into_iter().enumerate() {
            let key = JobKey::new("team", &format!("job-{index}"));
            forecasts.range(&key, &estimate(0, Some(hour)), now);
            let fared = forecasts.started(&key, now.after(left));
            late += usize::from(index >= ENOUGH && fared[0].result == StartResult::Late);
            widths.extend(fared[0].width_ms);
            now = now.after(left + SPACING_MS);
        }
        (late, widths)
    }

    #[test]
    fn the_end_of_a_range_follows_how_past_ranges_fared() {
        let hour = 3_600_000;
        // Waits shrink, and no start comes after its range: the range ends before the longest of the latest waits,
        // which are four times as long.
        let shrinking = std::iter::successors(Some(960 * hour), |left| Some(left * 993 / 1_000));
        let lefts: Vec<i64> = shrinking.take(1_000).collect();
        let (count, widths) = late(lefts.iter().copied());
        assert_eq!(count, 0);
        let (left, width) = (lefts[999], widths[999]);
        assert!(width < left * 2, "{width} for {left}");
        // Waits double again and again: few starts come after their range, where a tenth would.
        let doubling = |n: i64| (hour << (n / 100 % 8)) + n * 7_919_000 % hour;
        let (count, _) = late((0..2_000).map(doubling));
        assert!(count <= 80, "{count} of 2000");
    }

    #[test]
    fn a_blocked_job_does_not_start_now_and_the_unknown_has_no_end() {
        let none = StartForecasts::default();
        assert_eq!(shown(&none, &estimate(0, Some(0))), (1_000, Some(420_000)));
        assert_eq!(shown(&none, &estimate(0, None)), (1_000, None));
        assert_eq!(none.range_of(&estimate(0, None), Time(0)).past, None);
        // Past waits say something even where no run time is known.
        let past = after(None, (0..ENOUGH as i64).map(|n| n * 10_000));
        assert_eq!(shown(&past, &estimate(0, None)), (1_000, Some(189_960)));
    }

    #[test]
    fn each_stage_of_a_wait_is_compared_once() {
        let mut forecasts = StartForecasts::default();
        let key = JobKey::new("team", "a");
        for (at, waited) in [(0, 0), (30_000, 30_000), (90_000, 90_000), (95_000, 95_000)] {
            forecasts.range(&key, &estimate(waited, Some(100_000)), Time(at));
        }
        let fared = forecasts.started(&key, Time(100_000));
        let stages: Vec<_> = fared
            .iter()
            .map(|fared| (fared.stage, fared.left_ms))
            .collect();
        assert_eq!(stages, [(0, 100_000), (1, 10_000)]);
        assert_eq!(fared[0].result, StartResult::Within);
        assert!(forecasts.started(&key, Time(200_000)).is_empty());
        forecasts.range(&key, &estimate(0, Some(100_000)), Time(0));
        forecasts.forget(&key);
        assert!(forecasts.started(&key, Time(0)).is_empty());
        // Before and after the range.
        for (at, result) in [(0, StartResult::Early), (9_000_000, StartResult::Late)] {
            forecasts.range(&key, &estimate(0, Some(1_000_000)), Time(0));
            assert_eq!(forecasts.started(&key, Time(at))[0].result, result);
        }
    }

    #[test]
    fn the_number_of_kinds_is_bounded() {
        let mut forecasts = StartForecasts::default();
        for index in 0..3_000 {
            let key = JobKey::new("team", "a");
            let queue = QueueName::from(format!("q{index}").as_str());
            let estimate = StartEstimate {
                queue,
                ..estimate(0, Some(0))
            };
            forecasts.range(&key, &estimate, Time(0));
            forecasts.started(&key, Time(5));
            assert!(forecasts.kinds.len() <= KINDS);
        }
    }
}
