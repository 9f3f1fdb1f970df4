//! The room gate: where would this gang go, whole, and what would be charged for it?
//!
//! One cluster that takes the whole gang on its nodes, in one topology domain where that is
//! possible; else, where it may be split, the fewest clusters that take it together. Among those
//! that would do: see [`PlacementScore`]. Clusters that cannot hold it are left out by look-up, the
//! likeliest of the others are weighed node by node, and only if none of them takes it those
//! after them (see [`crate::placement::lookup`]): a placement in one cluster is found whenever there is
//! one. Nothing here changes anything.

use crate::amounts::totals::ResourceTotals;
use crate::api::demand::{Demand, Split};
use crate::api::facts::{RolePods, Share, Slot};
use crate::api::ids::{ClusterName, PoolClass, QueueName};
use crate::capacity::{
    Basis, ClusterCapacity, FittingPods, Need, NodeView, Packing, Place, ReservedNodes,
};
use crate::eligibility::store::{Eligible, groups_of};
use crate::pending::shapes::RequestShape;
use crate::placement::eligible::Ineligible;
use crate::placement::lookup::{EXACT, Estimate, largest_role};
pub(crate) use crate::placement::no_plan::{ClusterLack, NoPlan};
use crate::placement::score::{PlacementScore, Weights};
use crate::placement::{eligible, empty, lookup, mixed, score, split};
use crate::plugins::Site;
use crate::quota::Withheld;
use crate::state::Inputs;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// How the fleet and the quota are looked at.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) basis: Basis,
    /// Nodes kept for jobs further ahead.
    pub(crate) nodes: ReservedNodes,
    /// Headroom kept for jobs further ahead.
    pub(crate) kept: Withheld,
    /// Whether it will be told what each cluster lacks, where the job fits nowhere.
    pub(crate) tells: bool,
}

impl View {
    /// Everything that is free now.
    pub(crate) fn now() -> Self {
        Self {
            basis: Basis::Now,
            nodes: ReservedNodes::new(),
            kept: Withheld::default(),
            tells: false,
        }
    }

    /// The same, to tell people why not.
    pub(crate) fn told() -> Self {
        Self {
            tells: true,
            ..Self::now()
        }
    }
}

/// One way to place the whole job.
#[derive(Debug, Clone)]
pub(crate) struct PlacementCandidate {
    pub(crate) score: PlacementScore,
    pub(crate) parts: Vec<(Place, Packing)>,
}

/// Where the job would go. `RequestShape::avoid` is heeded while another cluster could ever take it.
pub(crate) fn plan(
    inputs: Inputs<'_>,
    queue: &QueueName,
    shape: &RequestShape,
    view: &View,
) -> Result<Vec<Share>, NoPlan> {
    let heeds = !shape.avoid.is_empty() && empty::fits_empty_fleet(inputs, shape, &shape.avoid);
    let none = BTreeSet::new();
    plan_without(
        inputs,
        queue,
        shape,
        view,
        if heeds { &shape.avoid } else { &none },
    )
}

