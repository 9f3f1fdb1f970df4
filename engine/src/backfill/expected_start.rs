//! When the jobs on reserved nodes are expected to have ended.

use crate::amounts::totals::ResourceTotals;
use crate::cost;
use crate::reservation::store::ReservedNode;
use crate::state::Inputs;
use facts::{Amount, ClusterName, JobKey, NodeName, Time};
use std::collections::BTreeMap;

/// When all of `nodes` will have free what is reserved on them, by the expected ends.
pub(crate) fn start_on(inputs: Inputs<'_>, nodes: &[ReservedNode]) -> Option<Time> {
    let mut start = inputs.now;
    for reserved in nodes {
        start = start.max(start_on_node(inputs, reserved)?);
    }
    Some(start)
}

/// Returns true if a job starts on `nodes` when it was expected to, although some of them have become free: one of them
/// is still free no sooner than that.
pub(crate) fn is_still(inputs: Inputs<'_>, nodes: &[ReservedNode], start: Option<Time>) -> bool {
    let mut nodes = nodes.iter();
    nodes.any(|node| start_on_node(inputs, node) == start)
}

/// When the first of `nodes` will have free what is reserved on it, by the expected ends.
pub(crate) fn first_free(inputs: Inputs<'_>, nodes: &[ReservedNode]) -> Option<Time> {
    let free = nodes.iter().map(|node| start_on_node(inputs, node));
    free.flatten().min()
}

fn start_on_node(inputs: Inputs<'_>, reserved: &ReservedNode) -> Option<Time> {
    cost::node_visits(1);
    let node = inputs
        .capacity
        .cluster(&reserved.cluster)?
        .nodes()
        .get(&reserved.node)?;
    let mut amounts = reserved.resources.iter();
    let has = |name, amount: Amount| inputs.capacity.free_of(node, name) >= i128::from(amount.0);
    if amounts.all(|(name, amount)| amount.0 <= 0 || has(name, amount)) {
        return Some(inputs.now);
    }
    let mut free = inputs.capacity.free_on(node);
    let mut ends: Vec<(Time, &JobKey, ResourceTotals)> =
        jobs_on(inputs, &reserved.cluster, &reserved.node)
            .into_iter()
            .filter_map(|(key, amount)| {
                let expected = inputs.jobs.get(key)?.derived.has.expected_end;
                let end = expected.filter(|end| *end > inputs.now)?;
                Some((end, key, amount))
            })
            .collect();
    ends.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    ends.into_iter().find_map(|(end, _, amount)| {
        free.add_totals(&amount, 1);
        (free.fits(&reserved.resources, 1) == 1).then_some(end)
    })
}

/// Returns what each job has of a node, bound or assumed.
pub(crate) fn jobs_on<'a>(
    inputs: Inputs<'a>,
    cluster: &ClusterName,
    node: &NodeName,
) -> BTreeMap<&'a JobKey, ResourceTotals> {
    let mut jobs: BTreeMap<&JobKey, ResourceTotals> = BTreeMap::new();
    let known = inputs.capacity.cluster(cluster);
    for pod in known.into_iter().flat_map(|known| known.pods_on(node)) {
        if let Some(key) = pod.job() {
            jobs.entry(key).or_default().add(&pod.request, 1);
        }
    }
    for key in known.into_iter().flat_map(|known| known.placed_on(node)) {
        let Some(assumption) = inputs.capacity.assumed().get(key) else {
            continue;
        };
        for assumed_pod in &assumption.assumed {
            if assumed_pod.cluster == *cluster && assumed_pod.node.as_ref() == Some(node) {
                let request = assumption.request(assumed_pod);
                let held = jobs.entry(key).or_default();
                held.add(request, i64::from(assumed_pod.count));
            }
        }
    }
    jobs
}
