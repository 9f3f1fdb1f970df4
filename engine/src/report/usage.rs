//! What queues have and want, for their status.

use crate::api::decision::{Explanation, QueueUsage, Reserved};
use crate::api::ids::{JobKey, QueueName};
use crate::quota::ROOT;
use crate::report::explain;
use crate::state::Inputs;

/// Whether something is charged to a queue or to one below it.
#[must_use]
pub(crate) fn is_charged(inputs: Inputs<'_>, queue: &QueueName) -> bool {
    inputs.quota.is_charged(queue)
}

/// The queues from the top down to `queue`, the root left out: those that what it holds is
/// charged to.
#[must_use]
pub(crate) fn queue_path(inputs: Inputs<'_>, queue: &QueueName) -> Vec<QueueName> {
    let path = inputs.quota.path(queue).into_iter();
    path.filter(|name| name.as_str() != ROOT).collect()
}

/// What a queue has and wants; `None` for one that neither exists nor has jobs.
#[must_use]
pub(crate) fn queue_usage(inputs: Inputs<'_>, queue: &QueueName) -> Option<QueueUsage> {
    let usage = inputs.quota.usage(queue)?;
    Some(QueueUsage {
        head: head(inputs, queue),
        ..usage
    })
}

/// How a bound is exceeded, of the queue that a released job is charged to or of one above it,
/// in a resource that the job has; `None` if none is.
#[must_use]
pub(crate) fn bound_passed_by(inputs: Inputs<'_>, key: &JobKey) -> Option<String> {
    let released = inputs.jobs.get(key)?.released.as_ref()?;
    let queue = &released.admission.queue;
    inputs.quota.exceeded_bound(queue, &released.pools())
}

/// For how many of a queue's own waiting jobs something is kept.
#[must_use]
pub(crate) fn reserved(inputs: Inputs<'_>, queue: &QueueName) -> Reserved {
    let mut reserved = Reserved::default();
    let holders = inputs.reservations.holders_in(queue);
    for kept in holders.filter_map(|rank| inputs.reservations.of(&rank.key)) {
        let count = if kept.taking() {
            &mut reserved.evictions
        } else if kept.nodes.is_empty() {
            &mut reserved.headroom
        } else {
            &mut reserved.nodes
        };
        *count += 1;
    }
    reserved
}

fn head(inputs: Inputs<'_>, queue: &QueueName) -> Option<(JobKey, Explanation)> {
    let key = &inputs
        .pending
        .queues
        .pending_queue(queue)?
        .ranks()
        .first()?
        .key;
    Some((key.clone(), explain::explain(inputs, key)?))
}
