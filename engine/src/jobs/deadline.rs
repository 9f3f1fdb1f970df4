//! Deadlines of jobs: ends of back-offs, start deadlines, lost capacity, limits of run time.

use crate::config::EngineConfig;
use crate::jobs::ageing;
use crate::jobs::job::{Job, Released};
use crate::jobs::recovery::recovery_ends;
use crate::jobs::runtime::runtime_ends;
use crate::jobs::store::Jobs;
use crate::quota::Quota;
use facts::{ClusterName, Demand, Share, Time};

/// The next time at which a job has to be checked although no event came. Of queued jobs only `pending` ones age.
pub(crate) fn next_look(
    config: &EngineConfig,
    jobs: &Jobs,
    queues: &Quota,
    job: &Job,
    pending: bool,
) -> Option<Time> {
    let Some(released) = &job.released else {
        let ends = job
            .cold
            .back_off_until
            .into_iter()
            .chain(job.cold.avoid.values().copied())
            .chain(
                pending
                    .then(|| ageing::next_step(jobs, queues, job))
                    .flatten(),
            );
        return ends.min();
    };
    if !released.alive() {
        return None;
    }
    let limit = runtime_ends(queues, released);
    if released.loss.is_some() {
        return recovery_ends(config, queues, released)
            .into_iter()
            .chain(limit)
            .min();
    }
    let lost = room_lost_at(config, released).map(|(at, _)| at);
    let deadline = released.placed.then(|| deadline(config, queues, released));
    lost.into_iter().chain(deadline).chain(limit).min()
}

/// When the minimum of pods of an admitted job must be bound.
pub(crate) fn deadline(config: &EngineConfig, queues: &Quota, released: &Released) -> Time {
    let policy = queues.policy(&released.admission.queue);
    let allowed = policy.map_or(config.start_deadline_ms, |policy| policy.start_deadline_ms);
    released.admission.admitted_at.after(allowed)
}

/// When a starting or recovering job is evicted if its pods still fit on no node of the cluster that
/// is returned.
pub(crate) fn room_lost_at<'a>(
    config: &EngineConfig,
    released: &'a Released,
) -> Option<(Time, &'a ClusterName)> {
    let lost = released
        .room_lost
        .as_ref()
        .filter(|_| released.lacks_pods());
    lost.map(|(since, cluster)| (since.after(config.room_lost_grace_ms), cluster))
}

/// The number of pods of a share that must start: its part of the gang's minimum.
pub(crate) fn least_of(demand: &Demand, share: &Share) -> u32 {
    demand.min_of_part(share.replicas(), demand.pods())
}
