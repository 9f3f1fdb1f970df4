//! The history of run times, and predictions from it.
//!
//! The history has the run times of ended jobs, whatever their outcome, but not of evicted ones. A
//! prediction is a mean, which orders jobs
//! ([`facts::QueueOrdering::ShortestPredicted`]), and a high quantile, by which a job may pass others. The
//! run time that is expected of a running job is a quantile of the runs that took longer than it has run. Both are
//! predicted from the most specific kind with enough runs: of the same user, queue and shape
//! (pods and devices), of the same user and shape, of the same queue and shape, of the same shape,
//! or of all jobs.
//!
//! The history is bounded: it has the latest runs of each kind, and the most recently used kinds.

use crate::amounts::totals::clamp;
use crate::api::job::PredictedRunTime;
use facts::{Demand, QueueName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The most runs of one kind: enough for the heavy tail of run times to show.
const RUNS: usize = 100;

/// The fewest runs of a kind from which it predicts; below, a wider kind does.
const ENOUGH: usize = 3;

/// The most kinds.
const KINDS: usize = 8192;

/// The fewest runs from which a quantile of what is left of a run follows.
const LEFT: usize = 2;

/// The high quantile is `HIGH_NUM` / `HIGH_DEN`.
const HIGH_NUM: usize = 9;

const HIGH_DEN: usize = 10;

/// The run times of past jobs, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Forecast {
    kinds: BTreeMap<Kind, Runs>,
    /// The number of runs that were ever added.
    count: u64,
}

/// The size of a job, by which runs are similar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct RunShape {
    pods: u64,
    devices: i64,
}

/// A kind of similar runs. `None` means any.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Kind {
    shape: Option<RunShape>,
    user: Option<Arc<str>>,
    queue: Option<QueueName>,
}

/// The latest runs of one kind, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Runs {
    latest: VecDeque<i64>,
    sum: i128,
    /// [`Forecast::count`] when the last run was added.
    used: u64,
}

/// One kind of runs in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownRuns(Kind, Runs);

/// A job, by what its run time is predicted from.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    queue: QueueName,
    user: Arc<str>,
    shape: RunShape,
}

/// The predicted run time of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// The mean in milliseconds.
    pub(crate) millis: i64,
    /// The high quantile in milliseconds.
    pub(crate) high: i64,
    pub(crate) basis: PredictionBasis,
}

/// The basis of a prediction, with the number of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PredictionBasis {
    /// The job declares its run time.
    Declared,
    /// Runs of its user with its shape.
    OfUser(usize),
    /// Runs of its queue with its shape.
    OfQueue(usize),
    /// Runs of all jobs with its shape.
    OfShape(usize),
    /// Runs of all jobs.
    OfAll(usize),
}

impl Runner {
    pub(crate) fn new(queue: &QueueName, user: &Arc<str>, demand: &Demand) -> Self {
        let devices = demand.roles.iter().fold(0_i64, |sum, role| {
            let each = role.request.iter().filter(|(name, _)| name.is_device());
            let each = each.fold(0_i64, |sum, (_, amount)| sum.saturating_add(amount.0));
            sum.saturating_add(each.saturating_mul(i64::from(role.count)))
        });
        Self {
            queue: queue.clone(),
            user: Arc::clone(user),
            shape: RunShape {
                pods: demand.pods(),
                devices,
            },
        }
    }

    /// The kinds of its runs, from the most specific on.
    fn kinds(&self) -> [Kind; 5] {
        let kind = |shape, user, queue| Kind { shape, user, queue };
        let (shape, user, queue) = (self.shape, &self.user, &self.queue);
        [
            kind(Some(shape), Some(user.clone()), Some(queue.clone())),
            kind(Some(shape), Some(user.clone()), None),
            kind(Some(shape), None, Some(queue.clone())),
            kind(Some(shape), None, None),
            kind(None, None, None),
        ]
    }
}

impl Prediction {
    /// The prediction for a job that declares its run time.
    pub(crate) fn declared(millis: i64) -> Self {
        Self {
            millis,
            high: millis,
            basis: PredictionBasis::Declared,
        }
    }

