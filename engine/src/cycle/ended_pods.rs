//! Keeps the capacity of ended pods for their job during the completion grace, and gives it up.

use crate::api::event::Progress;
use crate::api::facts::PodFact;
use crate::api::ids::{ClusterName, JobKey, Uid};
use crate::capacity::completion_grace::{Ended, LINGER_MS};
use crate::state::{Engine, Inputs};

/// A pod is there, or is another.
pub(crate) fn pod_told(engine: &mut Engine, fact: PodFact) {
    if let Some(key) = fact.job.clone() {
        if fact.ended && keeps_room(engine.inputs(), &key, &fact) {
            return keep_ended(engine, &key, fact, false);
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
        return keep_ended(engine, &key, pod, true);
    }
    engine.capacity.room.remove_pod(cluster, uid);
}

pub(crate) fn keep_ended(engine: &mut Engine, key: &JobKey, pod: PodFact, gone: bool) {
    let until = engine.now.after(LINGER_MS);
    engine
        .capacity
        .completion_grace
        .add(key, Ended { until, pod, gone });
}

/// A cluster is gone, and all its pods.
pub(crate) fn drop_ended_in(engine: &mut Engine, cluster: &ClusterName) {
    engine
        .capacity
        .completion_grace
        .take(|ended| ended.pod.cluster == *cluster);
}

/// The charge of a job ended or changed: its ended pods give up their capacity.
pub(crate) fn end_completion_grace_of(engine: &mut Engine, key: &JobKey) {
    let ended = engine.capacity.completion_grace.take_job(key);
    ended.into_iter().for_each(|ended| give_up(engine, ended));
}

/// Pods whose completion grace has ended give up their capacity, though their jobs are charged.
pub(crate) fn end_expired(engine: &mut Engine) {
    let now = engine.now;
    let due = engine
        .capacity
        .completion_grace
        .take(|ended| ended.until <= now);
    due.into_iter().for_each(|ended| give_up(engine, ended));
}

pub(crate) fn give_up(engine: &mut Engine, ended: Ended) {
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
pub(crate) fn restore_ended(engine: &mut Engine, pods: Vec<Ended>) {
    for ended in pods {
        if let Some(key) = ended.pod.job.clone() {
            engine.capacity.completion_grace.add(&key, ended);
        }
    }
}

/// Whether a pod that has ended held capacity until now, for a job that is charged, has not finished
/// and is neither being evicted nor shrunk.
pub(crate) fn keeps_room(inputs: Inputs<'_>, key: &JobKey, fact: &PodFact) -> bool {
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
