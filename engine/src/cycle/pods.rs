//! What a pod that is observed means beside the capacity that it uses: one that has ended may keep its capacity for
//! its job during the completion grace, and one may take what is reserved.

use crate::amounts::totals::ResourceTotals;
use crate::cycle::react::{Change, react};
use crate::state::{Engine, Inputs};
use facts::{ClusterName, JobKey, NodeName, PodFact, PodPhase, Progress, Uid};

/// A pod exists, or changed.
pub(crate) fn observe_pod(engine: &mut Engine, fact: PodFact) {
    if let Some(key) = fact.job.clone() {
        if fact.phase == PodPhase::Ended && starts_grace(engine.inputs(), &key, &fact) {
            engine.pod_charges.note(&key);
            let now = engine.now;
            return engine.capacity.begin_grace(&key, fact, false, now);
        }
        if engine.capacity.pod(&fact.cluster, &fact.uid).is_none() {
            engine.capacity.end_grace_of(&key);
        }
    }
    engine.capacity.forget_grace_of(&fact.uid);
    let cluster = &fact.cluster;
    let reserved = fact.node.as_ref();
    let reserved = reserved.filter(|node| engine.reservations.kept_on(cluster, node).is_some());
    let Some((cluster, node)) = reserved.map(|node| (cluster.clone(), node.clone())) else {
        return engine.capacity.upsert_pod(fact);
    };
    let mut less = free_on(engine.inputs(), &cluster, &node);
    engine.capacity.upsert_pod(fact);
    // What a job's pod takes was assumed, most often.
    less.add_totals(&free_on(engine.inputs(), &cluster, &node), -1);
    less.drop_negative();
    if !less.is_empty() {
        react(engine, Change::ReservedNodeTaken(&cluster, &node));
    }
}

fn free_on(inputs: Inputs<'_>, cluster: &ClusterName, node: &NodeName) -> ResourceTotals {
    let nodes = inputs.capacity.cluster(cluster).map(|room| room.nodes());
    let node = nodes.and_then(|nodes| nodes.get(node));
    node.map(|node| inputs.capacity.free_on(node))
        .unwrap_or_default()
}

/// A pod is gone.
pub(crate) fn observe_pod_gone(engine: &mut Engine, cluster: &ClusterName, uid: &Uid) {
    if let Some(pod) = engine.capacity.pod(cluster, uid).cloned()
        && let Some(key) = pod.job.clone()
        && starts_grace(engine.inputs(), &key, &pod)
    {
        let pod = PodFact {
            phase: PodPhase::Ended,
            ..pod
        };
        engine.pod_charges.note(&key);
        let now = engine.now;
        return engine.capacity.begin_grace(&key, pod, true, now);
    }
    engine.capacity.forget_grace_of(uid);
    engine.capacity.remove_pod(cluster, uid);
}

/// Returns true if a pod that has ended used capacity until now, for a job that is charged, has not ended, and
/// is neither being evicted nor shrunk.
fn starts_grace(inputs: Inputs<'_>, key: &JobKey, fact: &PodFact) -> bool {
    let known = inputs.capacity.pod(&fact.cluster, &fact.uid);
    let job = inputs
        .jobs
        .get(key)
        .filter(|job| job.derived.has.charge.is_some());
    let released = job.and_then(|job| job.released.as_ref());
    let over = |progress| matches!(progress, Progress::Ending | Progress::Finished);
    known.is_some_and(|pod| !pod.ended() && pod.node.is_some())
        && released.is_some_and(|released| !over(released.progress) && released.leaving.is_empty())
}
