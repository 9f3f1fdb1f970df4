//! Pods that have ended before their job is seen to have.
//!
//! A member shows the end of a pod a second or more before Karmada shows the end of its job. In
//! between the pod's room is free while its charge is not, and whoever is given that room may
//! stand behind those for whom the charge will be free: it would start, and be taken back for
//! them a moment later. So a pod that has ended keeps its room until its job's charge ends, for
//! at most [`LINGER_MS`]; not beside a new pod of its job, for which the room may be meant.

use super::Engine;
use crate::event::Progress;
use crate::facts::PodFact;
use crate::ids::{ClusterName, JobKey, Time, Uid};
use std::collections::BTreeMap;

/// Milliseconds for which a pod that has ended keeps its room at most: several times what
/// Karmada takes to show the end of a job.
pub(crate) const LINGER_MS: i64 = 5_000;

/// Such pods by job. There are few: jobs that ended within the last seconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lingering(BTreeMap<JobKey, Vec<(Time, PodFact)>>);

impl Lingering {
    /// Until when the first of them keeps its room.
    pub(crate) fn next(&self) -> Option<Time> {
        let pods = self.0.values().flatten();
        pods.map(|(until, _)| *until).min()
    }

    /// All, with until when each keeps its room.
    pub(crate) fn all(&self) -> impl Iterator<Item = &(Time, PodFact)> {
        self.0.values().flatten()
    }

    fn add(&mut self, key: &JobKey, until: Time, fact: PodFact) {
        let pods = self.0.entry(key.clone()).or_default();
        match pods.iter_mut().find(|(_, pod)| pod.uid == fact.uid) {
            Some((_, known)) => *known = fact,
            None => pods.push((until, fact)),
        }
    }

    fn remove(&mut self, cluster: Option<&ClusterName>, uid: Option<&Uid>) {
        self.0.retain(|_, pods| {
            pods.retain(|(_, pod)| {
                let is_meant = cluster.is_none_or(|cluster| pod.cluster == *cluster)
                    && uid.is_none_or(|uid| pod.uid == *uid);
                !is_meant
            });
            !pods.is_empty()
        });
    }

    fn take_due(&mut self, now: Time) -> Vec<PodFact> {
        let mut due = Vec::new();
        self.0.retain(|_, pods| {
            let gone = pods.extract_if(.., |(until, _)| *until <= now);
            due.extend(gone.map(|(_, pod)| pod));
            !pods.is_empty()
        });
        due
    }
}

impl Engine {
    /// A pod is there, or is another.
    pub(crate) fn pod_told(&mut self, fact: PodFact) {
        if let Some(key) = fact.job.clone() {
            if fact.ended && self.keeps_room(&key, &fact) {
                let until = self.now.after(LINGER_MS);
                return self.lingering.add(&key, until, fact);
            }
            let room = self.room.cluster(&fact.cluster);
            if room.is_none_or(|room| !room.pods().contains_key(&fact.uid)) {
                self.end_lingering_of(&key);
            }
        }
        self.room.upsert_pod(fact);
    }

    /// A pod is gone.
    pub(crate) fn pod_gone(&mut self, cluster: &ClusterName, uid: &Uid) {
        self.lingering.remove(Some(cluster), Some(uid));
        self.room.remove_pod(cluster, uid);
    }

    /// A cluster is gone, and all its pods.
    pub(crate) fn drop_lingering_in(&mut self, cluster: &ClusterName) {
        self.lingering.remove(Some(cluster), None);
    }

    /// The job's charge has ended: its pods that have ended keep nothing.
    pub(crate) fn end_lingering_of(&mut self, key: &JobKey) {
        for (_, pod) in self.lingering.0.remove(key).unwrap_or_default() {
            self.room.upsert_pod(pod);
        }
    }

    /// Pods that ended so long ago keep nothing, though their jobs are charged.
    pub(crate) fn end_lingering(&mut self) {
        for pod in self.lingering.take_due(self.now) {
            self.room.upsert_pod(pod);
        }
    }

    /// Goes on from a snapshot.
    pub(crate) fn restore_lingering(&mut self, pods: Vec<(Time, PodFact)>) {
        for (until, pod) in pods {
            if let Some(key) = pod.job.clone() {
                self.lingering.add(&key, until, pod);
            }
        }
    }

    /// Whether a pod that has ended held room until now, for a job that is charged and neither
    /// over nor being taken back.
    fn keeps_room(&self, key: &JobKey, fact: &PodFact) -> bool {
        let room = self.room.cluster(&fact.cluster);
        let known = room.and_then(|room| room.pods().get(&fact.uid));
        let job = self
            .jobs
            .get(key)
            .filter(|job| job.derived.charge.is_some());
        let released = job.and_then(|job| job.released.as_ref());
        let over = |progress| matches!(progress, Progress::Ending | Progress::Finished);
        known.is_some_and(|pod| !pod.ended && pod.node.is_some())
            && released.is_some_and(|released| !over(released.progress))
    }
}
