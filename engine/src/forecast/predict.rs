//! How long jobs will run, told from how long like jobs ran.
//!
//! The time between a job's start and its end flows in, whatever its outcome: a job that failed
//! held its machines as well. Runs that were evicted tell nothing and are left out. Out flow
//! a mean, which orders ([`crate::api::facts::QueueOrdering::ShortestPredicted`]), and a high
//! quantile, by which ends are expected. A job is told by the runs most like it, of which there
//! are enough: of its user in its queue with its pods and devices, of its user so, of its queue
//! so, of anybody so, of anybody.
//!
//! Bounded in every direction: so many runs of each kind, the latest; so many kinds, those not
//! added to for longest forgotten first. A forecast is only ever expected: it must never end,
//! stop or shorten a job.

use crate::api::facts::Demand;
use crate::api::ids::{JobKey, QueueName, Time};
use crate::engine::Engine;
use crate::jobs::job::{Job, Released};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Runs of one kind that are kept: enough for the tail of run times to show, which is heavy.
const RUNS: usize = 100;
/// Runs of one kind below which a wider kind is asked.
const ENOUGH: usize = 3;
/// Kinds that are kept at most.
const KINDS: usize = 8192;
/// Of so many runs, `HIGH_NUM` in `HIGH_DEN` end within the high quantile.
const HIGH_NUM: usize = 9;
const HIGH_DEN: usize = 10;

/// How large a job is, as far as likeness goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct RunShape {
    pods: u64,
    devices: i64,
}

/// Which runs count as alike: what is `None` may be anything.
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
    /// When the last was added, in runs.
    used: u64,
}

/// What a run time rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// The job says so.
    Declared,
    /// So many runs of its user, with its pods and devices.
    OfUser(usize),
    /// So many runs of its queue, with its pods and devices.
    OfQueue(usize),
    /// So many runs of anybody, with its pods and devices.
    OfShape(usize),
    /// So many runs of anybody.
    OfAll(usize),
}

/// How long a job is expected to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// On average, in milliseconds.
    pub(crate) millis: i64,
    /// Nine of ten end within so many milliseconds.
    pub(crate) high: i64,
    pub(crate) basis: Basis,
}

/// A prediction as a waiting job keeps it from when it joins the line, in seconds, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Forecast {
    /// On average; `None` where nothing is known.
    pub(crate) mean: Option<u32>,
    /// Nine of ten, rounded up to a power of two, so that like jobs stay alike.
    pub(crate) high: Option<u32>,
}

/// What is known of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct History {
    kinds: BTreeMap<Kind, Runs>,
    /// Runs that were ever added.
    count: u64,
}

/// One kind of runs as a snapshot keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownRuns(Kind, Runs);

/// Who ran, or will.
#[derive(Debug, Clone)]
struct Runner {
    queue: QueueName,
    user: Arc<str>,
    shape: RunShape,
}

impl Runner {
    /// From the most alike to the least.
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
        crate::amounts::tally::clamp(self.sum / count).0
    }

    fn high(&self) -> i64 {
        let mut sorted: Vec<i64> = self.latest.iter().copied().collect();
        let index = (sorted.len() * HIGH_NUM)
            .div_ceil(HIGH_DEN)
            .saturating_sub(1);
        if index >= sorted.len() {
            return 0;
        }
        *sorted.select_nth_unstable(index).1
    }
}

impl History {
    fn add(&mut self, runner: &Runner, millis: i64) {
        self.count += 1;
        for kind in runner.kinds() {
            self.kinds.entry(kind).or_default().add(millis, self.count);
        }
        if self.kinds.len() > KINDS {
            self.forget_half();
        }
    }

    /// Forgets the kinds that were not added to for longest. Seldom, so that it costs little
    /// for each run.
    fn forget_half(&mut self) {
        let mut used: Vec<u64> = self.kinds.values().map(|runs| runs.used).collect();
        let middle = used.len() / 2;
        let since = *used.select_nth_unstable(middle).1;
        self.kinds.retain(|_, runs| runs.used > since);
    }

