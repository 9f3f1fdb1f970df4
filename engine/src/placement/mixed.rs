//! A gang on nodes of several classes of one cluster, within the bounds on each class.
//!
//! Room knows no bounds: the packing that fits best may put more on nodes of a class than its
//! bounds leave, while nodes of another class have room. What is too much is taken off the nodes
//! of that class, and the gang is packed again, until no bound is passed or room is short. For
//! one role this finds a packing whenever there is one.

use crate::api::charge::pools_of;
use crate::api::demand::Demand;
use crate::api::facts::Share;
use crate::api::ids::{NodeName, QueueName};
use crate::capacity::{Basis, FittingPods, NodeInfo, Packing, Place};
use crate::pending::shapes::RequestShape;
use crate::placement::plan;
use crate::placement::plan::{ClusterLack, NoPlan, PlacementCandidate, View, all_needs, node_view};
use crate::placement::score::Weights;
use crate::quota::Shortfall;
use crate::state::Inputs;
use std::collections::BTreeMap;

/// How often the gang is packed on one cluster: several bounds may be passed one after another.
const PACKED: usize = 16;

/// The best of the options that passes no bound on a class of pools; else the bound that
/// the closest of them passes, if there are any.
pub(crate) fn first_within_bounds(
    inputs: Inputs<'_>,
    queue: &QueueName,
    shape: &RequestShape,
    view: &View,
    mut options: Vec<PlacementCandidate>,
) -> Result<(Vec<Share>, i128), Option<NoPlan>> {
    options.sort_by(|a, b| a.score.cmp(&b.score));
    let mut why = None;
    for option in options {
        let mut shares: Vec<Share> = option
            .parts
            .iter()
            .map(|(place, packing)| {
                plan::share_of(
                    inputs,
                    &inputs.capacity.places()[*place],
                    &shape.demand,
                    packing,
                )
            })
            .collect();
        shares.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        let pools = pools_of(&shares);
        match inputs.quota.check_pools(queue, &pools, &view.kept) {
            Ok(()) => return Ok((shares, option.score.weighted)),
            Err(short) => {
                why = Some(NoPlan::worse(why, NoPlan::Bound(Box::new(short), pools)));
            }
        }
    }
    Err(why)
}

/// The same where all options on these clusters pass a bound: nodes of several classes may
/// take the gang together. What a cluster lacks for that is closer to a plan than a bound
/// that could never be kept.
pub(crate) fn mixed_within_bounds(
    inputs: Inputs<'_>,
    queue: &QueueName,
    shape: &RequestShape,
    view: &View,
    places: impl Iterator<Item = (Place, FittingPods)>,
    (aims, passed): (&Weights<'_>, NoPlan),
) -> Result<(Vec<Share>, i128), NoPlan> {
    let mut options = Vec::new();
    let mut lacks = Vec::new();
    for (place, fitting) in places {
        match mixed_on(inputs, queue, shape, view, place) {
            Some(Ok(packing)) => {
                let parts = vec![(place, packing)];
                options.push(plan::scored(
                    inputs,
                    shape,
                    view,
                    parts,
                    &[fitting],
                    0,
                    aims,
                ));
            }
            Some(Err(lack)) => lacks.push(lack),
            None => {}
        }
    }
    let never = matches!(&passed, NoPlan::Bound(short, _) if short.never());
    first_within_bounds(inputs, queue, shape, view, options).map_err(|_| {
        match never && !lacks.is_empty() {
            true => NoPlan::NoRoom(lacks),
            false => passed,
        }
    })
}

/// All on nodes of one cluster, as many on those of each class as its bounds leave, or what
/// lacks for that; nothing where it makes no difference which nodes they are.
fn mixed_on(
    inputs: Inputs<'_>,
    queue: &QueueName,
    shape: &RequestShape,
    view: &View,
    place: Place,
) -> Option<Result<Packing, ClusterLack>> {
    let cluster = &inputs.capacity.places()[place];
    inputs
        .capacity
        .cluster(cluster)
        .filter(|r| !r.is_uniform())?;
    let needs = all_needs(&shape.demand);
    let topology = shape.demand.topology.as_ref();
    let mut view = view.clone();
    for packed in 0..PACKED {
        let node_view = node_view(&view, cluster, None);
        let packing = inputs.capacity.place(cluster, &needs, &node_view, topology);
        if let Some(lack) = plan::lack_of(inputs, cluster, &shape.demand, &packing, &view) {
            return (packed > 0).then_some(Err(lack));
        }
        let share = plan::share_of(inputs, cluster, &shape.demand, &packing);
        let pools = pools_of(std::slice::from_ref(&share));
        match inputs.quota.check_pools(queue, &pools, &view.kept) {
            Ok(()) => return Some(Ok(packing)),
            Err(short) => hold_back(inputs, &mut view, place, &shape.demand, &packing, &short),
        }
    }
    None
}

/// Leaves of the resource that is short, on nodes that count towards the bound, no more than
/// the pods that are there and that the bound lets.
fn hold_back(
    inputs: Inputs<'_>,
    view: &mut View,
    place: Place,
    demand: &Demand,
    packing: &Packing,
    short: &Shortfall,
) {
    let cluster = &inputs.capacity.places()[place];
    let Some(room) = inputs.capacity.cluster(cluster) else {
        return;
    };
    let nodes = room.nodes().values();
    let counted: BTreeMap<&NodeName, &NodeInfo> = nodes
        .filter(|node| short.counts(cluster, &node.fact.class))
        .map(|node| (&node.fact.name, node))
        .collect();
    let mut excess = short.excess();
    let mut stays: BTreeMap<&NodeName, i128> = BTreeMap::new();
    for placed in packing.placed.iter().rev() {
        let each = i128::from(
            demand.roles[placed.role]
                .request
                .amount_of(&short.resource)
                .0,
        );
        if each <= 0 || !counted.contains_key(&placed.node) {
            continue;
        }
        let leave = (excess.max(0) + each - 1) / each;
        let leave = leave.min(i128::from(placed.count));
        excess -= leave * each;
        *stays.entry(&placed.node).or_default() += (i128::from(placed.count) - leave) * each;
    }
    // A gang that has to be close may be so elsewhere: only the nodes that it would be on count.
    let close = demand.topology.is_some_and(|topology| topology.hard);
    let kept = view.nodes.entry(cluster.clone()).or_default();
    for (name, node) in counted {
        let Some(stays) = stays.get(name).copied().or((!close).then_some(0)) else {
            continue;
        };
        let free = match view.basis {
            Basis::Now => inputs.capacity.free_of(node, &short.resource),
            Basis::Empty => i128::from(node.fact.allocatable.amount_of(&short.resource).0),
        };
        let kept = kept.entry(name.clone()).or_default();
        let more = free - stays - kept.get(&short.resource);
        kept.add_amount(&short.resource, more.max(0));
    }
}
