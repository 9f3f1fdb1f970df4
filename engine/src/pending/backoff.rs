//! The back-off of jobs that searched for victims and found none.
//!
//! A search costs far more than another evaluation, so it is limited for each job: the back-off stays
//! when the class of the job is woken for something else. It ends after a while, once anything has
//! changed since the search. Where a victim was protected by its queue's minimum run time, it ends
//! when that has passed. Where the job was not entitled to reclaim, it ends when a queue of its path
//! uses enough less than it deserves. When a queue, a policy or a priority class has changed, all
//! back-offs end. The class of a job is activated when its back-off ends.

use crate::amounts::hashed::Hashed;
use crate::amounts::resources::ResourceName;
use crate::api::ids::{JobKey, QueueName, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The most back-offs that end at once.
const AT_ONCE: usize = 64;

/// The jobs with a back-off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Record", into = "Record")]
pub(crate) struct PreemptionBackoff {
    /// Counts changes after which a search may find victims.
    version: u64,
    /// The end of each back-off, and the version at the search.
    resting: Hashed<JobKey, (Time, u64)>,
    /// The same in order of time.
    pub(super) order: BTreeSet<(Time, JobKey)>,
    /// When a victim is protected no more.
    timed: BTreeSet<(Time, JobKey)>,
    /// What jobs that are not entitled to reclaim wait for.
    not_entitled: Hashed<JobKey, Vec<EntitlementGap>>,
    /// The same by queue and resource, the least amount first.
    by_gap: BTreeSet<(EntitlementGap, JobKey)>,
    /// Whether all back-offs end.
    hurried: bool,
}

/// An amount of a resource that a queue deserves and does not use. The order of the fields is the
/// order in which gaps are looked up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct EntitlementGap {
    pub(crate) queue: QueueName,
    pub(crate) resource: ResourceName,
    pub(crate) amount: i64,
}

/// The end of a back-off that waits for something other than time.
const NEVER: Time = Time(i64::MAX);

/// The same as plain lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: u64,
    resting: Vec<(JobKey, Time, u64)>,
    timed: BTreeSet<(Time, JobKey)>,
    not_entitled: Vec<(JobKey, Vec<EntitlementGap>)>,
    hurried: bool,
}

impl From<PreemptionBackoff> for Record {
    fn from(backoff: PreemptionBackoff) -> Self {
        let resting = backoff.resting.into_iter();
        let mut resting: Vec<_> = resting
            .map(|(key, (until, seen))| (key, until, seen))
            .collect();
        resting.sort_unstable();
        let mut not_entitled: Vec<_> = backoff.not_entitled.into_iter().collect();
        not_entitled.sort_unstable();
        Self {
            version: backoff.version,
            resting,
            timed: backoff.timed,
            not_entitled,
            hurried: backoff.hurried,
        }
    }
}

impl From<Record> for PreemptionBackoff {
    fn from(record: Record) -> Self {
        let resting = || record.resting.iter().cloned();
        Self {
            version: record.version,
            order: resting().map(|(key, until, _)| (until, key)).collect(),
            resting: resting()
                .map(|(key, until, seen)| (key, (until, seen)))
                .collect(),
            timed: record.timed,
            by_gap: record
                .not_entitled
                .iter()
                .flat_map(|(key, gaps)| gaps.iter().map(|gap| (gap.clone(), key.clone())))
                .collect(),
            not_entitled: record.not_entitled.into_iter().collect(),
            hurried: record.hurried,
        }
    }
}

impl PreemptionBackoff {
    /// What can be reclaimed or preempted changed.
    pub(crate) fn moved(&mut self) {
        self.version += 1;
    }

    /// The rules changed: all back-offs end.
    pub(crate) fn hurry(&mut self) {
        self.version += 1;
        self.hurried = !self.order.is_empty();
    }

    /// Whether a job has a back-off.
    pub(crate) fn rests(&self, key: &JobKey) -> bool {
        self.resting.contains_key(key)
    }

