//! Where a gang would go, and what would be charged for it. Nothing here changes anything.
//!
//! The gang goes whole to one cluster, in one topology domain where that is possible; else, if it may
//! be split, to the fewest clusters that take it together. [`score::PlacementScore`] orders the possible placements.
//! Clusters that cannot hold it are left out by look-up (see [`crate::placement::lookup`]). The best
//! estimates are packed node by node first, and the other clusters only if none of those takes the
//! gang: a placement in one cluster is found whenever there is one. What packing cannot place is put pod by pod
//! (`put_now.rs`).

use crate::amounts::totals::ResourceTotals;
use crate::capacity::{ClusterCapacity, FittingPods, Need, NodeView, Packing, Place};
use crate::cost;
use crate::eligibility::store::{Eligible, groups_of};
use crate::overlay::Overlay;
use crate::pending::shapes::RequestShape;
use crate::placement::candidate::PlacementCandidate;
use crate::placement::eligible::Ineligible;
use crate::placement::lookup::{EXACT, Estimate, largest_role};
pub(crate) use crate::placement::no_plan::{ClusterLack, NoPlan};
use crate::placement::put_now::put_now;
use crate::placement::request::GangRequest;
use crate::placement::score::Weights;
use crate::placement::{
    candidate, eligible, empty, lookup, mixed, score, shortage, split, unmatched, weighted,
};
use crate::state::Inputs;
use facts::{ClusterName, Demand, PoolClass, QueueName, RolePods, Share, Slot, Split};
use std::collections::{BTreeMap, BTreeSet};

/// Where a gang would go. `RequestShape::avoid` counts while another cluster could ever take it.
pub(crate) fn plan(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
) -> Result<Vec<Share>, NoPlan> {
    plan_without(inputs, gang, overlay, avoided(inputs, gang.shape))
}

/// The clusters that a gang avoids, as long as another one could ever take it.
pub(crate) fn avoided<'a>(
    inputs: Inputs<'_>,
    shape: &'a RequestShape,
) -> &'a BTreeSet<ClusterName> {
    static NONE: BTreeSet<ClusterName> = BTreeSet::new();
    let avoid = &shape.avoid;
    let avoids = !avoid.is_empty() && empty::fits_empty_fleet(inputs, shape, avoid);
    if avoids { avoid } else { &NONE }
}

/// Where a gang would go, some clusters left out.
pub(crate) fn plan_without(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    without: &BTreeSet<ClusterName>,
) -> Result<Vec<Share>, NoPlan> {
    cost::plan();
    let mut why = NoPlan::NoCluster(Vec::new());
    let placement = &gang.shape.demand.placement;
    let groups = eligible::eligible_by_group(inputs, placement, without);
    for (index, eligible) in groups.iter().enumerate() {
        let result = if eligible.clusters.is_empty() {
            let rule = &groups_of(placement)[index];
            let (_, ineligible) = eligible::eligible(inputs, placement, rule, without);
            Err(NoPlan::NoCluster(ineligible))
        } else {
            plan_in(inputs, gang, overlay, eligible)
        };
        match result {
            Ok(shares) => return Ok(shares),
            Err(next) => why = why.or(next),
        }
    }
    Err(why)
}

fn plan_in(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    eligible: &Eligible,
) -> Result<Vec<Share>, NoPlan> {
    let packed = pack_in(inputs, gang, overlay, eligible);
    packed.or_else(|why| put_now(inputs, gang, overlay, eligible).ok_or(why))
}

fn pack_in(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    eligible: &Eligible,
) -> Result<Vec<Share>, NoPlan> {
    let demand = &gang.shape.demand;
    let least = demand.placement.min_clusters.unwrap_or(1).max(1);
    let weights = score::weights(inputs, gang);
    if let Some((shares, _)) = weighted::as_wished(inputs, gang, overlay, eligible, &weights) {
        return Ok(shares);
    }
    let whole = (least == 1).then(|| plan_whole(inputs, gang, overlay, eligible, &weights));
    let splits = demand.is_divisible();
    let divided = || split::split(inputs, gang, overlay, eligible, &weights);
    match whole {
        Some(Ok((share, weighted))) => {
            if demand.split == Split::Preferred
                && let Ok((shares, split)) = divided()
                && split < weighted
            {
                return Ok(shares);
            }
            Ok(vec![share])
        }
        Some(Err(why)) if splits => divided()
            .map(|(shares, _)| shares)
            .map_err(|next| why.or(next)),
        Some(Err(why)) => Err(why),
        None if splits => divided().map(|(shares, _)| shares),
        None => {
            let needs = format!("it must go to at least {least} clusters, and cannot be divided");
            let all = eligible.clusters.iter().map(|cluster| Ineligible {
                not_selected: false,
                cluster: cluster.clone(),
                why: needs.clone(),
            });
            Err(NoPlan::NoCluster(all.collect()))
        }
    }
}

