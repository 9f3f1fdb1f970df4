//! Where a job that lacks capacity will start: the nodes that are reserved for it.
//!
//! In each eligible cluster the pods go first where they fit now, then where the least has to
//! become free. The cluster with the least to free is chosen, and stays chosen until another one
//! needs strictly less. A job that may be split reserves nodes of the fewest clusters that take it
//! together, where that needs less to be freed or where no single cluster could ever take it. Pods
//! that belong to no job are assumed to stay. The reservation does not move to where the job would
//! start later by the expected ends, nor to other nodes where no less has to become free.

use crate::amounts::resources::Resources;
use crate::amounts::totals::ResourceTotals;
use crate::api::demand::{Demand, Split};
use crate::api::ids::{ClusterName, JobKey, NodeName, Time};
use crate::backfill::put::{put_all, put_some};
use crate::backfill::{spare, withheld};
use crate::capacity::{Sites, leading};
use crate::cost;
use crate::overlay::Overlay;
use crate::pending::shapes::RequestShape;
use crate::placement::lookup::largest_role;
use crate::placement::request::Request;
use crate::placement::{eligible, plan, spread};
use crate::reservation::store::{Reservation, ReservedNode};
use crate::state::Inputs;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The nodes to reserve, and when all of them will be free at the latest.
#[derive(Debug, Clone)]
pub(crate) struct ReservationPlan {
    pub(crate) nodes: Vec<ReservedNode>,
    pub(crate) start: Option<Time>,
}

/// The nodes to reserve for a job, if any are possible: of one cluster, or of the fewest clusters that take
/// it together if it may be divided and less has to become free there.
///
/// It takes nodes of an owner ahead only if it will be gone before that owner starts. It starts later than now: so it
/// is planned again with the start that was found, until that holds for the owners of all nodes that it takes.
pub(crate) fn target(inputs: Inputs<'_>, request: Request<'_>) -> Option<ReservationPlan> {
    let mut begins = Some(inputs.now);
    loop {
        let ahead = withheld::reservations_ahead_from(inputs, request, begins);
        let found = target_behind(inputs, request, &ahead)?;
        // Each turn has more owners ahead than the one before, so there is a last one.
        let is_late = begins.is_some_and(|begins| found.start.is_none_or(|start| begins < start));
        if !is_late || !takes_from_others(inputs, request, &found, &ahead) {
            return Some(found);
        }
        begins = found.start;
    }
}

/// True if a plan takes nodes of an owner that is not among `ahead` and binds the request when it starts.
fn takes_from_others(
    inputs: Inputs<'_>,
    request: Request<'_>,
    found: &ReservationPlan,
    ahead: &[&JobKey],
) -> bool {
    let mut others = inputs.reservations.with_nodes();
    others.any(|other| {
        let mut nodes = found.nodes.iter();
        !ahead.contains(&&other.rank.key)
            && nodes.any(|node| other.is_on(&node.cluster, &node.node))
            && withheld::binds_from(inputs, other, request, found.start)
    })
}

/// The same, beside the nodes of the owners `ahead`.
///
/// Spare nodes are left out as long as others are enough. If they are not, the job starts on them when the gangs
/// have ended that they are kept for.
fn target_behind(
    inputs: Inputs<'_>,
    request: Request<'_>,
    ahead: &[&JobKey],
) -> Option<ReservationPlan> {
    let reserved = Overlay::of_reserved_nodes(inputs, ahead);
    if spare::binding(inputs, request).is_empty() {
        return target_beside(inputs, request, &reserved);
    }
    let others = reserved.clone().with_spares(inputs, request);
    target_beside(inputs, request, &others).or_else(|| target_beside(inputs, request, &reserved))
}

fn target_beside(
    inputs: Inputs<'_>,
    request: Request<'_>,
    overlay: &Overlay,
) -> Option<ReservationPlan> {
    cost::plan();
    let current: BTreeSet<&ClusterName> = inputs
        .reservations
        .of(&request.rank.key)
        .into_iter()
        .flat_map(|reserved| reserved.nodes.iter().map(|node| &node.cluster))
        .collect();
    let demand = &request.shape.demand;
    let clusters = clusters_for(inputs, demand);
    let mut best: Option<Choice<'_>> = None;
    let alone = demand.placement.min_clusters.unwrap_or(1) <= 1;
    let promising = alone.then(|| promising(inputs, request, &clusters, &current));
    for bound in promising.into_iter().flatten() {
        if best.as_ref().is_some_and(|best| best.key() <= bound.key()) {
            break;
        }
        let LowerBound { cluster, .. } = bound;
        let mut sites = inputs.capacity.sites([cluster], overlay);
        let Some(cost) = put_all(&inputs.capacity, demand, &mut sites) else {
            continue;
        };
        let found = Choice {
            cost,
            divided: false,
            moved: bound.moved,
            preference: bound.preference,
            cluster: Some(cluster),
            nodes: reserved_on(&sites),
        };
        // No two choices have the same key, here nor below.
        if best.as_ref().is_none_or(|best| found.key() < best.key()) {
            best = Some(found);
        }
    }
    if best.as_ref().is_none_or(|best| best.cost > 0)
        && let Some(found) = target_across(inputs, request.shape, &clusters, overlay)
        && best.as_ref().is_none_or(|best| found.key() < best.key())
    {
        best = Some(found);
    }
    let best = best?;
    let start = start_on(inputs, &best.nodes);
    if let Some(kept) = as_it_was(inputs, request, (&best, start), overlay) {
        return Some(kept);
    }
    let nodes = best.nodes;
    Some(ReservationPlan { nodes, start })
}

