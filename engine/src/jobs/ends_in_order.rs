//! The expected ends of charged jobs, in order of time and then of key.
//!
//! A sorted set and no priority queue: reservations read these ends in order, and a heap has to be copied
//! for that.

use facts::{JobKey, Time};
use std::collections::BTreeSet;

/// At most one end per job. The job itself has it, by which its entry is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EndsInOrder(BTreeSet<(Time, JobKey)>);

impl EndsInOrder {
    /// Moves the end of a job from one time to another.
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

    /// The first, with its job.
    pub(super) fn first(&self) -> Option<&(Time, JobKey)> {
        self.0.first()
    }

    /// Those after `now`, in order.
    pub(super) fn after(&self, now: Time) -> impl Iterator<Item = (Time, &JobKey)> {
        let from = (now.after(1), JobKey::new("", ""));
        self.0.range(from..).map(|(at, key)| (*at, key))
    }
}

impl FromIterator<(Time, JobKey)> for EndsInOrder {
    fn from_iter<I: IntoIterator<Item = (Time, JobKey)>>(ends: I) -> Self {
        Self(ends.into_iter().collect())
    }
}