/// The whole gang on one cluster, with its weighted score.
fn plan_whole(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    eligible: &Eligible,
    weights: &Weights<'_>,
) -> Result<(Share, i128), NoPlan> {
    let mut why = None;
    let known = lookup::look_up(inputs, gang.shape, overlay, weights);
    let mut looked_at: BTreeSet<Place> = BTreeSet::new();
    let mut next = known.likeliest(&eligible.places);
    let mut others: Option<std::vec::IntoIter<Estimate>> = None;
    while !next.is_empty() {
        let mut options = Vec::new();
        for likely in &next {
            looked_at.insert(likely.place);
            let fitting = known.fitting_at(likely.place);
            match options_on(inputs, gang, overlay, (likely.place, fitting), weights) {
                Ok(found) => options.extend(found),
                Err(lack) => why = Some(NoPlan::worse(why, NoPlan::NoRoom(vec![lack]))),
            }
        }
        let found = match mixed::first_within_bounds(inputs, gang, overlay, options) {
            Err(Some(exceeded)) => {
                let places = next.iter().map(|likely| likely.place);
                let places = places.map(|place| (place, known.fitting_at(place)));
                mixed::mixed_within_bounds(inputs, gang, overlay, places, (weights, exceeded))
                    .map_err(Some)
            }
            found => found,
        };
        match found {
            Ok((mut shares, weighted)) => {
                if let Some(share) = shares.pop() {
                    return Ok((share, weighted));
                }
            }
            Err(Some(short)) => why = Some(NoPlan::worse(why, short)),
            Err(None) => {}
        }
        let others = others.get_or_insert_with(|| {
            let mut others = known.others(&eligible.places, &looked_at);
            others.sort_unstable();
            others.into_iter()
        });
        next = others.take(EXACT).collect();
    }
    let lacks = gang
        .verbose
        .then(|| lacks(inputs, gang, overlay, eligible, &looked_at));
    Err(NoPlan::worse(
        why,
        NoPlan::NoRoom(lacks.unwrap_or_default()),
    ))
}

/// The ways to place all on one cluster: on nodes of one class, for each class that has a device
/// the gang requests, and if none is enough on all together.
fn options_on(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    (place, fitting): (Place, FittingPods),
    weights: &Weights<'_>,
) -> Result<Vec<PlacementCandidate>, ClusterLack> {
    let demand = &gang.shape.demand;
    let cluster = &inputs.capacity.places()[place];
    let mut options = Vec::new();
    let mut lack = None;
    for class in class_choices(inputs, demand, cluster) {
        if class.is_none() && !options.is_empty() {
            break;
        }
        let class = class.as_ref();
        let node_view = NodeView {
            class,
            ..NodeView::of(overlay)
        };
        let packing = place_all(inputs, demand, cluster, node_view);
        match lack_of(inputs, gang, cluster, &packing, overlay) {
            Some(found) => lack = Some(found),
            None => {
                let whole = (place, packing);
                let scored =
                    candidate::scored_whole(inputs, gang, overlay, whole, fitting, weights);
                options.push(scored);
            }
        }
    }
    match lack {
        Some(lack) if options.is_empty() => Err(lack),
        _ => Ok(options),
    }
}

/// All pods on one cluster.
pub(crate) fn place_all(
    inputs: Inputs<'_>,
    demand: &Demand,
    cluster: &ClusterName,
    node_view: NodeView<'_>,
) -> Packing {
    let (needs, topology) = (all_needs(demand), demand.topology.as_ref());
    inputs.capacity.place(cluster, &needs, node_view, topology)
}

/// Returns what the clusters are short of that were not looked at: exact for the best estimates, of the
/// others only that it is not enough.
fn lacks(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    eligible: &Eligible,
    looked_at: &BTreeSet<Place>,
) -> Vec<ClusterLack> {
    let demand = &gang.shape.demand;
    let Some(role) = largest_role(demand) else {
        return Vec::new();
    };
    let fitting = inputs.capacity.fitting_for_role(role);
    let places = inputs.capacity.places();
    let mut others: Vec<(u64, &ClusterName)> = eligible
        .clusters
        .iter()
        .filter_map(|cluster| match places.binary_search(cluster) {
            Ok(place) if looked_at.contains(&place) => None,
            Ok(place) => Some((fitting[place].now, cluster)),
            Err(_) => Some((0, cluster)),
        })
        .collect();
    others.sort_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
    let lacks = others.iter().enumerate();
    let lacks = lacks.filter_map(|(index, (_, cluster))| {
        if index >= EXACT {
            return Some(without_packing(inputs, demand, cluster));
        }
        let packing = place_all(inputs, demand, cluster, NodeView::of(overlay));
        lack_of(inputs, gang, cluster, &packing, overlay)
    });
    lacks.collect()
}