    fn predict(&self, runner: &Runner) -> Option<Prediction> {
        let bases = [
            Basis::OfUser,
            Basis::OfUser,
            Basis::OfQueue,
            Basis::OfShape,
            Basis::OfAll,
        ];
        let known = runner.kinds().into_iter().zip(bases);
        known
            .filter_map(|(kind, basis)| Some((self.kinds.get(&kind)?, basis)))
            .find(|(runs, _)| runs.latest.len() >= ENOUGH)
            .map(|(runs, basis)| Prediction {
                millis: runs.mean(),
                high: runs.high(),
                basis: basis(runs.latest.len()),
            })
    }

    pub(crate) fn snapshot(&self) -> Vec<KnownRuns> {
        let kinds = self.kinds.iter();
        kinds
            .map(|(kind, runs)| KnownRuns(kind.clone(), runs.clone()))
            .collect()
    }

    pub(crate) fn restore(known: Vec<KnownRuns>) -> Self {
        let kinds: BTreeMap<Kind, Runs> = known.into_iter().map(|k| (k.0, k.1)).collect();
        let count = kinds.values().map(|runs| runs.used).max();
        Self {
            count: count.unwrap_or_default(),
            kinds,
        }
    }

    /// What is not as it should be.
    pub(crate) fn stale(&self) -> Vec<String> {
        let off = |runs: &Runs| {
            let sum: i128 = runs.latest.iter().copied().map(i128::from).sum();
            sum != runs.sum || runs.latest.len() > RUNS || runs.used > self.count
        };
        let stale = self.kinds.iter().filter(|(_, runs)| off(runs));
        stale
            .map(|(kind, runs)| format!("runs of {kind:?}: {runs:?}"))
            .collect()
    }
}

impl Forecast {
    fn of(prediction: Option<Prediction>) -> Self {
        let seconds = |millis: i64| {
            let seconds = millis.max(0).unsigned_abs().div_ceil(1000);
            u32::try_from(seconds).unwrap_or(u32::MAX)
        };
        let high = prediction.map(|p| seconds(p.high));
        Self {
            mean: prediction.map(|p| seconds(p.millis)),
            high: high.map(|s| s.checked_next_power_of_two().unwrap_or(u32::MAX)),
        }
    }

    /// The average in milliseconds.
    pub(crate) fn mean_ms(self) -> Option<i64> {
        self.mean.map(|seconds| i64::from(seconds) * 1000)
    }

    /// Within how many milliseconds nine of ten end.
    pub(crate) fn high_ms(self) -> Option<i64> {
        self.high.map(|seconds| i64::from(seconds) * 1000)
    }
}

impl Engine {
    /// How long a job is expected to run: as it declares, else by the runs most like it; no
    /// longer than its queue lets it. `None` where nothing is known.
    pub(crate) fn predict(&self, job: &Job) -> Option<Prediction> {
        let demand = job.demand.as_deref()?;
        let declared = job.duration.map(|millis| Prediction {
            millis,
            high: millis,
            basis: Basis::Declared,
        });
        let told = || self.forecast.predict(&runner(job, job.queue_now(), demand));
        let mut prediction = declared.or_else(told)?;
        if let Some(most) = self.longest_run(job.queue_now()) {
            prediction.millis = prediction.millis.min(most);
            prediction.high = prediction.high.min(most);
        }
        Some(prediction)
    }

    /// How long a job of the queue may run at most, if that is bounded on its path.
    fn longest_run(&self, queue: &QueueName) -> Option<i64> {
        let path = self.quota.path(queue);
        let policies = path.iter().filter_map(|name| self.quota.policy(name));
        policies.filter_map(|policy| policy.limits.runtime_ms).min()
    }

