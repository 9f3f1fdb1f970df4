//! The images that nodes can pull while they are reserved for a job, before it starts.
//!
//! Only what is asked for: no decision waits for a pull or depends on one.

use crate::api::decision::PrePull;
use crate::capacity::leading;
use crate::placement::lookup::largest_role;
use crate::state::Inputs;
use facts::{ClusterName, JobKey, NodeName, QueueName, Resources, Time};
use std::collections::BTreeMap;

/// The longest time before the expected start, in milliseconds: an hour. A node may delete images that it does not use.
const AHEAD_MS: i64 = 3_600_000;

/// The pulls for the owners of reserved nodes in the queues that want them.
pub(crate) fn pre_pulls(inputs: Inputs<'_>, wanted: &dyn Fn(&QueueName) -> bool) -> Vec<PrePull> {
    let is_soon =
        |start: Option<Time>| start.is_none_or(|start| start.millis_since(inputs.now) <= AHEAD_MS);
    let reservations = inputs.reservations.with_nodes();
    let wanted = reservations.filter(|owner| wanted(&owner.queue) && is_soon(owner.start));
    let pulls = wanted.flat_map(|owner| {
        let nodes = owner.nodes.iter();
        let nodes = nodes.map(|node| (&node.cluster, &node.node, &node.resources));
        pulls_of(inputs, &owner.rank.key, nodes, owner.start)
    });
    pulls.collect()
}

/// The pulls of one job, one for each cluster: on those of its nodes that are reserved for pods of the largest role and
/// lack an image of it.
fn pulls_of<'a>(
    inputs: Inputs<'_>,
    key: &JobKey,
    nodes: impl Iterator<Item = (&'a ClusterName, &'a NodeName, &'a Resources)>,
    start: Option<Time>,
) -> Vec<PrePull> {
    let Some(job) = inputs.jobs.get(key).filter(|job| !job.images.is_empty()) else {
        return Vec::new();
    };
    let Some(role) = job.demand.as_deref().and_then(largest_role) else {
        return Vec::new();
    };
    let counted = leading(&role.request);
    let without = nodes.filter(|(cluster, node, reserved)| {
        counted.is_some_and(|name| reserved.amount_of(name).0 > 0)
            && !inputs.capacity.has_images(job.images.iter(), cluster, node)
    });
    let mut pulls: BTreeMap<&ClusterName, PrePull> = BTreeMap::new();
    for (cluster, node, _) in without {
        let pull = pulls.entry(cluster).or_insert_with(|| PrePull {
            job: key.clone(),
            uid: job.uid.clone(),
            role: role.name.clone(),
            cluster: cluster.clone(),
            nodes: Vec::new(),
            start,
        });
        pull.nodes.push(node.clone());
    }
    pulls.into_values().collect()
}