/// Returns what a cluster lacks of which only an estimate is known, not how many pods fit.
fn without_packing(inputs: Inputs<'_>, demand: &Demand, cluster: &ClusterName) -> ClusterLack {
    let known = inputs.capacity.cluster(cluster);
    let of_role = |role| unmatched::unmatched(known, role);
    let named = |role: &usize| of_role(&demand.roles[*role]).is_some_and(|all| !all.is_empty());
    let unmatched = (0..demand.roles.len()).find(named);
    let role = unmatched.unwrap_or(0);
    ClusterLack {
        cluster: cluster.clone(),
        role,
        wanted: demand.roles.get(role).map_or(0, |role| role.count),
        placed: 0,
        nodes: u32::from(unmatched.is_none()),
        domain: None,
        unmatched: demand.roles.get(role).and_then(of_role),
        short: None,
    }
}

/// Classes to try: each that has a device the gang requests, then all together.
fn class_choices(
    inputs: Inputs<'_>,
    demand: &Demand,
    cluster: &ClusterName,
) -> Vec<Option<PoolClass>> {
    let nodes = inputs.capacity.cluster(cluster);
    let Some(nodes) = nodes.filter(|nodes| !ClusterCapacity::is_uniform(nodes)) else {
        return vec![None];
    };
    let requests = |name: &crate::ResourceName| {
        let mut roles = demand.roles.iter().filter(|role| role.count > 0);
        roles.any(|role| role.request_in(cluster).amount_of(name).0 > 0)
    };
    let pools = nodes.pools().keys();
    let classes: BTreeSet<&PoolClass> = pools
        .filter(|key| key.device.as_ref().is_some_and(requests))
        .map(|key| &key.class)
        .collect();
    if classes.len() < 2 {
        return vec![None];
    }
    let each = classes.into_iter().cloned().map(Some);
    each.chain([None]).collect()
}

/// Position of a cluster among the queue's preferred ones; the others come last.
pub(crate) fn preference(inputs: Inputs<'_>, queue: &QueueName, cluster: &ClusterName) -> usize {
    let policy = inputs.quota.policy(queue);
    let preferred = policy.map_or(&[][..], |policy| policy.preferred_clusters.as_slice());
    let position = preferred.iter().position(|name| name == cluster);
    position.unwrap_or(usize::MAX)
}

/// Returns what a cluster is short of, if not all was placed.
pub(crate) fn lack_of(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    cluster: &ClusterName,
    packing: &Packing,
    overlay: &Overlay,
) -> Option<ClusterLack> {
    let lack = packing.lack.as_ref()?;
    let role = &gang.shape.demand.roles[lack.role];
    let known = inputs.capacity.cluster(cluster);
    let nodes = known.filter(|_| gang.verbose).into_iter();
    let nodes = nodes.flat_map(|known| known.nodes().values());
    let nodes = nodes
        .filter(|node| crate::capacity::can_run_on(role, node))
        .count();
    Some(ClusterLack {
        cluster: cluster.clone(),
        role: lack.role,
        wanted: lack.wanted,
        placed: lack.placed,
        nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
        domain: lack.domain.clone(),
        unmatched: match gang.verbose && nodes == 0 {
            true => unmatched::unmatched(known, role),
            false => Some(Vec::new()),
        },
        short: gang
            .verbose
            .then(|| shortage::shortage(inputs, cluster, role, lack.wanted, overlay))
            .flatten(),
    })
}

/// A packing as a share, charged by the class of the nodes it uses.
pub(crate) fn share_of(
    inputs: Inputs<'_>,
    cluster: &ClusterName,
    demand: &Demand,
    packing: &Packing,
) -> Share {
    let mut charge: BTreeMap<PoolClass, ResourceTotals> = BTreeMap::new();
    let mut pods = vec![0_u32; demand.roles.len()];
    let mut slots = Vec::new();
    let known = inputs.capacity.cluster(cluster);
    for placed in &packing.placed {
        let role = &demand.roles[placed.role];
        pods[placed.role] += placed.count;
        if let Some(node) = known.and_then(|known| known.nodes().get(&placed.node)) {
            let class = charge.entry(node.fact.class.clone()).or_default();
            class.add(role.request_in(cluster), i64::from(placed.count));
        }
        slots.push(Slot {
            node: placed.node.clone(),
            role: role.name.clone(),
            count: placed.count,
        });
    }
    let pods = demand
        .roles
        .iter()
        .zip(pods)
        .filter(|(_, count)| *count > 0);
    Share {
        cluster: cluster.clone(),
        pods: pods
            .map(|(role, count)| RolePods {
                role: role.name.clone(),
                count,
            })
            .collect(),
        charge: charge
            .into_iter()
            .map(|(class, totals)| (class, totals.to_resources()))
            .collect(),
        slots,
    }
}

/// Every role with all its pods.
pub(crate) fn all_needs(demand: &Demand) -> Vec<Need<'_>> {
    let roles = demand.roles.iter().enumerate();
    roles
        .map(|(index, role)| Need {
            index,
            role,
            count: role.count,
        })
        .collect()
}
