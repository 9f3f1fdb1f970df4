//! Recovery: a running gang that has lost pods and fell below its minimum.
//!
//! Its own controller may replace the pods, for as long as the recovery deadline says. Capacity for them
//! is assumed meanwhile, as for a gang that starts. If they fit nowhere in their cluster, or the deadline
//! passes, the gang is evicted and queued again at its old position, without a back-off.

use crate::config::EngineConfig;
use crate::jobs::deadline::room_lost_at;
use crate::jobs::job::{Job, Released};
use crate::jobs::store::Jobs;
use crate::quota::Quota;
use facts::{ClusterName, JobKey, Progress, Share, Time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A share that runs with fewer pods than the gang needs there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    /// When that was first seen.
    pub(crate) since: Time,
    /// The cluster.
    pub(crate) cluster: ClusterName,
    /// The pods that run there.
    pub(crate) healthy: u32,
    /// The pods that the gang needs there.
    pub(crate) least: u32,
    /// True if enough pods are there, and do not work: devices of theirs have failed, or they are not Ready.
    #[serde(default)]
    pub(crate) devices: bool,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            healthy,
            least,
            ..
        } = self;
        if self.devices {
            return write!(
                f,
                "{healthy} of the {least} pods it needs on {cluster} work: devices of the others have failed, or they \
                 are not Ready; if that does not change, it is evicted and queued again"
            );
        }
        write!(
            f,
            "runs with {healthy} of the {least} pods it needs on {cluster}; if others do not take the place of \
             those that are lost, it is evicted and queued again"
        )
    }
}

impl Jobs {
    /// Sets whether something keeps pods of a starting job from running.
    pub(crate) fn set_pods_kept(&mut self, key: &JobKey, kept: bool) {
        if let Some(released) = self.released_mut(key) {
            released.pods_kept = kept;
        }
    }

    /// Sets which share of a running job is below its minimum; the time of an earlier loss is kept.
    /// Returns whether the loss has changed.
    pub(crate) fn set_loss(&mut self, key: &JobKey, loss: Option<Loss>) -> bool {
        let Some(released) = self.released_mut(key) else {
            return false;
        };
        let before = released.loss.take();
        let since = before.as_ref().map(|before| before.since);
        released.loss = loss.map(|loss| Loss {
            since: since.unwrap_or(loss.since),
            ..loss
        });
        released.placed = released.loss.is_some();
        if released.loss.is_none() {
            released.room_lost = None;
        }
        released.loss != before
    }
}

/// The pods that must run of a share of a running job: its part of the gang's minimum when it was
/// admitted, or of what its template says since, if that is less. An elastic gang has the same minimum at
/// each size.
pub(crate) fn least_running(job: &Job, released: &Released, share: &Share) -> u32 {
    let shares = released.admission.shares.iter();
    let admitted = shares.map(|share| u64::from(share.replicas())).sum();
    let demands = released.basis.iter().chain(&job.demand);
    demands
        .map(|demand| demand.min_of_part(share.replicas(), admitted))
        .min()
        .unwrap_or(0)
}

/// When a job that has lost pods is evicted: at its recovery deadline, or before it if its pods have no
/// capacity where they were.
pub(crate) fn recovery_ends(
    config: &EngineConfig,
    queues: &Quota,
    released: &Released,
) -> Option<Time> {
    let loss = released.loss.as_ref()?;
    if released.progress != Progress::Running {
        return None;
    }
    let policy = queues.policy(&released.admission.queue);
    let allowed = policy.and_then(|policy| policy.recovery_deadline_ms);
    let by_default = match loss.devices {
        true => config
            .recovery_deadline_ms
            .map(|pods| pods.max(config.device_deadline_ms)),
        false => config.recovery_deadline_ms,
    };
    let allowed = allowed.or(by_default)?;
    let deadline = loss.since.after(allowed);
    let no_capacity = room_lost_at(config, released).map(|(at, _)| at);
    Some(no_capacity.map_or(deadline, |at| at.min(deadline)))
}
