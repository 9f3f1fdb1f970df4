//! Which pulls of images are due: the engine says what is reserved, and the policies of the queues whether they want
//! it.

use crate::messages::action::{BoundJob, Effect};
use crate::mirror::Mirror;
use crate::pre_pulls::{PrePullChange, PrePulls};
use crate::reconcile::output::Output;
use engine::{Engine, JobKey, JobState, QueueName, Time, Uid};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Requests the Works that pull images, and the deletion of those that are not needed any more.
pub(crate) fn pre_pull(
    pre_pulls: &mut PrePulls,
    mirror: &Mirror,
    engine: &Engine,
    out: &mut Output,
    now: Time,
) {
    if !pre_pulls.is_due(now) {
        return;
    }
    let policies = mirror.policies().iter();
    let queues: BTreeSet<QueueName> = policies
        .filter(|(_, policy)| policy.pre_pulls())
        .map(|(queue, _)| queue.clone())
        .collect();
    if queues.is_empty() && pre_pulls.is_empty() {
        return;
    }
    let pulls = engine.pre_pulls(&|queue| queues.contains(queue));
    let starts = |key: &JobKey, uid: &Uid| {
        engine.job(key).is_some_and(|job| {
            job.uid == uid && matches!(job.state, JobState::Assumed | JobState::Placed)
        })
    };
    for change in pre_pulls.due(pulls, starts, now) {
        request_pull(mirror, out, change);
    }
}

fn request_pull(mirror: &Mirror, out: &mut Output, change: PrePullChange) {
    let pull = match change {
        PrePullChange::Make(pull, seconds) => (pull, seconds),
        PrePullChange::End(cluster, uid) => {
            return out.push(Effect::EndPrePull { cluster, uid });
        }
    };
    let (pull, seconds) = pull;
    let Some(binding) = mirror.bindings().get(&pull.job) else {
        return; // requested again if the job is still there
    };
    let job = BoundJob {
        key: pull.job.clone(),
        binding: Arc::clone(binding),
    };
    tracing::info!(job = %pull.job, cluster = %pull.cluster, nodes = pull.nodes.len(), "its images are pulled on the nodes that are reserved for it");
    out.push(Effect::PrePull {
        job,
        pull: Box::new(pull),
        seconds,
    });
}
