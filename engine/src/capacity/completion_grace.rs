//! Pods that have ended before their job is seen to have ended.
//!
//! A member shows the end of a pod, or that it is gone, a second or more before Karmada shows the end of
//! its job. In between, the pod's capacity is free while its charge is not. A job that started in that
//! capacity could stand behind the jobs for which the charge becomes free, and be evicted for them a
//! moment later. An ended pod therefore keeps its capacity until the charge of its job ends or changes,
//! for at most [`COMPLETION_GRACE_MS`]. Two exceptions: a new pod of the same job, which may be meant to
//! use the capacity, and a job that is being evicted or shrunk, whose capacity is for its preemptor.

use super::Capacity;
use facts::{ClusterName, JobKey, PodFact, Time, Uid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Milliseconds for which a pod that has ended keeps its capacity at most: several times what Karmada
/// takes to show the end of a job.
const COMPLETION_GRACE_MS: i64 = 5_000;

/// A pod that has ended and keeps its capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// When the grace ends at the latest.
    pub(crate) until: Time,
    pub(crate) pod: PodFact,
    /// True if the pod object is gone.
    gone: bool,
}

/// Ended pods by job. There are few: of jobs that ended within the last seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct CompletionGrace(BTreeMap<JobKey, Vec<Ended>>);

impl CompletionGrace {
    /// Adds an ended pod, or updates it.
    fn add(&mut self, key: &JobKey, ended: Ended) {
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

    /// Removes the pods for which `which` holds, and returns them.
    pub(super) fn take(&mut self, which: impl Fn(&Ended) -> bool) -> Vec<Ended> {
        let mut taken = Vec::new();
        self.0.retain(|_, pods| {
            taken.extend(pods.extract_if(.., |ended| which(ended)));
            !pods.is_empty()
        });
        taken
    }
}

impl Capacity {
    /// Keeps the capacity of a pod that ended at `now` for its job.
    pub(crate) fn begin_grace(&mut self, key: &JobKey, pod: PodFact, gone: bool, now: Time) {
        let until = now.after(COMPLETION_GRACE_MS);
        self.completion_grace.add(key, Ended { until, pod, gone });
    }

    /// Frees the capacity of the ended pods of a job: its charge has ended or changed.
    pub(crate) fn end_grace_of(&mut self, key: &JobKey) {
        let ended = self.completion_grace.0.remove(key).unwrap_or_default();
        ended.into_iter().for_each(|ended| self.free_ended(ended));
    }

    /// Forgets that a pod was in grace: it is now as it was observed last.
    pub(crate) fn forget_grace_of(&mut self, uid: &Uid) {
        self.completion_grace.take(|ended| ended.pod.uid == *uid);
    }

    /// Frees the capacity of ended pods whose grace has expired at `now`.
    pub(crate) fn end_expired_grace(&mut self, now: Time) {
        let expired = self.completion_grace.take(|ended| ended.until <= now);
        expired.into_iter().for_each(|ended| self.free_ended(ended));
    }

    /// When the next grace expires.
    pub(crate) fn next_grace_end(&self) -> Option<Time> {
        self.in_grace().map(|ended| ended.until).min()
    }

    /// True if a pod of a job has ended and keeps its capacity.
    pub(crate) fn is_in_grace(&self, key: &JobKey, uid: &Uid) -> bool {
        let ended = self.completion_grace.0.get(key).into_iter().flatten();
        ended.into_iter().any(|ended| ended.pod.uid == *uid)
    }

    /// True if the object of such a pod is gone.
    pub(super) fn is_gone_in_grace(&self, key: &JobKey, uid: &Uid) -> bool {
        let ended = self.completion_grace.0.get(key).into_iter().flatten();
        ended
            .into_iter()
            .any(|ended| ended.gone && ended.pod.uid == *uid)
    }

    /// All ended pods that keep their capacity.
    pub(crate) fn in_grace(&self) -> impl Iterator<Item = &Ended> {
        self.completion_grace.0.values().flatten()
    }

    /// Restores the ended pods of a snapshot.
    pub(crate) fn restore_grace(&mut self, pods: Vec<Ended>) {
        for ended in pods {
            if let Some(key) = ended.pod.job.clone() {
                self.completion_grace.add(&key, ended);
            }
        }
    }

    /// A pod as last observed.
    pub(crate) fn pod(&self, cluster: &ClusterName, uid: &Uid) -> Option<&PodFact> {
        self.clusters.get(cluster)?.pods().get(uid)
    }

    fn free_ended(&mut self, ended: Ended) {
        match ended.gone {
            true => self.remove_pod(&ended.pod.cluster, &ended.pod.uid),
            false => self.upsert_pod(ended.pod),
        }
    }
}