/// The nodes that are reserved for a job already, if no less has to become free on those found now or it would start
/// later there: other jobs passed it because it was to start here. What is taken of nodes elsewhere changes which of
/// equal ones are found, and must not move it.
fn as_it_was(
    inputs: Inputs<'_>,
    request: Request<'_>,
    (found, starts): (&Choice<'_>, Option<Time>),
    overlay: &Overlay,
) -> Option<ReservationPlan> {
    let before = &inputs.reservations.of(&request.rank.key)?.nodes;
    if *before == found.nodes {
        return None;
    }
    let mut sites = sites_where_it_was(inputs, request, before, overlay)?;
    let start = start_on(inputs, before);
    let is_sooner = start.is_some_and(|start| starts.is_none_or(|found| start < found));
    let mut lacks_no_more = || {
        let clusters: BTreeSet<_> = before.iter().map(|reserved| &reserved.cluster).collect();
        let cost = put_all(&inputs.capacity, &request.shape.demand, &mut sites);
        cost.is_some_and(|cost| (cost, clusters.len() > 1) <= (found.cost, found.divided))
            && reserved_on(&sites) == *before
    };
    (is_sooner || lacks_no_more()).then(|| ReservationPlan {
        nodes: before.clone(),
        start,
    })
}

/// The nodes that are reserved for a job already, if they could hold it still.
fn sites_where_it_was<'a>(
    inputs: Inputs<'a>,
    request: Request<'_>,
    before: &'a [ReservedNode],
    overlay: &Overlay,
) -> Option<Sites<'a>> {
    if before.is_empty() {
        return None;
    }
    let mut reserved = before.iter().map(|reserved| &reserved.resources);
    let total = reserved.try_fold(Resources::new(), |sum, reserved| sum.checked_add(reserved))?;
    let demand = &request.shape.demand;
    let clusters: BTreeSet<&ClusterName> =
        before.iter().map(|reserved| &reserved.cluster).collect();
    if total != request.shape.total || !clusters.is_subset(&clusters_for(inputs, demand)) {
        return None;
    }
    let mut sites = inputs.capacity.sites(clusters, overlay);
    sites.retain(|cluster, node| {
        let mut before = before.iter();
        before.any(|reserved| reserved.cluster == *cluster && reserved.node == *node)
    });
    let could_hold = |reserved: &ReservedNode| {
        let at = (&reserved.cluster, &reserved.node);
        sites.could_hold(at, &reserved.resources, &demand.roles)
    };
    before.iter().all(could_hold).then_some(sites)
}

/// Clusters that might hold all pods, in the order of their lower bounds.
pub(crate) fn promising<'a>(
    inputs: Inputs<'_>,
    request: Request<'_>,
    clusters: &BTreeSet<&'a ClusterName>,
    current: &BTreeSet<&ClusterName>,
) -> Vec<LowerBound<'a>> {
    let main = largest_role(&request.shape.demand).map(|role| inputs.capacity.main_of(role));
    let policy = inputs.quota.policy(request.queue);
    let prefers = policy.is_some_and(|policy| !policy.preferred_clusters.is_empty());
    let bound = |cluster: &&'a ClusterName| {
        let least = main.map_or(Some(0), |main| inputs.capacity.least_to_free(cluster, main));
        Some(LowerBound {
            least: least?,
            moved: !(current.len() == 1 && current.contains(cluster)),
            preference: if prefers {
                plan::preference(inputs, request.queue, cluster)
            } else {
                usize::MAX
            },
            cluster,
        })
    };
    let mut promising: Vec<_> = clusters.iter().filter_map(bound).collect();
    promising.sort_unstable_by(|a, b| a.key().cmp(&b.key()));
    promising
}

