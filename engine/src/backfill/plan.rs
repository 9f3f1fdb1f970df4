//! Where a job that lacks capacity will start: the nodes that are reserved for it.
//!
//! In each eligible cluster the pods go first where they fit now, then where the least has to
//! become free. A cluster where the job starts much sooner is chosen, of others the one
//! with the least to free; it stays chosen until another one needs strictly less. A job that may be split
//! reserves nodes of the fewest clusters that take it together, where that needs less to be freed or where
//! no single cluster could ever take it. Pods that belong to no job are assumed to stay. The reservation does
//! not move to where the job would start later by the expected ends, nor to other nodes where no less has to
//! become free. Which nodes may be taken is in `ways.rs`: those that an admission may use.

use crate::amounts::totals::ResourceTotals;
use crate::api::charge::PoolLimit;
use crate::backfill::sooner::FoundNodes;
use crate::backfill::{bounded, expected_start, sooner, spare, withheld};
use crate::capacity::{Sites, leading};
use crate::cost;
use crate::overlay::Overlay;
use crate::pending::shapes::RequestShape;
use crate::placement::across::put_across;
use crate::placement::lookup::largest_role;
use crate::placement::put::put_all;
use crate::placement::request::Request;
use crate::placement::ways::Unreserved;
use crate::placement::{plan, ways};
use crate::quota::Shortfall;
use crate::reservation::store::{Reservation, ReservedNode};
use crate::state::Inputs;
use facts::{ClusterName, JobKey, Resources, Time};
use std::collections::BTreeSet;

/// So many clusters are looked at, those with the least to free first, where a job starts late in all of them.
const TRIED: usize = 4;

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
        return bounded::target(inputs, request, &reserved);
    }
    let others = reserved.clone().with_spares(inputs, request);
    let beside_spares = bounded::target(inputs, request, &others);
    beside_spares.or_else(|| bounded::target(inputs, request, &reserved))
}

/// The nodes to reserve for a job that a bound on pools keeps from those that are free, and whether there are any
/// within what the bounds leave now.
pub(crate) fn target_elsewhere(
    inputs: Inputs<'_>,
    request: Request<'_>,
    short: &Shortfall,
) -> Option<(ReservationPlan, bool)> {
    bounded::target_elsewhere(inputs, request, &beside_ahead(inputs, request), short)
}

/// Beside the nodes of the owners ahead and the spare ones.
fn beside_ahead(inputs: Inputs<'_>, request: Request<'_>) -> Overlay {
    let ahead = withheld::reservations_ahead(inputs, request);
    Overlay::of_reserved_nodes(inputs, &ahead).with_spares(inputs, request)
}

/// The nodes to reserve for a job, of those that are left.
pub(crate) fn target_beside(
    inputs: Inputs<'_>,
    request: Request<'_>,
    left: Unreserved<'_>,
) -> Option<ReservationPlan> {
    cost::plan();
    let current: BTreeSet<&ClusterName> = inputs
        .reservations
        .of(&request.rank.key)
        .into_iter()
        .flat_map(|reserved| reserved.nodes.iter().map(|node| &node.cluster))
        .collect();
    let demand = &request.shape.demand;
    let groups = ways::groups_for(inputs, request.shape);
    let clusters = groups.iter().flatten().copied().collect();
    let mut best: Option<Choice<'_>> = None;
    let alone = demand.placement.min_clusters.unwrap_or(1) <= 1;
    let promising = alone.then(|| promising(inputs, request, &clusters, &current));
    for (tried, bound) in promising.into_iter().flatten().enumerate() {
        let is_enough = |best: &Choice<'_>| best.key() <= bound.key() || tried >= TRIED;
        if best.as_ref().is_some_and(is_enough) {
            break;
        }
        let LowerBound { cluster, .. } = bound;
        let Some(found) = sooner::best_in(inputs, demand, cluster, left) else {
            continue;
        };
        let found = Choice {
            sooner: sooner::octave(inputs, found.start),
            found,
            divided: false,
            moved: bound.moved,
            preference: bound.preference,
            cluster: Some(cluster),
        };
        // No two choices have the same key, here nor below.
        if best.as_ref().is_none_or(|best| found.key() < best.key()) {
            best = Some(found);
        }
    }
    if best.as_ref().is_none_or(|best| best.found.cost > 0)
        && let Some(found) = target_across(inputs, request.shape, &groups, left)
        && best.as_ref().is_none_or(|best| found.key() < best.key())
    {
        best = Some(found);
    }
    let best = best?;
    if let Some(kept) = as_it_was(inputs, request, &best, left) {
        return Some(kept);
    }
    let FoundNodes { nodes, start, .. } = best.found;
    Some(ReservationPlan { nodes, start })
}