    /// A job searched without result. It may search again when a victim is protected no more.
    pub(crate) fn failed(&mut self, key: &JobKey, until: Time, more_at: Option<Time>) {
        self.forget(key);
        self.resting.insert(key.clone(), (until, self.version));
        self.order.insert((until, key.clone()));
        self.timed.extend(more_at.map(|at| (at, key.clone())));
    }

    /// A job is not entitled to reclaim until one of these gaps is there.
    pub(crate) fn not_entitled(&mut self, key: &JobKey, gaps: Vec<EntitlementGap>) {
        self.failed(key, NEVER, None);
        for gap in &gaps {
            self.by_gap.insert((gap.clone(), key.clone()));
        }
        self.not_entitled.insert(key.clone(), gaps);
    }

    /// The jobs whose back-off ends, now that a queue deserves so much of each resource and does not
    /// use it.
    pub(crate) fn entitled_in(
        &mut self,
        queue: &QueueName,
        unused: impl Fn(&ResourceName) -> i128,
    ) -> Vec<JobKey> {
        let mut met: Vec<JobKey> = Vec::new();
        let first = |resource: &ResourceName, amount| {
            let resource = resource.clone();
            let queue = queue.clone();
            let key = JobKey::new("", "");
            (
                EntitlementGap {
                    queue,
                    resource,
                    amount,
                },
                key,
            )
        };
        let mut from = first(&ResourceName::new(""), i64::MIN);
        // Resource by resource, of each up to what is unused.
        while let Some((next, _)) = self.by_gap.range(from..).next() {
            if next.queue != *queue {
                break;
            }
            let resource = next.resource.clone();
            let has = unused(&resource);
            let those = self.by_gap.range(first(&resource, i64::MIN)..);
            let those = those.take_while(|(of, _)| {
                of.queue == *queue && of.resource == resource && i128::from(of.amount) <= has
            });
            met.extend(those.map(|(_, key)| key.clone()));
            from = first(&resource, i64::MAX);
        }
        met.iter().for_each(|key| self.forget(key));
        met
    }

    /// The back-off of a job ends.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        if let Some((until, _)) = self.resting.remove(key) {
            self.order.remove(&(until, key.clone()));
            self.timed.retain(|(_, of)| of != key);
        }
        for gap in self.not_entitled.remove(key).into_iter().flatten() {
            self.by_gap.remove(&(gap, key.clone()));
        }
    }

    /// The jobs whose back-off ends at `now`.
    pub(crate) fn due(&mut self, now: Time) -> Vec<JobKey> {
        let mut due = Vec::new();
        while let Some((at, key)) = self.timed.first().cloned() {
            if at > now {
                break;
            }
            self.forget(&key);
            due.push(key);
        }
        while due.len() < AT_ONCE {
            let Some((at, key)) = self.order.first().cloned() else {
                break;
            };
            if !self.is_stale(&key) || (at > now && !self.hurried) {
                break;
            }
            self.forget(&key);
            due.push(key);
        }
        self.hurried &= self
            .order
            .first()
            .is_some_and(|(_, key)| self.is_stale(key));
        due
    }

    /// When the next back-off ends, as things are.
    pub(crate) fn next(&self) -> Option<Time> {
        let timed = self.timed.first().map(|(at, _)| *at);
        let first = self.order.first().filter(|(_, key)| self.is_stale(key));
        let first = first.map(|(at, _)| if self.hurried { Time::default() } else { *at });
        let first = first.filter(|at| *at != NEVER);
        timed.into_iter().chain(first).min()
    }

    /// For the audit: the same with its orders rebuilt.
    pub(super) fn rebuilt(&self) -> Self {
        Self::from(Record::from(self.clone()))
    }

    /// Whether anything has changed since the search of a job.
    fn is_stale(&self, key: &JobKey) -> bool {
        let looked = self.resting.get(key);
        looked.is_some_and(|(_, seen)| *seen < self.version)
    }
}
