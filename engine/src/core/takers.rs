//! Jobs that found nothing to take back, and when they look again.
//!
//! Each rests for a while after it looked in vain; then it looks again as soon as anything has
//! changed since. Where a victim was protected by its queue's minimum run time, it looks again
//! when that has passed. When a queue, a policy or a class has changed, nobody rests.

use crate::ids::{JobKey, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most that are woken at once.
const AT_ONCE: usize = 64;

/// Who rests until when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Record", into = "Record")]
pub(crate) struct Takers {
    /// Counts changes that may give somebody something to take.
    version: u64,
    /// Until when each rests, and what had changed when it looked.
    resting: BTreeMap<JobKey, (Time, u64)>,
    /// The same in order of time, so that the first is who looked first.
    order: BTreeSet<(Time, JobKey)>,
    /// When a protected victim is one no more.
    timed: BTreeSet<(Time, JobKey)>,
    /// Whether nobody rests.
    hurried: bool,
}

/// The same as plain lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: u64,
    resting: Vec<(JobKey, Time, u64)>,
    timed: BTreeSet<(Time, JobKey)>,
    hurried: bool,
}

impl From<Takers> for Record {
    fn from(takers: Takers) -> Self {
        let resting = takers.resting.into_iter();
        Self {
            version: takers.version,
            resting: resting
                .map(|(key, (until, seen))| (key, until, seen))
                .collect(),
            timed: takers.timed,
            hurried: takers.hurried,
        }
    }
}

impl From<Record> for Takers {
    fn from(record: Record) -> Self {
        let resting = || record.resting.iter().cloned();
        Self {
            version: record.version,
            order: resting().map(|(key, until, _)| (until, key)).collect(),
            resting: resting()
                .map(|(key, until, seen)| (key, (until, seen)))
                .collect(),
            timed: record.timed,
            hurried: record.hurried,
        }
    }
}

impl Takers {
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

    /// A job does not wait any more.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        if let Some((until, _)) = self.resting.remove(key) {
            self.order.remove(&(until, key.clone()));
            self.timed.retain(|(_, of)| of != key);
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
        timed.into_iter().chain(first).min()
    }

    fn is_stale(&self, key: &JobKey) -> bool {
        let looked = self.resting.get(key);
        looked.is_some_and(|(_, seen)| *seen < self.version)
    }
}
