//! The usage of queues, for their status.

use crate::api::decision::{Explanation, QueueUsage, Reserved, UnadmittedUsage};
use crate::quota::ROOT;
use crate::report::explain;
use crate::state::Inputs;
use facts::{JobKey, QueueName};

/// The queues from the top down to `queue`, without the root.
pub(crate) fn queue_path(inputs: Inputs<'_>, queue: &QueueName) -> Vec<QueueName> {
    let path = inputs.quota.path(queue).into_iter();
    path.filter(|name| name.as_str() != ROOT).collect()
}

/// Usage, demand and bounds of a queue; `None` if it neither exists nor has jobs.
pub(crate) fn queue_usage(inputs: Inputs<'_>, queue: &QueueName) -> Option<QueueUsage> {
    let usage = inputs.quota.usage(queue)?;
    Some(QueueUsage {
        head: head(inputs, queue),
        unadmitted: unadmitted(inputs, queue),
        ..usage
    })
}

/// Returns what pods use beyond what was admitted, as it is charged to a queue itself.
fn unadmitted(inputs: Inputs<'_>, queue: &QueueName) -> Vec<UnadmittedUsage> {
    let mut used: Vec<UnadmittedUsage> = Vec::new();
    let of_queue = inputs
        .pod_charges
        .iter()
        .filter(|(_, charge)| charge.queue == *queue);
    for (key, charge) in of_queue {
        for ((cluster, _), resources) in charge.pools.iter() {
            let last = used.last_mut();
            let same = last.filter(|last| last.pods_of == *key && last.cluster == *cluster);
            match same.and_then(|same| Some((same.resources.checked_add(resources)?, same))) {
                Some((sum, same)) => same.resources = sum,
                None => used.push(UnadmittedUsage {
                    pods_of: key.clone(),
                    cluster: cluster.clone(),
                    resources: resources.clone(),
                }),
            }
        }
    }
    used
}

/// The number of a queue's own pending jobs that have a reservation, by what is reserved.
pub(crate) fn reserved(inputs: Inputs<'_>, queue: &QueueName) -> Reserved {
    let mut reserved = Reserved::default();
    let owners = inputs.reservations.holders_in(queue);
    for reservation in owners.filter_map(|rank| inputs.reservations.of(&rank.key)) {
        let count = if reservation.taking() {
            &mut reserved.evictions
        } else if reservation.nodes.is_empty() {
            &mut reserved.headroom
        } else {
            &mut reserved.nodes
        };
        *count += 1;
    }
    reserved
}

/// The first pending job of a queue, with its explanation.
fn head(inputs: Inputs<'_>, queue: &QueueName) -> Option<(JobKey, Explanation)> {
    let pending_queue = inputs.pending.queues.pending_queue(queue)?;
    let key = &pending_queue.ranks().first()?.key;
    Some((key.clone(), explain::explain(inputs, key)?))
}