/// The nodes that are reserved for a job already, if no less has to become free on those found now or it would start
/// later there: other jobs passed it because it was to start here. What is taken of nodes elsewhere changes which of
/// equal ones are found, and must not move it.
fn as_it_was(
    inputs: Inputs<'_>,
    request: Request<'_>,
    choice: &Choice<'_>,
    left: Unreserved<'_>,
) -> Option<ReservationPlan> {
    let found = &choice.found;
    let before = &inputs.reservations.of(&request.rank.key)?.nodes;
    if *before == found.nodes {
        return None;
    }
    let start = expected_start::start_on(inputs, before);
    if sooner::is_clearly_sooner(inputs, found.start, start) {
        return None;
    }
    let mut sites = sites_where_it_was(inputs, request, before, left)?;
    let is_sooner = start.is_some_and(|start| found.start.is_none_or(|found| start < found));
    let mut lacks_no_more = || {
        let clusters: BTreeSet<_> = before.iter().map(|reserved| &reserved.cluster).collect();
        let cost = put_all(&inputs.capacity, &request.shape.demand, &mut sites);
        cost.is_some_and(|cost| (cost, clusters.len() > 1) <= (found.cost, choice.divided))
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
    left: Unreserved<'_>,
) -> Option<Sites<'a>> {
    if before.is_empty() {
        return None;
    }
    let mut reserved = before.iter().map(|reserved| &reserved.resources);
    let total = reserved.try_fold(Resources::new(), |sum, reserved| sum.checked_add(reserved))?;
    let demand = &request.shape.demand;
    let clusters: BTreeSet<&ClusterName> =
        before.iter().map(|reserved| &reserved.cluster).collect();
    let at = before.iter();
    let at: Vec<_> = at
        .map(|reserved| (&reserved.cluster, &reserved.node))
        .collect();
    if total != request.shape.total
        || !clusters.is_subset(&ways::clusters_for(inputs, request.shape))
        || !ways::are_in_one_domain(inputs, demand, &at)
        || !is_within(left.limits, before)
    {
        return None;
    }
    let mut sites = ways::sites_of(inputs, clusters, left);
    let at: BTreeSet<_> = at.into_iter().collect();
    sites.retain(|cluster, node| at.contains(&(cluster, node)));
    let could_hold = |reserved: &ReservedNode| {
        let at = (&reserved.cluster, &reserved.node);
        sites.could_hold(at, &reserved.resources, &demand.roles)
    };
    before.iter().all(could_hold).then_some(sites)
}

/// Returns true if what is reserved of nodes is no more than the bounds on pools leave.
fn is_within(limits: &[PoolLimit], nodes: &[ReservedNode]) -> bool {
    limits.iter().all(|limit| {
        let counted = nodes
            .iter()
            .filter(|on| limit.pools.counts(&on.cluster, &on.class));
        let amounts = counted.map(|on| i128::from(on.resources.amount_of(&limit.resource).0));
        let sum: i128 = amounts.sum();
        sum == 0 || sum <= limit.left
    })
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
    let request = withheld::request_of(inputs, reserved);
    let main = request.filter(|_| !reserved.taking()).and_then(|request| {
        let main = |least: Request<'_>| {
            let role = largest_role(&least.shape.demand)?;
            Some(inputs.capacity.main_of(role))
        };
        withheld::at_least(request, main)
    });
    let least = main.and_then(|main| inputs.capacity.least_to_free(cluster, main));
    least.is_some_and(|least| least < shortfall(inputs, reserved))
}

/// True if less has to become free in a cluster than on the nodes that are reserved for an owner now, or it starts much
/// sooner there.
pub(crate) fn lacks_less(
    inputs: Inputs<'_>,
    reserved: &Reservation,
    cluster: &ClusterName,
) -> bool {
    if !might_lack_less(inputs, reserved, cluster) {
        return false;
    }
    withheld::request_of(inputs, reserved).is_some_and(|request| {
        let demand = &request.shape.demand;
        if demand.is_divisible() {
            return true;
        }
        found_in(inputs, request, cluster).is_some_and(|found| {
            let kept = expected_start::start_on(inputs, &reserved.nodes);
            let octave = |start| sooner::octave(inputs, start);
            sooner::is_clearly_sooner(inputs, found.start, kept)
                || (octave(kept) >= octave(found.start) && found.cost < shortfall(inputs, reserved))
        })
    })
}

/// True if an owner might start clearly sooner in a cluster, as far as is known without looking at its nodes. Most
/// often it starts soon, or no end is known at all.
pub(crate) fn might_start_sooner(
    inputs: Inputs<'_>,
    reserved: &Reservation,
    cluster: &ClusterName,
) -> bool {
    !reserved.taking()
        && sooner::is_clearly_sooner(inputs, Some(inputs.now), reserved.start)
        && inputs.jobs.ends_after(inputs.now).next().is_some()
        && withheld::request_of(inputs, reserved).is_some_and(|request| {
            let clusters = ways::clusters_for(inputs, request.shape);
            clusters.contains(cluster)
        })
}

