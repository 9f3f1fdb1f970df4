//! Times at which to look at jobs, in order; of equal times, in order of the jobs' keys.

use crate::api::ids::{JobKey, Time};
use std::collections::BTreeSet;

/// At most one time for each job. The job knows its time, so that it can be found here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Timers(BTreeSet<(Time, JobKey)>);

impl Timers {
    /// Moves a job from the time that it had to another one.
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

    /// The job whose time is first, with that time, if it has come by `now`.
    pub(super) fn first_by(&self, now: Time) -> Option<(Time, JobKey)> {
        let first = self.0.first().filter(|(at, _)| *at <= now);
        first.cloned()
    }

    /// Times later than `now` with their jobs, in order.
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
