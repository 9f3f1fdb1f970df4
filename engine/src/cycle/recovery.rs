//! Running gangs that have lost pods: they are found, capacity is assumed for new pods, and the gang is
//! evicted if the pods do not come.

use crate::api::decision::Decision;
use crate::cycle::{lifecycle, start, sync};
use crate::jobs::deadline::room_lost_at;
use crate::jobs::recovery::{Loss, least_running, recovery_ends};
use crate::state::{Engine, Inputs};
use facts::{ClusterName, JobKey, Progress, Reason};

/// Checks the admitted jobs of which pods or their nodes changed.
pub(crate) fn check_pods(engine: &mut Engine) {
    let changed = engine.capacity.take_pods_changed();
    changed.iter().for_each(|key| engine.pod_charges.note(key));
    if engine.config.recovery_deadline_ms.is_none() {
        return;
    }
    for key in changed {
        start::check_start(engine, &key);
        check_loss(engine, &key);
    }
}

/// A cluster can be seen again: what its jobs have lost is evaluated by what it shows now.
pub(crate) fn note_jobs_in(engine: &mut Engine, cluster: &ClusterName) {
    let jobs = engine.jobs.admitted().filter(|(_, job)| {
        let shares = job
            .released
            .iter()
            .flat_map(|released| &released.admission.shares);
        shares.into_iter().any(|share| share.cluster == *cluster)
    });
    let jobs: Vec<JobKey> = jobs.map(|(key, _)| key.clone()).collect();
    jobs.iter()
        .for_each(|key| engine.capacity.note_pods_of(key));
}

/// Checks whether a running job is below its minimum of pods.
fn check_loss(engine: &mut Engine, key: &JobKey) {
    let Some(released) = engine.jobs.released(key) else {
        return;
    };
    let found = loss_of(engine.inputs(), key);
    if found.is_none() && released.loss.is_none() {
        return;
    }
    let lost = found.as_ref().is_some_and(|loss| !loss.devices);
    let basis = released
        .basis
        .clone()
        .map(|basis| (basis, released.admission.shares.clone()));
    let changed = engine.jobs.set_loss(key, found);
    if !changed {
        return;
    }
    match basis.filter(|_| lost) {
        Some((demand, shares)) => engine.capacity.assume_lost(key, &demand, &shares),
        None => engine.capacity.forget(key),
    }
    engine.changed.jobs.insert(key.clone());
    sync::sync_indexes(engine, key);
}

/// Evicts a job whose recovery has taken too long.
pub(crate) fn evict_unrecovered(engine: &mut Engine, key: &JobKey) -> Option<Decision> {
    let released = engine.jobs.released(key)?;
    let ends = recovery_ends(&engine.config, &engine.quota, released)?;
    if ends > engine.now {
        return None;
    }
    let loss = released.loss.as_ref()?;
    let seconds = engine.now.millis_since(loss.since) / 1000;
    let Loss {
        cluster,
        healthy,
        least,
        ..
    } = loss;
    if loss.devices {
        let message = format!(
            "for {seconds} s {healthy} of the {least} pods it needs on {cluster} have worked: devices of the others \
             have failed, or they are not Ready"
        );
        return lifecycle::evict(engine, key, Reason::PodsLost, &message, None);
    }
    let fits = room_lost_at(&engine.config, released).is_none_or(|(at, _)| at > engine.now);
    let why = match fits {
        true => "and no others took their place",
        false => "and others fit on no nodes there",
    };
    let message = format!(
        "for {seconds} s {healthy} of the {least} pods it needs on {cluster} have been running, {why}"
    );
    lifecycle::evict(engine, key, Reason::PodsLost, &message, None)
}

/// The first share of a running job that is below its minimum. A cluster that cannot be seen says
/// nothing.
fn loss_of(inputs: Inputs<'_>, key: &JobKey) -> Option<Loss> {
    let job = inputs.jobs.get(key)?;
    let released = job.released.as_deref()?;
    if released.progress != Progress::Running || released.admission.uid != job.uid {
        return None;
    }
    let visible = |cluster: &_| {
        let fact = inputs.capacity.cluster_fact(cluster);
        fact.is_some_and(|fact| fact.usable)
    };
    let mut shares = released.admission.shares.iter();
    shares.find_map(|share| {
        let of = share.replicas();
        let healthy = inputs.capacity.healthy_pods(key, &share.cluster, of);
        let least = least_running(job, released, share);
        (healthy < least && visible(&share.cluster)).then(|| Loss {
            since: inputs.now,
            cluster: share.cluster.clone(),
            healthy,
            least,
            devices: inputs.capacity.present_pods(key, &share.cluster, of) >= least,
        })
    })
}
