//! Pods that have ended before their job is seen to have.
//!
//! A member shows the end of a pod (or that it is gone: those that have ended need not be told of)
//! a second or more before Karmada shows the end of its job. In between the pod's room is free while its charge is not, and whoever is given that room may
//! stand behind those for whom the charge will be free: it would start, and be evicted for
//! them a moment later. So a pod that has ended keeps its room until its job's charge ends or
//! is another, for at most [`LINGER_MS`]; not beside a new pod of its job, for which the room may
//! be meant, nor where the job is being evicted or shrunk: then its room is for its preemptor.

use crate::api::event::Progress;
use crate::api::facts::PodFact;
use crate::api::ids::{ClusterName, JobKey, Time, Uid};
use crate::state::{Engine, Inputs};
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
    /// Whether it is not there any more.
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

    fn take(&mut self, which: impl Fn(&Ended) -> bool) -> Vec<Ended> {
        let mut taken = Vec::new();
        self.0.retain(|_, pods| {
            taken.extend(pods.extract_if(.., |ended| which(ended)));
            !pods.is_empty()
        });
        taken
    }
}

/// A pod is there, or is another.
pub(crate) fn pod_told(engine: &mut Engine, fact: PodFact) {
    if let Some(key) = fact.job.clone() {
        if fact.ended && keeps_room(engine.inputs(), &key, &fact) {
            return linger(engine, &key, fact, false);
        }
        let room = engine.capacity.room.cluster(&fact.cluster);
        if room.is_none_or(|room| !room.pods().contains_key(&fact.uid)) {
            end_completion_grace_of(engine, &key);
        }
    }
    engine.capacity.room.upsert_pod(fact);
}

/// A pod is gone.
pub(crate) fn pod_gone(engine: &mut Engine, cluster: &ClusterName, uid: &Uid) {
    let room = engine.capacity.room.cluster(cluster);
    let known = room.and_then(|room| room.pods().get(uid));
    if let Some(pod) = known.cloned()
        && let Some(key) = pod.job.clone()
        && keeps_room(engine.inputs(), &key, &pod)
    {
        let pod = PodFact { ended: true, ..pod };
        return linger(engine, &key, pod, true);
    }
    engine.capacity.room.remove_pod(cluster, uid);
}

fn linger(engine: &mut Engine, key: &JobKey, pod: PodFact, gone: bool) {
    let until = engine.now.after(LINGER_MS);
    engine
        .capacity
        .completion_grace
        .add(key, Ended { until, pod, gone });
}

/// A cluster is gone, and all its pods.
pub(crate) fn drop_lingering_in(engine: &mut Engine, cluster: &ClusterName) {
    engine
        .capacity
        .completion_grace
        .take(|ended| ended.pod.cluster == *cluster);
}

/// The job's charge has ended, or is another: its pods that have ended keep nothing.
pub(crate) fn end_completion_grace_of(engine: &mut Engine, key: &JobKey) {
    let ended = engine
        .capacity
        .completion_grace
        .0
        .remove(key)
        .unwrap_or_default();
    ended.into_iter().for_each(|ended| give_up(engine, ended));
}

/// Pods that ended so long ago keep nothing, though their jobs are charged.
pub(crate) fn end_lingering(engine: &mut Engine) {
    let now = engine.now;
    let due = engine
        .capacity
        .completion_grace
        .take(|ended| ended.until <= now);
    due.into_iter().for_each(|ended| give_up(engine, ended));
}

fn give_up(engine: &mut Engine, ended: Ended) {
    if ended.gone {
        engine
            .capacity
            .room
            .remove_pod(&ended.pod.cluster, &ended.pod.uid);
    } else {
        engine.capacity.room.upsert_pod(ended.pod);
    }
}

/// Goes on from a snapshot.
pub(crate) fn restore_lingering(engine: &mut Engine, pods: Vec<Ended>) {
    for ended in pods {
        if let Some(key) = ended.pod.job.clone() {
            engine.capacity.completion_grace.add(&key, ended);
        }
    }
}

/// Whether a pod that has ended held room until now, for a job that is charged and neither
/// over nor being evicted, nor some of it.
fn keeps_room(inputs: Inputs<'_>, key: &JobKey, fact: &PodFact) -> bool {
    let room = inputs.capacity.room.cluster(&fact.cluster);
    let known = room.and_then(|room| room.pods().get(&fact.uid));
    let job = inputs
        .jobs
        .get(key)
        .filter(|job| job.derived.has.charge.is_some());
    let released = job.and_then(|job| job.released.as_ref());
    let over = |progress| matches!(progress, Progress::Ending | Progress::Finished);
    known.is_some_and(|pod| !pod.ended && pod.node.is_some())
        && released.is_some_and(|released| !over(released.progress) && released.leaving.is_empty())
}