    /// The prediction for a job that is stopped after `limit` milliseconds.
    pub(crate) fn at_most(self, limit: i64) -> Self {
        Self {
            millis: self.millis.min(limit),
            high: self.high.min(limit),
            ..self
        }
    }

    /// The prediction in the form that pending jobs have.
    pub(crate) fn rounded(self) -> PredictedRunTime {
        let seconds = |millis: i64| {
            let seconds = millis.max(0).unsigned_abs().div_ceil(1000);
            u32::try_from(seconds).unwrap_or(u32::MAX)
        };
        let high = seconds(self.high).checked_next_power_of_two();
        PredictedRunTime {
            mean: Some(seconds(self.millis)),
            high: Some(high.unwrap_or(u32::MAX)),
        }
    }
}

impl Runs {
    fn add(&mut self, millis: i64, used: u64) {
        self.used = used;
        self.sum += i128::from(millis);
        self.latest.push_back(millis);
        if self.latest.len() > RUNS {
            self.sum -= i128::from(self.latest.pop_front().unwrap_or_default());
        }
    }

    fn mean(&self) -> i64 {
        let count = i128::try_from(self.latest.len().max(1)).unwrap_or(1);
        clamp(self.sum / count).0
    }

    fn high(&self) -> i64 {
        let all = self.latest.iter().copied();
        quantile(all.collect(), HIGH_NUM, HIGH_DEN)
    }

    /// Three quarters of the runs that took longer than `elapsed` were no longer than this; `None` if there are too
    /// few.
    fn longer(&self, elapsed: i64) -> Option<i64> {
        let longer = self.latest.iter().copied();
        let longer: Vec<i64> = longer.filter(|run| *run > elapsed).collect();
        (longer.len() >= LEFT).then(|| quantile(longer, 3, 4))
    }
}

/// Half as long again as a run has taken, which is all that is known of one that takes longer than any other.
pub(crate) fn half_again(elapsed: i64) -> i64 {
    elapsed.saturating_add(elapsed / 2)
}

/// The least run that is no shorter than `num` / `den` of all; 0 of none.
fn quantile(mut runs: Vec<i64>, num: usize, den: usize) -> i64 {
    let index = (runs.len() * num).div_ceil(den).saturating_sub(1);
    if index >= runs.len() {
        return 0;
    }
    *runs.select_nth_unstable(index).1
}

impl Forecast {
    /// Adds the run time of an ended job, in milliseconds.
    pub(crate) fn add(&mut self, runner: &Runner, millis: i64) {
        self.count += 1;
        for kind in runner.kinds() {
            self.kinds.entry(kind).or_default().add(millis, self.count);
        }
        if self.kinds.len() > KINDS {
            self.forget_half();
        }
    }

    /// Forgets the less recently used half of the kinds. It is rare, so that it costs little for
    /// each run.
    fn forget_half(&mut self) {
        let mut used: Vec<u64> = self.kinds.values().map(|runs| runs.used).collect();
        let middle = used.len() / 2;
        let since = *used.select_nth_unstable(middle).1;
        self.kinds.retain(|_, runs| runs.used > since);
    }

    /// The predicted run time of a job; `None` if too few runs are known.
    pub(crate) fn predict(&self, runner: &Runner) -> Option<Prediction> {
        let bases = [
            PredictionBasis::OfUser,
            PredictionBasis::OfUser,
            PredictionBasis::OfQueue,
            PredictionBasis::OfShape,
            PredictionBasis::OfAll,
        ];
        let known = self.most_specific(runner);
        known
            .map(|(runs, index)| (runs, bases[index]))
            .map(|(runs, basis)| Prediction {
                millis: runs.mean(),
                high: runs.high(),
                basis: basis(runs.latest.len()),
            })
    }

    /// Returns true if enough runs are known to predict one of any job.
    pub(crate) fn predicts_all(&self) -> bool {
        let any = Kind {
            shape: None,
            user: None,
            queue: None,
        };
        let runs = self.kinds.get(&any);
        runs.is_some_and(|runs| runs.latest.len() >= ENOUGH)
    }

