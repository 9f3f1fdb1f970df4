//! Pods that have ended before their job is seen to have.
//!
//! A member shows the end of a pod (or that it is gone) a second or more before Karmada shows the end of
//! its job. In between, the pod's capacity is free while its charge is not. A job that started in that
//! capacity could be behind those for whom the charge becomes free, and be evicted for them a moment
//! later. An ended pod therefore keeps its capacity until the charge of its job ends or changes, for at
//! most [`LINGER_MS`]. Two exceptions: a new pod of the same job, for which the capacity may be meant, and
//! a job that is being evicted or shrunk, whose capacity is for its preemptor.

use crate::api::facts::PodFact;
use crate::api::ids::{JobKey, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Milliseconds for which a pod that has ended keeps its room at most: several times what
/// Karmada takes to show the end of a job.
pub(crate) const LINGER_MS: i64 = 5_000;

/// A pod that has ended and keeps its room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// At most until then.
    pub(crate) until: Time,
    pub(crate) pod: PodFact,
    /// True if it is not there any more.
    pub(crate) gone: bool,
}

/// Such pods by job. There are few: jobs that ended within the last seconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct CompletionGrace(BTreeMap<JobKey, Vec<Ended>>);

impl CompletionGrace {
    /// Until when the first of them keeps its room.
    pub(crate) fn next(&self) -> Option<Time> {
        let pods = self.0.values().flatten();
        pods.map(|ended| ended.until).min()
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Ended> {
        self.0.values().flatten()
    }

    /// Keeps the capacity of an ended pod.
    pub(crate) fn add(&mut self, key: &JobKey, ended: Ended) {
        let pods = self.0.entry(key.clone()).or_default();
        let mut known = pods.iter_mut();
        match known.find(|known| known.pod.uid == ended.pod.uid) {
            Some(known) => {
                known.gone |= ended.gone;
                known.pod = ended.pod;
            }
            None => pods.push(ended),
        }
    }

    /// Removes those for which `which` holds, and returns them.
    pub(crate) fn take(&mut self, which: impl Fn(&Ended) -> bool) -> Vec<Ended> {
        let mut taken = Vec::new();
        self.0.retain(|_, pods| {
            taken.extend(pods.extract_if(.., |ended| which(ended)));
            !pods.is_empty()
        });
        taken
    }

    /// Removes those of a job, and returns them.
    pub(crate) fn take_job(&mut self, key: &JobKey) -> Vec<Ended> {
        self.0.remove(key).unwrap_or_default()
    }
}
