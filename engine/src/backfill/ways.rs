//! The nodes of a cluster that a reservation may take, as an admission may use them.
//!
//! All pods of a gang with hard topology are in one domain, no more goes to nodes of a class than the bounds of the
//! queue allow, and clusters that the job avoids are left out. A reservation that takes other nodes would keep them
//! free for ever: its owner could not start on them.

use crate::api::charge::PoolLimit;
use crate::api::demand::Demand;
use crate::api::ids::{ClusterName, NodeName, Time};
use crate::backfill::expected_start;
use crate::backfill::plan::reserved_on;
use crate::backfill::put::{put_all, put_some};
use crate::capacity::Sites;
use crate::overlay::Overlay;
use crate::pending::shapes::RequestShape;
use crate::placement::{eligible, plan};
use crate::reservation::store::ReservedNode;
use crate::state::Inputs;
use std::collections::BTreeSet;

/// Starts that are less than this away are as good as each other, in milliseconds.
const SOON_MS: i64 = 10 * 60_000;

/// What is not there for a reservation: what others keep of nodes, and what the bounds on pools leave no more.
#[derive(Clone, Copy)]
pub(crate) struct Unreserved<'a> {
    pub(crate) overlay: &'a Overlay,
    pub(crate) limits: &'a [PoolLimit],
}

/// The clusters that a job may go to.
pub(crate) fn clusters_for<'a>(
    inputs: Inputs<'a>,
    shape: &RequestShape,
) -> BTreeSet<&'a ClusterName> {
    let avoided = plan::avoided(inputs, shape);
    let groups = eligible::eligible_by_group(inputs, &shape.demand.placement, avoided);
    let places = groups.iter().flat_map(|group| &group.places);
    places
        .map(|place| &inputs.capacity.places()[*place])
        .collect()
}

/// The nodes of some clusters, all of them.
pub(crate) fn sites_of<'a>(
    inputs: Inputs<'a>,
    clusters: impl IntoIterator<Item = &'a ClusterName>,
    left: Unreserved<'_>,
) -> Sites<'a> {
    let sites = inputs.capacity.sites(clusters, left.overlay);
    sites.within(left.limits)
}

/// The sets of nodes of a cluster that may take all of a job or a part of it: each domain where topology is hard.
fn ways<'a>(
    inputs: Inputs<'a>,
    demand: &Demand,
    cluster: &'a ClusterName,
    left: Unreserved<'_>,
) -> Vec<Sites<'a>> {
    let sites = sites_of(inputs, [cluster], left);
    let Some(domains) = hard_domains(inputs, demand, cluster) else {
        return vec![sites];
    };
    let within = domains.into_iter().map(|domain| {
        let mut sites = sites.clone();
        sites.retain(|_, node| domain.contains(node));
        sites
    });
    within.collect()
}

fn hard_domains<'a>(
    inputs: Inputs<'a>,
    demand: &Demand,
    cluster: &ClusterName,
) -> Option<Vec<BTreeSet<&'a NodeName>>> {
    let pods = demand.roles.iter().map(|role| u64::from(role.count)).sum();
    let topology = demand.topology.as_ref();
    inputs.capacity.hard_domains(cluster, pods, topology)
}

/// How soon a job starts on some nodes, in octaves of the time until then; the largest number if that is not known.
pub(crate) fn octave(inputs: Inputs<'_>, nodes: &[ReservedNode]) -> u32 {
    let start = expected_start::start_on(inputs, nodes);
    let parts = start.map(|start| start.millis_since(inputs.now) / SOON_MS);
    parts.map_or(u32::MAX, |parts| (parts + 1).ilog2())
}

/// Whether a job starts so much sooner that its reservation moves: in less than seven tenths of the time that is left
/// until the start that it has. Ends err, and each move gives up nodes that are free already.
pub(crate) fn is_clearly_sooner(
    inputs: Inputs<'_>,
    found: Option<Time>,
    kept: Option<Time>,
) -> bool {
    let left = |start: Time| i128::from(start.millis_since(inputs.now).max(0));
    match (found, kept) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(found), Some(kept)) => {
            left(kept) >= i128::from(SOON_MS) && 10 * left(found) < 7 * left(kept)
        }
    }
}

/// The best nodes of a cluster for all pods of a job: those on which it starts much sooner, or else where the least has
/// to become free. How soon, how much, and which.
pub(crate) fn best_in<'a>(
    inputs: Inputs<'a>,
    demand: &'a Demand,
    cluster: &'a ClusterName,
    left: Unreserved<'_>,
) -> Option<(u32, i128, Vec<ReservedNode>)> {
    let filled = ways(inputs, demand, cluster, left).into_iter();
    let choices = filled.filter_map(|mut sites| {
        let cost = put_all(&inputs.capacity, demand, &mut sites)?;
        let nodes = reserved_on(&sites);
        Some((octave(inputs, &nodes), cost, nodes))
    });
    choices.min_by_key(|(sooner, cost, _)| (*sooner, *cost))
}

/// The nodes of a cluster that take most pods of a job, and how many; none are put there.
pub(crate) fn most_in<'a>(
    inputs: Inputs<'a>,
    demand: &'a Demand,
    cluster: &'a ClusterName,
    left: Unreserved<'_>,
) -> Option<(u64, Sites<'a>)> {
    let mut best: Option<(u64, Sites<'a>)> = None;
    for sites in ways(inputs, demand, cluster, left) {
        let pods = put_some(&inputs.capacity, demand, &mut sites.clone());
        if best.as_ref().is_none_or(|(most, _)| pods > *most) {
            best = Some((pods, sites));
        }
    }
    best
}

/// Whether the nodes that are reserved for a job are in one domain of each cluster, where they have to be.
pub(crate) fn are_in_one_domain(
    inputs: Inputs<'_>,
    demand: &Demand,
    nodes: &[ReservedNode],
) -> bool {
    let clusters: BTreeSet<&ClusterName> = nodes.iter().map(|node| &node.cluster).collect();
    clusters.into_iter().all(|cluster| {
        let on = || nodes.iter().filter(|node| node.cluster == *cluster);
        hard_domains(inputs, demand, cluster).is_none_or(|domains| {
            let mut domains = domains.iter();
            domains.any(|domain| on().all(|node| domain.contains(&node.node)))
        })
    })
}
