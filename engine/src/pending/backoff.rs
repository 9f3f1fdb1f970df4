//! Jobs that found nothing to evict, and when they look again.
//!
//! Each rests for a while after it looked without result; then it looks again as soon as anything has
//! changed since. Where a victim was protected by its queue's minimum run time, it looks again
//! when that has passed. Where its queues hold what they deserve, so that it is entitled to
//! nothing, it looks again when one of them holds enough less. When a queue, a policy or a class
//! has changed, nobody rests.

use crate::amounts::hashed::Hashed;
use crate::amounts::resources::ResourceName;
use crate::api::ids::{JobKey, QueueName, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most that are woken at once.
const AT_ONCE: usize = 64;

/// Who rests until when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Record", into = "Record")]
pub(crate) struct PreemptionBackoff {
    /// Counts changes that may give somebody something to take.
    version: u64,
    /// Until when each rests, and what had changed when it looked.
    resting: Hashed<JobKey, (Time, u64)>,
    /// The same in order of time, so that the first is who looked first.
    order: BTreeSet<(Time, JobKey)>,
    /// When a protected victim is one no more.
    timed: BTreeSet<(Time, JobKey)>,
    /// What jobs that are entitled to nothing wait for.
    not_entitled: Hashed<JobKey, Vec<EntitlementGap>>,
    /// The same by queue and resource, who needs the least first.
    by_gap: BTreeSet<(EntitlementGap, JobKey)>,
    /// Whether nobody rests.
    hurried: bool,
}

/// So much of a resource that a queue deserves and does not hold. The order of the fields is
/// that in which it is looked up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct EntitlementGap {
    pub(crate) queue: QueueName,
    pub(crate) resource: ResourceName,
    pub(crate) amount: i64,
}

/// When those look again who wait for something other than time.
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
    fn from(preemption_backoff: PreemptionBackoff) -> Self {
        let resting = preemption_backoff.resting.into_iter();
        let mut resting: Vec<_> = resting
            .map(|(key, (until, seen))| (key, until, seen))
            .collect();
        resting.sort_unstable();
        let mut not_entitled: Vec<_> = preemption_backoff.not_entitled.into_iter().collect();
        not_entitled.sort_unstable();
        Self {
            version: preemption_backoff.version,
            resting,
            timed: preemption_backoff.timed,
            not_entitled,
            hurried: preemption_backoff.hurried,
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
                .flat_map(|(key, gaps)| gaps.iter().map(|due| (due.clone(), key.clone())))
                .collect(),
            not_entitled: record.not_entitled.into_iter().collect(),
            hurried: record.hurried,
        }
    }
}

impl PreemptionBackoff {
    /// Something is held or charged otherwise.
    pub(crate) fn moved(&mut self) {
        self.version += 1;
    }

    /// Other rules hold.
    pub(crate) fn hurry(&mut self) {
        self.version += 1;
        self.hurried = !self.order.is_empty();
    }

    pub(crate) fn rests(&self, key: &JobKey) -> bool {
        self.resting.contains_key(key)
    }

    pub(crate) fn failed(&mut self, key: &JobKey, until: Time, more_at: Option<Time>) {
        self.forget(key);
        self.resting.insert(key.clone(), (until, self.version));
        self.order.insert((until, key.clone()));
        self.timed.extend(more_at.map(|at| (at, key.clone())));
    }

    /// A job is entitled to nothing until one of its queues is due one of these.
    pub(crate) fn not_entitled(&mut self, key: &JobKey, gaps: Vec<EntitlementGap>) {
        self.failed(key, NEVER, None);
        for due in &gaps {
            self.by_gap.insert((due.clone(), key.clone()));
        }
        self.not_entitled.insert(key.clone(), gaps);
    }

    /// Who should look again now that a queue is due so much of each resource.
    pub(crate) fn due_in(
        &mut self,
        queue: &QueueName,
        due: impl Fn(&ResourceName) -> i128,
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
        // Resource by resource, of each as far as it does.
        while let Some((next, _)) = self.by_gap.range(from..).next() {
            if next.queue != *queue {
                break;
            }
            let resource = next.resource.clone();
            let has = due(&resource);
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

    /// A job does not wait any more.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        if let Some((until, _)) = self.resting.remove(key) {
            self.order.remove(&(until, key.clone()));
            self.timed.retain(|(_, of)| of != key);
        }
        for due in self.not_entitled.remove(key).into_iter().flatten() {
            self.by_gap.remove(&(due, key.clone()));
        }
    }

    /// Who should look again at `now`.
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

    /// When somebody should look again, as things are.
    pub(crate) fn next(&self) -> Option<Time> {
        let timed = self.timed.first().map(|(at, _)| *at);
        let first = self.order.first().filter(|(_, key)| self.is_stale(key));
        let first = first.map(|(at, _)| if self.hurried { Time::default() } else { *at });
        let first = first.filter(|at| *at != NEVER);
        timed.into_iter().chain(first).min()
    }

    fn is_stale(&self, key: &JobKey) -> bool {
        let looked = self.resting.get(key);
        looked.is_some_and(|(_, seen)| *seen < self.version)
    }
}