/// True if less might have to become free in a cluster than on the nodes that are reserved for an owner
/// now, as far as is known without looking at its nodes.
pub(crate) fn might_lack_less(
    inputs: Inputs<'_>,
    reserved: &Reservation,
    cluster: &ClusterName,
) -> bool {
    let demand = inputs.jobs.demand_of(&reserved.rank.key);
    let Some(demand) = demand.filter(|_| !reserved.taking()) else {
        return false;
    };
    let main = largest_role(demand).map(|role| inputs.capacity.main_of(role));
    let least = main.and_then(|main| inputs.capacity.least_to_free(cluster, main));
    least.is_some_and(|least| least < shortfall(inputs, reserved))
}

/// True if less has to become free in a cluster than on the nodes that are reserved for an owner now.
pub(crate) fn lacks_less(
    inputs: Inputs<'_>,
    reserved: &Reservation,
    cluster: &ClusterName,
) -> bool {
    if !might_lack_less(inputs, reserved, cluster) {
        return false;
    }
    let shape = withheld::shape_of(inputs, &reserved.rank.key);
    let shape = shape.and_then(|shape| inputs.pending.shapes.get(shape));
    shape.is_some_and(|shape| {
        let request = Request {
            queue: &reserved.queue,
            rank: &reserved.rank,
            shape,
            verbose: false,
        };
        let demand = &shape.demand;
        if demand.natively_divisible || demand.split != Split::Never {
            return true;
        }
        let ahead = withheld::reservations_ahead(inputs, request);
        let overlay = Overlay::of_reserved_nodes(inputs, &ahead).with_spares(inputs, request);
        let mut sites = inputs.capacity.sites([cluster], &overlay);
        let cost = put_all(&inputs.capacity, demand, &mut sites);
        cost.is_some_and(|cost| cost < shortfall(inputs, reserved))
    })
}

/// How much has to become free on the nodes that are reserved for an owner.
pub(crate) fn shortfall(inputs: Inputs<'_>, reserved: &Reservation) -> i128 {
    let shortfall = reserved.nodes.iter().map(|reserved| {
        let known = inputs.capacity.cluster(&reserved.cluster);
        let node = known.and_then(|known| known.nodes().get(&reserved.node));
        let name = leading(&reserved.resources);
        let free = |name| node.map_or(0, |node| inputs.capacity.free_of(node, name).max(0));
        name.map_or(0, |name| {
            let needs = i128::from(reserved.resources.amount_of(name).0);
            (needs - free(name)).max(0)
        })
    });
    shortfall.sum()
}

/// Over several clusters: the fewest that take it, those that take most of it first.
pub(crate) fn target_across<'a>(
    inputs: Inputs<'a>,
    shape: &RequestShape,
    clusters: &BTreeSet<&'a ClusterName>,
    overlay: &Overlay,
) -> Option<Choice<'a>> {
    let demand = &*shape.demand;
    let divisible = demand.natively_divisible || demand.split != Split::Never;
    let number = |count: Option<u32>, none| usize::try_from(count.unwrap_or(none));
    let least = number(demand.placement.min_clusters, 1).unwrap_or(usize::MAX);
    let most = [demand.placement.max_clusters, shape.max_clusters];
    let most = number(most.into_iter().flatten().min(), u32::MAX).unwrap_or(usize::MAX);
    if !divisible || most < 2 {
        return None;
    }
    let all = |cluster: &'a ClusterName| {
        let mut sites = inputs.capacity.sites([cluster], overlay);
        put_some(&inputs.capacity, demand, &mut sites)
    };
    let mut fitting: Vec<(Reverse<u64>, &ClusterName)> = clusters
        .iter()
        .map(|cluster| (Reverse(all(cluster)), *cluster))
        .filter(|(pods, _)| pods.0 > 0)
        .collect();
    fitting.sort();
    for few in least.max(2)..=most.min(fitting.len()) {
        for chosen in chosen(inputs, demand, &fitting, few) {
            let mut sites = inputs.capacity.sites(chosen, overlay);
            if let Some(cost) = put_all(&inputs.capacity, demand, &mut sites) {
                let nodes = reserved_on(&sites);
                return Some(Choice {
                    cost,
                    divided: true,
                    moved: true,
                    preference: usize::MAX,
                    cluster: None,
                    nodes,
                });
            }
        }
    }
    None
}

/// Choices of so many clusters: the first ones, or those that meet the job's spread constraints.
fn chosen<'a>(
    inputs: Inputs<'a>,
    demand: &Demand,
    fitting: &[(Reverse<u64>, &'a ClusterName)],
    few: usize,
) -> Vec<Vec<&'a ClusterName>> {
    let rules = demand.placement.spread.as_slice();
    if rules.is_empty() {
        let first = fitting.iter().take(few).map(|(_, cluster)| *cluster);
        return vec![first.collect()];
    }
    let names = fitting.iter().map(|(_, cluster)| *cluster);
    let known: Vec<_> = names
        .filter_map(|name| Some((name, inputs.capacity.cluster_fact(name)?)))
        .collect();
    let facts: Vec<_> = known.iter().map(|(_, fact)| *fact).collect();
    let choices = spread::choices(rules, &facts, few).into_iter();
    let named = choices.map(|choice| choice.into_iter().map(|index| known[index].0).collect());
    named.collect()
}

