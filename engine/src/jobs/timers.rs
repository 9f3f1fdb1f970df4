//! Timers of jobs, in order of time and then of key.

use crate::api::ids::{JobKey, Time};
use std::collections::BTreeSet;

/// At most one timer per job. The job itself has its time, by which its timer is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Timers(BTreeSet<(Time, JobKey)>);

impl Timers {
    /// Moves the timer of a job from one time to another.
    pub(super) fn change(&mut self, key: &JobKey, was: Option<Time>, now: Option<Time>) {
        if was == now {
            return;
        }
        if let Some(was) = was {
            self.0.remove(&(was, key.clone()));
        }
        if let Some(now) = now {
            self.0.insert((now, key.clone()));
        }
    }

    /// The first time.
    pub(super) fn first(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    /// The first timer, if it is due at `now`.
    pub(super) fn first_by(&self, now: Time) -> Option<(Time, JobKey)> {
        let first = self.0.first().filter(|(at, _)| *at <= now);
        first.cloned()
    }

    /// The timers after `now`, in order.
    pub(super) fn after(&self, now: Time) -> impl Iterator<Item = (Time, &JobKey)> {
        let from = (now.after(1), JobKey::new("", ""));
        self.0.range(from..).map(|(at, key)| (*at, key))
    }
}

impl FromIterator<(Time, JobKey)> for Timers {
    fn from_iter<I: IntoIterator<Item = (Time, JobKey)>>(times: I) -> Self {
        Self(times.into_iter().collect())
    }
}