    /// What a job that joins the line is ordered and backfilled by, as long as it stands there.
    pub(crate) fn forecast(&self, job: &Job) -> Forecast {
        Forecast::of(self.predict(job))
    }

    /// A run is over: those to come are told by it.
    pub(crate) fn note_run(&mut self, key: &JobKey, at: Time) {
        let Some(job) = self.jobs.get(key) else {
            return;
        };
        let Some(released) = job.released.as_deref() else {
            return;
        };
        let demand = released.basis.as_deref().or(job.demand.as_deref());
        let Some(demand) = demand else { return };
        let millis = at.millis_since(begun(released));
        let runner = runner(job, &released.admission.queue, demand);
        self.forecast.add(&runner, millis);
    }
}

/// When a released job began to use its machines, as far as that was seen.
fn begun(released: &Released) -> Time {
    released
        .started_at
        .unwrap_or(released.admission.admitted_at)
}

/// When a charged job is expected to end, and when that has to be asked again.
///
/// What it declares or was predicted holds until it has run that long. Then its end is not
/// known until it has run twice that; then it is taken to run twice as long again, and so on.
pub(crate) fn outlook(job: &Job, now: Time) -> Option<Outlook> {
    let released = job.released.as_deref().filter(|r| r.charged())?;
    let expected = job.duration.or(released.expected_ms)?.max(1);
    let begun = begun(released);
    let elapsed = now.millis_since(begun);
    let (mut span, mut known) = (expected, true);
    while elapsed >= span && span < i64::MAX {
        span = span.saturating_mul(2);
        known = !known;
    }
    Some(Outlook {
        until: begun.after(span),
        known,
    })
}

/// What is expected of the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outlook {
    /// Until when this holds.
    pub(crate) until: Time,
    /// Whether it is expected to end then; else its end is not known until then.
    pub(crate) known: bool,
}

impl Outlook {
    /// When it is expected to end, if that is known.
    pub(crate) fn end(self) -> Option<Time> {
        self.known.then_some(self.until)
    }
}

fn runner(job: &Job, queue: &QueueName, demand: &Demand) -> Runner {
    let devices = demand.roles.iter().fold(0_i64, |sum, role| {
        let each = role.request.iter().filter(|(name, _)| name.is_device());
        let each = each.fold(0_i64, |sum, (_, amount)| sum.saturating_add(amount.0));
        sum.saturating_add(each.saturating_mul(i64::from(role.count)))
    });
    Runner {
        queue: queue.clone(),
        user: Arc::clone(&job.user),
        shape: RunShape {
            pods: demand.pods(),
            devices,
        },
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
    fn of_more_kinds_than_are_kept_those_not_added_to_for_longest_are_forgotten() {
        let mut history = History::default();
        // Two kinds are each user's own and three are everybody's.
        let users = (KINDS - 3) / 2;
        for user in 0..=users {
            for _ in 0..ENOUGH {
                history.add(&runner(&format!("u{user}")), 1000 + 10 * user as i64);
            }
            let kept = history.kinds.len();
            let all = 2 * (user + 1) + 3;
            assert!(kept <= KINDS && (user == users || kept == all), "{kept}");
        }
        assert!(history.kinds.len() <= KINDS / 2, "{}", history.kinds.len());
        let basis = |user: usize| {
            let told = history.predict(&runner(&format!("u{user}")));
            told.map(|told| told.basis)
        };
        assert_eq!(basis(users), Some(Basis::OfUser(ENOUGH)));
        assert_eq!(basis(users / 2 + 2), Some(Basis::OfUser(ENOUGH)));
        assert_eq!(basis(users / 2 - 2), Some(Basis::OfQueue(RUNS)));
        assert_eq!(basis(0), Some(Basis::OfQueue(RUNS)));
        // Of everybody's the latest are kept, and their sum is that of the latest.
        assert_eq!(history.stale(), Vec::<String>::new());
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
