//! A gang on nodes of several classes of one cluster, within the bounds on each class.
//!
//! Packing knows no bounds: the best packing may put more on nodes of a class than its bounds allow,
//! while nodes of another class have capacity. The excess is withheld on the nodes of that class, and
//! the gang is packed again, until no bound is exceeded or capacity is short. For one role this finds a
//! packing whenever there is one.

use crate::api::charge::pools_of;
use crate::capacity::{FittingPods, NodeInfo, NodeView, Packing, Place};
use crate::overlay::Overlay;
use crate::placement::candidate::{self, PlacementCandidate};
use crate::placement::plan::{self, NoPlan};
use crate::placement::request::GangRequest;
use crate::placement::score::Weights;
use crate::quota::Shortfall;
use crate::state::Inputs;
use facts::{NodeName, Share};
use std::collections::BTreeMap;

/// How often the gang is packed on one cluster: several bounds may be exceeded one after another.
const PACKED: usize = 16;

/// The best of the options that exceeds no bound on a class of pools; else the bound that the closest of
/// them exceeds, if there are any.
pub(crate) fn first_within_bounds(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    mut options: Vec<PlacementCandidate>,
) -> Result<(Vec<Share>, i128), Option<NoPlan>> {
    options.sort_by(|a, b| a.score.cmp(&b.score));
    let mut why = None;
    for option in options {
        let parts = option.parts.iter().map(|part| {
            let cluster = &inputs.capacity.places()[part.place];
            plan::share_of(inputs, cluster, &gang.shape.demand, &part.packing)
        });
        let mut shares: Vec<Share> = parts.collect();
        shares.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        let pools = pools_of(&shares);
        match inputs.quota.check_pools(gang.queue, &pools, overlay) {
            Ok(()) => return Ok((shares, option.score.weighted)),
            Err(short) => {
                why = Some(NoPlan::worse(why, NoPlan::Bound(Box::new(short), pools)));
            }
        }
    }
    Err(why)
}

/// The same if all options on these clusters exceed a bound: nodes of several classes may take the gang
/// together. What they are short of for that, a bound that can be met later or capacity, is closer to a plan than a
/// bound that could never be met.
pub(crate) fn mixed_within_bounds(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    places: impl Iterator<Item = (Place, FittingPods)>,
    (weights, exceeded): (&Weights<'_>, NoPlan),
) -> Result<(Vec<Share>, i128), NoPlan> {
    let mut options = Vec::new();
    let mut short: Option<NoPlan> = None;
    for (place, fitting) in places {
        match mixed_on(inputs, gang, overlay, place) {
            Some(Ok(packing)) => {
                let whole = (place, packing);
                let scored =
                    candidate::scored_whole(inputs, gang, overlay, whole, fitting, weights);
                options.push(scored);
            }
            Some(Err(why)) => short = Some(NoPlan::worse(short, why)),
            None => {}
        }
    }
    let never = matches!(&exceeded, NoPlan::Bound(short, _) if short.never());
    first_within_bounds(inputs, gang, overlay, options).map_err(|_| match short {
        Some(short) if never => short,
        _ => exceeded,
    })
}

/// All on nodes of one cluster, on those of each class as many as its bounds allow, or what is short for
/// that: a bound that can be met later, or else capacity. Nothing if it makes no difference which nodes they are.
fn mixed_on(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    place: Place,
) -> Option<Result<Packing, NoPlan>> {
    let demand = &gang.shape.demand;
    let cluster = &inputs.capacity.places()[place];
    let known = inputs.capacity.cluster(cluster);
    known.filter(|known| !known.is_uniform())?;
    let mut overlay = overlay.clone();
    let mut later = None;
    for packed in 0..PACKED {
        let packing = plan::place_all(inputs, demand, cluster, NodeView::of(&overlay));
        if let Some(lack) = plan::lack_of(inputs, gang, cluster, &packing, &overlay) {
            let why = || later.unwrap_or_else(|| NoPlan::NoRoom(vec![lack]));
            return (packed > 0).then(|| Err(why()));
        }
        let share = plan::share_of(inputs, cluster, demand, &packing);
        let pools = pools_of(std::slice::from_ref(&share));
        match inputs.quota.check_pools(gang.queue, &pools, &overlay) {
            Ok(()) => return Some(Ok(packing)),
            Err(short) => {
                withhold_excess(inputs, gang, &mut overlay, (place, &packing), &short);
                if !short.never() {
                    later = later.or(Some(NoPlan::Bound(Box::new(short), pools)));
                }
            }
        }
    }
    None
}

/// Leaves of the resource that is short, on nodes that count towards the bound, no more than the pods
/// that are there and that the bound allows.
fn withhold_excess(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &mut Overlay,
    (place, packing): (Place, &Packing),
    short: &Shortfall,
) {
    let cluster = &inputs.capacity.places()[place];
    let Some(known) = inputs.capacity.cluster(cluster) else {
        return;
    };
    let nodes = known.nodes().values();
    let counted: BTreeMap<&NodeName, &NodeInfo> = nodes
        .filter(|node| short.counts(cluster, &node.fact.class))
        .map(|node| (&node.fact.name, node))
        .collect();
    let mut excess = short.excess();
    let mut stays: BTreeMap<&NodeName, i128> = BTreeMap::new();
    for placed in packing.placed.iter().rev() {
        let request = gang.shape.demand.roles[placed.role].request_in(cluster);
        let each = i128::from(request.amount_of(&short.resource).0);
        if each <= 0 || !counted.contains_key(&placed.node) {
            continue;
        }
        let leave = (excess.max(0) + each - 1) / each;
        let leave = leave.min(i128::from(placed.count));
        excess -= leave * each;
        *stays.entry(&placed.node).or_default() += (i128::from(placed.count) - leave) * each;
    }
    // A gang that must be in one domain may fit in another: only the nodes that it would use count.
    let close = gang
        .shape
        .demand
        .topology
        .is_some_and(|topology| topology.hard);
    for (name, node) in counted {
        let Some(stays) = stays.get(name).copied().or((!close).then_some(0)) else {
            continue;
        };
        let free = if overlay.is_of_empty_fleet() {
            i128::from(node.fact.allocatable.amount_of(&short.resource).0)
        } else {
            inputs.capacity.free_of(node, &short.resource)
        };
        let withheld = overlay.node_mut(cluster, name);
        let more = free - stays - withheld.get(&short.resource);
        withheld.add_amount(&short.resource, more.max(0));
    }
}