    /// How long a job that has run for `elapsed` milliseconds runs in all, by the runs of its kind that took longer;
    /// half as long again if there are too few of these, and `None` if no run time could be predicted.
    pub(crate) fn expected(&self, runner: &Runner, elapsed: i64) -> Option<i64> {
        let (runs, _) = self.most_specific(runner)?;
        Some(runs.longer(elapsed).unwrap_or(half_again(elapsed)))
    }

    /// The runs of the most specific kind with enough of them, and which of [`Runner::kinds`] that is.
    fn most_specific(&self, runner: &Runner) -> Option<(&Runs, usize)> {
        let kinds = runner.kinds().into_iter().enumerate();
        let mut known = kinds.filter_map(|(index, kind)| Some((self.kinds.get(&kind)?, index)));
        known.find(|(runs, _)| runs.latest.len() >= ENOUGH)
    }

    /// The history, for a snapshot.
    pub(crate) fn snapshot(&self) -> Vec<KnownRuns> {
        let kinds = self.kinds.iter();
        kinds
            .map(|(kind, runs)| KnownRuns(kind.clone(), runs.clone()))
            .collect()
    }

    /// The store with the history of a snapshot.
    pub(crate) fn restore(known: Vec<KnownRuns>) -> Self {
        let kinds: BTreeMap<Kind, Runs> = known.into_iter().map(|k| (k.0, k.1)).collect();
        let count = kinds.values().map(|runs| runs.used).max();
        Self {
            count: count.unwrap_or_default(),
            kinds,
        }
    }

    /// Kinds whose sums differ from those of their runs.
    pub(crate) fn audit(&self) -> Vec<String> {
        let off = |runs: &Runs| {
            let sum: i128 = runs.latest.iter().copied().map(i128::from).sum();
            sum != runs.sum || runs.latest.len() > RUNS || runs.used > self.count
        };
        let wrong = self.kinds.iter().filter(|(_, runs)| off(runs));
        wrong
            .map(|(kind, runs)| format!("runs of {kind:?}: {runs:?}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(user: &str) -> Runner {
        Runner {
            queue: QueueName::from("q"),
            user: user.into(),
            shape: RunShape {
                pods: 1,
                devices: 8,
            },
        }
    }

    #[test]
    fn the_least_recently_used_kinds_are_forgotten() {
        let mut forecast = Forecast::default();
        // Each user has two kinds, and three are shared by all.
        let users = (KINDS - 3) / 2;
        for user in 0..=users {
            for _ in 0..ENOUGH {
                forecast.add(&runner(&format!("u{user}")), 1000 + 10 * user as i64);
            }
            let kept = forecast.kinds.len();
            let all = 2 * (user + 1) + 3;
            assert!(kept <= KINDS && (user == users || kept == all), "{kept}");
        }
        assert!(
            forecast.kinds.len() <= KINDS / 2,
            "{}",
            forecast.kinds.len()
        );
        let basis = |user: usize| {
            let predicted = forecast.predict(&runner(&format!("u{user}")));
            predicted.map(|predicted| predicted.basis)
        };
        assert_eq!(basis(users), Some(PredictionBasis::OfUser(ENOUGH)));
        assert_eq!(basis(users / 2 + 2), Some(PredictionBasis::OfUser(ENOUGH)));
        assert_eq!(basis(users / 2 - 2), Some(PredictionBasis::OfQueue(RUNS)));
        assert_eq!(basis(0), Some(PredictionBasis::OfQueue(RUNS)));
        // The sum of a full kind is that of its latest runs.
        assert_eq!(forecast.audit(), Vec::<String>::new());
        if let Some(runs) = forecast.kinds.values_mut().next() {
            runs.sum += 1;
        }
        assert_eq!(forecast.audit().len(), 1);
    }

    #[test]
    fn nine_of_ten_end_within_the_high_quantile() {
        for (runs, mean, high) in [(1, 1, 1), (2, 1, 2), (10, 5, 9), (11, 6, 10), (20, 10, 18)] {
            let mut all = Runs::default();
            (1..=runs).rev().for_each(|millis| all.add(millis, 1));
            assert_eq!((all.mean(), all.high()), (mean, high), "{runs}");
        }
        assert_eq!((Runs::default().mean(), Runs::default().high()), (0, 0));
    }
}