/// Where the job would go, some clusters left out.
pub(crate) fn plan_without(
    inputs: Inputs<'_>,
    queue: &QueueName,
    shape: &RequestShape,
    view: &View,
    without: &BTreeSet<ClusterName>,
) -> Result<Vec<Share>, NoPlan> {
    let mut why = NoPlan::NoCluster(Vec::new());
    let placement = &shape.demand.placement;
    let groups = eligible::eligible_by_group(inputs, placement, without);
    for (index, eligible) in groups.iter().enumerate() {
        let result = if eligible.clusters.is_empty() {
            let rule = &groups_of(placement)[index];
            let (_, ineligible) = eligible::eligible(inputs, placement, rule, without);
            Err(NoPlan::NoCluster(ineligible))
        } else {
            plan_in(inputs, queue, shape, view, eligible)
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
    queue: &QueueName,
    shape: &RequestShape,
    view: &View,
    eligible: &Eligible,
) -> Result<Vec<Share>, NoPlan> {
    let demand = &shape.demand;
    let least = demand.placement.min_clusters.unwrap_or(1).max(1);
    let aims = score::aims(inputs, queue, shape);
    let whole = (least == 1).then(|| plan_whole(inputs, queue, shape, view, eligible, &aims));
    let splits = demand.natively_divisible || demand.split != Split::Never;
    let divided = || split::split(inputs, queue, shape, view, eligible, &aims);
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

/// The whole gang on one cluster, with what the weighing came to.
fn plan_whole(
    inputs: Inputs<'_>,
    queue: &QueueName,
    shape: &RequestShape,
    view: &View,
    eligible: &Eligible,
    aims: &Weights<'_>,
) -> Result<(Share, i128), NoPlan> {
    let mut why = None;
    let question = lookup::look_up(inputs, shape, view, aims);
    let mut looked_at: BTreeSet<Place> = BTreeSet::new();
    // The likeliest come first; the others only where none of those takes it.
    let mut next = question.likeliest(&eligible.places);
    let mut others: Option<std::vec::IntoIter<Estimate>> = None;
    while !next.is_empty() {
        let mut options = Vec::new();
        for likely in &next {
            looked_at.insert(likely.place);
            let fitting = question.fitting_at(likely.place);
            match options_on(inputs, shape, view, likely.place, fitting, aims) {
                Ok(found) => options.extend(found),
                Err(lack) => {
                    why = Some(NoPlan::worse(why, NoPlan::NoRoom(vec![lack])));
                }
            }
        }
        let found = match mixed::first_within_bounds(inputs, queue, shape, view, options) {
            Err(Some(passed)) => {
                let places = next.iter().map(|likely| likely.place);
                let places = places.map(|place| (place, question.fitting_at(place)));
                mixed::mixed_within_bounds(inputs, queue, shape, view, places, (aims, passed))
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
            let mut others = question.others(&eligible.places, &looked_at);
            others.sort_unstable();
            others.into_iter()
        });
        next = others.take(EXACT).collect();
    }
    let lacks = view
        .tells
        .then(|| lacks(inputs, shape, view, eligible, &looked_at));
    Err(NoPlan::worse(
        why,
        NoPlan::NoRoom(lacks.unwrap_or_default()),
    ))
}

/// The ways to place all on one cluster: on nodes of one class, each that has a device the
/// job asks for, and where none is enough on all together.
fn options_on(
    inputs: Inputs<'_>,
    shape: &RequestShape,
    view: &View,
    place: Place,
    fitting: FittingPods,
    aims: &Weights<'_>,
) -> Result<Vec<PlacementCandidate>, ClusterLack> {
    let cluster = &inputs.capacity.places()[place];
    let needs = all_needs(&shape.demand);
    let mut options = Vec::new();
    let mut lack = None;
    for class in class_choices(inputs, &shape.demand, cluster) {
        if class.is_none() && !options.is_empty() {
            break;
        }
        let node_view = node_view(view, cluster, class.as_ref());
        let topology = shape.demand.topology.as_ref();
        let packing = inputs.capacity.place(cluster, &needs, &node_view, topology);
        match lack_of(inputs, cluster, &shape.demand, &packing, view) {
            Some(found) => lack = Some(found),
            None => {
                let parts = vec![(place, packing)];
                let option = scored(inputs, shape, view, parts, &[fitting], 0, aims);
                options.push(option);
            }
        }
    }
    match lack {
        Some(lack) if options.is_empty() => Err(lack),
        _ => Ok(options),
    }
}

/// A way to place all, with its score.
pub(crate) fn scored(
    inputs: Inputs<'_>,
    shape: &RequestShape,
    view: &View,
    parts: Vec<(Place, Packing)>,
    fitting: &[FittingPods],
    spare: u64,
    aims: &Weights<'_>,
) -> PlacementCandidate {
    let needs = all_needs(&shape.demand);
    let mut score = PlacementScore {
        tier: 0,
        preference: 0,
        weighted: 0,
        spare,
        units_left: 0,
        cpu_left: 0,
        places: parts.iter().map(|(place, _)| *place).collect(),
    };
    let mut facts = Vec::new();
    let pods: u32 = parts.iter().map(|(_, packing)| packing.pods()).sum();
    for ((place, packing), fitting) in parts.iter().zip(fitting) {
        let cluster = &inputs.capacity.places()[*place];
        let node_view = node_view(view, cluster, None);
        let effect = inputs.capacity.effect(cluster, &needs, packing, &node_view);
        let fact = inputs.capacity.cluster_fact(cluster);
        let site = Site {
            fact,
            fitting: *fitting,
            price: fact.map_or(0, |fact| inputs.eligibility.price_of(fact)),
        };
        let part = i128::from(packing.pods());
        let weighted = aims.of_cluster(&site) + aims.of_nodes(&effect);
        score.weighted += weighted * part / i128::from(pods.max(1));
        score.tier = score.tier.max(effect.tier);
        score.preference += aims.preference(cluster) * u64::from(packing.pods());
        score.units_left += effect.units_left;
        score.cpu_left += effect.cpu_left;
        facts.extend(fact);
    }
    score.weighted += aims.of_clusters(&facts);
    PlacementCandidate { score, parts }
}

/// What clusters lack that were not looked at: of the likeliest exactly, of the others only
/// that it is not enough.
fn lacks(
    inputs: Inputs<'_>,
    shape: &RequestShape,
    view: &View,
    eligible: &Eligible,
    looked_at: &BTreeSet<Place>,
) -> Vec<ClusterLack> {
    let Some(role) = largest_role(&shape.demand) else {
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
    let needs = all_needs(&shape.demand);
    let lacks = others
        .iter()
        .enumerate()
        .filter_map(|(index, (_, cluster))| {
            if index >= EXACT {
                return Some(ClusterLack {
                    cluster: (*cluster).clone(),
                    role: 0,
                    wanted: shape.demand.roles.first().map_or(0, |role| role.count),
                    placed: 0,
                    nodes: 1,
                    domain: None,
                });
            }
            let node_view = node_view(view, cluster, None);
            let topology = shape.demand.topology.as_ref();
            let packing = inputs.capacity.place(cluster, &needs, &node_view, topology);
            lack_of(inputs, cluster, &shape.demand, &packing, view)
        });
    lacks.collect()
}

/// Classes to try: each that has a device the job asks for, then all together.
fn class_choices(
    inputs: Inputs<'_>,
    demand: &Demand,
    cluster: &ClusterName,
) -> Vec<Option<PoolClass>> {
    let room = inputs.capacity.cluster(cluster);
    let Some(room) = room.filter(|room| !ClusterCapacity::is_uniform(room)) else {
        return vec![None];
    };
    let asks = |name: &crate::ResourceName| {
        let roles = demand.roles.iter();
        roles
            .filter(|role| role.count > 0)
            .any(|role| role.request.amount_of(name).0 > 0)
    };
    let pools = room.pools().keys();
    let classes: BTreeSet<&PoolClass> = pools
        .filter(|key| key.device.as_ref().is_some_and(asks))
        .map(|key| &key.class)
        .collect();
    if classes.len() < 2 {
        return vec![None];
    }
    let each = classes.into_iter().cloned().map(Some);
    each.chain([None]).collect()
}

/// Place of a cluster among the queue's preferred ones, the others last.
pub(crate) fn preference(inputs: Inputs<'_>, queue: &QueueName, cluster: &ClusterName) -> usize {
    inputs
        .quota
        .policy(queue)
        .and_then(|policy| {
            policy
                .preferred_clusters
                .iter()
                .position(|name| name == cluster)
        })
        .unwrap_or(usize::MAX)
}

pub(crate) fn lack_of(
    inputs: Inputs<'_>,
    cluster: &ClusterName,
    demand: &Demand,
    packing: &Packing,
    view: &View,
) -> Option<ClusterLack> {
    let lack = packing.lack.as_ref()?;
    let role = &demand.roles[lack.role];
    let room = inputs.capacity.cluster(cluster).filter(|_| view.tells);
    let nodes = room.into_iter().flat_map(|room| room.nodes().values());
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
    let room = inputs.capacity.cluster(cluster);
    for placed in &packing.placed {
        let role = &demand.roles[placed.role];
        pods[placed.role] += placed.count;
        if let Some(node) = room.and_then(|room| room.nodes().get(&placed.node)) {
            let class = charge.entry(node.fact.class.clone()).or_default();
            class.add(&role.request, i64::from(placed.count));
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

/// The cluster as the view shows it.
pub(crate) fn node_view<'a>(
    view: &'a View,
    cluster: &ClusterName,
    class: Option<&'a PoolClass>,
) -> NodeView<'a> {
    let none = || Cow::Owned(BTreeMap::new());
    NodeView {
        basis: view.basis,
        class,
        overlay: view.nodes.get(cluster).map_or_else(none, Cow::Borrowed),
    }
}