pub(crate) fn clusters_for<'a>(inputs: Inputs<'a>, demand: &Demand) -> BTreeSet<&'a ClusterName> {
    let groups = eligible::eligible_by_group(inputs, &demand.placement, &BTreeSet::new());
    let places = groups.iter().flat_map(|group| &group.places);
    places
        .map(|place| &inputs.capacity.places()[*place])
        .collect()
}

/// When all of `nodes` will have free what is reserved on them, by the expected ends.
pub(crate) fn start_on(inputs: Inputs<'_>, nodes: &[ReservedNode]) -> Option<Time> {
    let mut start = inputs.now;
    for reserved in nodes {
        start = start.max(start_on_node(inputs, reserved)?);
    }
    Some(start)
}

pub(crate) fn start_on_node(inputs: Inputs<'_>, reserved: &ReservedNode) -> Option<Time> {
    cost::node_visits(1);
    let node = inputs
        .capacity
        .cluster(&reserved.cluster)?
        .nodes()
        .get(&reserved.node)?;
    let mut free = inputs.capacity.free_on(node);
    if free.fits(&reserved.resources, 1) == 1 {
        return Some(inputs.now);
    }
    let mut ends: Vec<(Time, JobKey, ResourceTotals)> =
        jobs_on(inputs, &reserved.cluster, &reserved.node)
            .into_iter()
            .filter_map(|(key, amount)| {
                let expected = inputs.jobs.get(&key)?.derived.has.expected_end?;
                let end = expected.end().filter(|end| *end > inputs.now)?;
                Some((end, key, amount))
            })
            .collect();
    ends.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    ends.into_iter().find_map(|(end, _, amount)| {
        free.add_totals(&amount, 1);
        (free.fits(&reserved.resources, 1) == 1).then_some(end)
    })
}

/// What each job has of a node, bound or assumed.
pub(crate) fn jobs_on(
    inputs: Inputs<'_>,
    cluster: &ClusterName,
    node: &NodeName,
) -> BTreeMap<JobKey, ResourceTotals> {
    let mut jobs: BTreeMap<JobKey, ResourceTotals> = BTreeMap::new();
    let known = inputs.capacity.cluster(cluster);
    for pod in known.into_iter().flat_map(|known| known.pods_on(node)) {
        if let Some(key) = pod.job() {
            jobs.entry(key.clone()).or_default().add(&pod.request, 1);
        }
    }
    for key in known.into_iter().flat_map(|known| known.placed_on(node)) {
        let Some(assumption) = inputs.capacity.assumed().get(key) else {
            continue;
        };
        for assumed_pod in &assumption.assumed {
            if assumed_pod.cluster == *cluster && assumed_pod.node.as_ref() == Some(node) {
                let request = assumption.request(assumed_pod);
                let held = jobs.entry(key.clone()).or_default();
                held.add(request, i64::from(assumed_pod.count));
            }
        }
    }
    jobs
}

/// One choice of nodes.
pub(crate) struct Choice<'a> {
    /// What has to become free.
    cost: i128,
    divided: bool,
    /// True if it is elsewhere than what was reserved before.
    moved: bool,
    preference: usize,
    cluster: Option<&'a ClusterName>,
    nodes: Vec<ReservedNode>,
}

/// What the choice of nodes in one cluster can come to at best.
pub(crate) struct LowerBound<'a> {
    /// At least so much has to become free.
    least: i128,
    moved: bool,
    preference: usize,
    cluster: &'a ClusterName,
}

impl<'a> LowerBound<'a> {
    /// No choice of nodes there has a smaller [`Choice::key`].
    fn key(&self) -> (i128, bool, bool, usize, Option<&'a ClusterName>) {
        (
            self.least,
            false,
            self.moved,
            self.preference,
            Some(self.cluster),
        )
    }
}

impl<'a> Choice<'a> {
    /// The order is the policy: the least to free, then whole before divided, then what was reserved
    /// before, then as the queue prefers.
    fn key(&self) -> (i128, bool, bool, usize, Option<&'a ClusterName>) {
        (
            self.cost,
            self.divided,
            self.moved,
            self.preference,
            self.cluster,
        )
    }
}

/// What is taken of the sites.
pub(crate) fn reserved_on(sites: &Sites<'_>) -> Vec<ReservedNode> {
    let taken = sites.taken().into_iter().map(|taken| ReservedNode {
        cluster: taken.cluster.clone(),
        node: taken.node.clone(),
        class: taken.class.clone(),
        resources: taken.resources,
    });
    taken.collect()
}