/// True if an owner starts clearly sooner in a cluster than on the nodes that are reserved for it now.
pub(crate) fn starts_sooner(
    inputs: Inputs<'_>,
    reserved: &Reservation,
    cluster: &ClusterName,
) -> bool {
    let request = withheld::request_of(inputs, reserved);
    let found = request.and_then(|request| found_in(inputs, request, cluster));
    found.is_some_and(|found| {
        let kept = expected_start::start_on(inputs, &reserved.nodes);
        sooner::is_clearly_sooner(inputs, found.start, kept)
    })
}

/// The best nodes of a cluster for what an owner reserves, within what bounds on pools leave now.
fn found_in(inputs: Inputs<'_>, request: Request<'_>, cluster: &ClusterName) -> Option<FoundNodes> {
    withheld::at_least(request, |least| {
        let left = Unreserved {
            overlay: &beside_ahead(inputs, least),
            limits: &inputs.quota.pool_limits(least.queue, &Overlay::default()),
        };
        sooner::best_in(inputs, &least.shape.demand, cluster, left)
    })
}

/// How much has to become free on the nodes that are reserved for an owner.
pub(crate) fn shortfall(inputs: Inputs<'_>, reserved: &Reservation) -> i128 {
    let nodes = reserved.nodes.iter();
    nodes.map(|node| shortfall_on(inputs, node)).sum()
}

/// Returns true if anything has to become free there.
pub(crate) fn lacks_any(inputs: Inputs<'_>, reserved: &Reservation) -> bool {
    let mut nodes = reserved.nodes.iter();
    nodes.any(|node| shortfall_on(inputs, node) > 0)
}

/// Returns true if one of these nodes takes a pod of an owner besides what is reserved there.
pub(crate) fn takes_more_on(
    inputs: Inputs<'_>,
    kept: &Reservation,
    nodes: &[ReservedNode],
) -> bool {
    let shape = withheld::shape_of(inputs, &kept.rank.key);
    let shape = shape.and_then(|shape| inputs.pending.shapes.get(shape));
    let mut roles = shape.into_iter().flat_map(|shape| &shape.demand.roles);
    roles.any(|role| {
        let mut nodes = nodes.iter();
        nodes.any(|reserved| {
            let known = inputs.capacity.cluster(&reserved.cluster);
            let node = known.and_then(|known| known.nodes().get(&reserved.node));
            let held = ResourceTotals::from(&reserved.resources);
            node.is_some_and(|node| inputs.capacity.takes_one(node, role, Some(&held)))
        })
    })
}

fn shortfall_on(inputs: Inputs<'_>, reserved: &ReservedNode) -> i128 {
    let known = inputs.capacity.cluster(&reserved.cluster);
    let node = known.and_then(|known| known.nodes().get(&reserved.node));
    let name = leading(&reserved.resources);
    let free = |name| node.map_or(0, |node| inputs.capacity.free_of(node, name).max(0));
    name.map_or(0, |name| {
        let needs = i128::from(reserved.resources.amount_of(name).0);
        (needs - free(name)).max(0)
    })
}

/// Over several clusters of one group.
fn target_across<'a>(
    inputs: Inputs<'a>,
    shape: &'a RequestShape,
    groups: &[BTreeSet<&'a ClusterName>],
    left: Unreserved<'_>,
) -> Option<Choice<'a>> {
    let groups = groups.iter();
    let mut put = groups.filter_map(|clusters| put_across(inputs, shape, clusters, left, false));
    let (cost, sites) = put.next()?;
    let found = FoundNodes::on(inputs, cost, &sites);
    Some(Choice {
        sooner: sooner::octave(inputs, found.start),
        found,
        divided: true,
        moved: true,
        preference: usize::MAX,
        cluster: None,
    })
}

/// One choice of nodes.
pub(crate) struct Choice<'a> {
    /// How soon the job starts there.
    sooner: u32,
    found: FoundNodes,
    divided: bool,
    /// True if it is elsewhere than what was reserved before.
    moved: bool,
    preference: usize,
    cluster: Option<&'a ClusterName>,
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
    fn key(&self) -> (u32, i128, bool, bool, usize, Option<&'a ClusterName>) {
        (
            0,
            self.least,
            false,
            self.moved,
            self.preference,
            Some(self.cluster),
        )
    }
}

impl<'a> Choice<'a> {
    /// The order is the policy: where it starts much sooner, then the least to free, then whole before
    /// divided, then what was reserved before, then as the queue prefers.
    fn key(&self) -> (u32, i128, bool, bool, usize, Option<&'a ClusterName>) {
        (
            self.sooner,
            self.found.cost,
            self.divided,
            self.moved,
            self.preference,
            self.cluster,
        )
    }
}

/// Returns what is taken of the sites.
pub(crate) fn reserved_on(sites: &Sites<'_>) -> Vec<ReservedNode> {
    let taken = sites.taken().into_iter().map(|taken| ReservedNode {
        cluster: taken.cluster.clone(),
        node: taken.node.clone(),
        class: taken.class.clone(),
        resources: taken.resources,
    });
    taken.collect()
}
