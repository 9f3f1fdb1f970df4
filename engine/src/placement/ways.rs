//! The nodes on which the pods of a gang are put one by one, as an admission may use them: by reservations, which take
//! nodes that become free, and by admissions that packing finds no plan for (`put_now.rs`).
//!
//! All pods of a gang with hard topology are in one domain, no more goes to nodes of a class than the bounds of the
//! queue allow, and clusters that the job avoids are left out. A reservation that takes other nodes would keep them
//! free for ever: its owner could not start on them.

use crate::api::charge::PoolLimit;
use crate::capacity::Sites;
use crate::overlay::Overlay;
use crate::pending::shapes::RequestShape;
use crate::placement::put::most_on;
use crate::placement::{eligible, plan};
use crate::state::Inputs;
use facts::{ClusterName, Demand, NodeName};
use std::collections::BTreeSet;

/// What may not be taken of nodes, and what the bounds on pools still leave.
#[derive(Clone, Copy)]
pub(crate) struct Unreserved<'a> {
    pub(crate) overlay: &'a Overlay,
    pub(crate) limits: &'a [PoolLimit],
}

/// The clusters that a job may go to, by group: it does not go to clusters of several groups.
pub(crate) fn groups_for<'a>(
    inputs: Inputs<'a>,
    shape: &RequestShape,
) -> Vec<BTreeSet<&'a ClusterName>> {
    let avoided = plan::avoided(inputs, shape);
    let groups = eligible::eligible_by_group(inputs, &shape.demand.placement, avoided);
    let named = groups.iter().map(|group| {
        let places = group.places.iter();
        places.map(|place| &inputs.capacity.places()[*place])
    });
    named.map(Iterator::collect).collect()
}

/// The clusters that a job may go to.
pub(crate) fn clusters_for<'a>(
    inputs: Inputs<'a>,
    shape: &RequestShape,
) -> BTreeSet<&'a ClusterName> {
    groups_for(inputs, shape).into_iter().flatten().collect()
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
pub(crate) fn ways<'a>(
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

/// The nodes of a cluster that take most pods of a job, and how many; none are put there.
pub(crate) fn most_in<'a>(
    inputs: Inputs<'a>,
    demand: &'a Demand,
    cluster: &'a ClusterName,
    left: Unreserved<'_>,
) -> Option<(u64, Sites<'a>)> {
    let mut best: Option<(u64, Sites<'a>)> = None;
    for sites in ways(inputs, demand, cluster, left) {
        let pods = most_on(&inputs.capacity, demand, &sites);
        if best.as_ref().is_none_or(|(most, _)| pods > *most) {
            best = Some((pods, sites));
        }
    }
    best
}

/// Returns true if some nodes are in one domain of each cluster, where the topology of a job is hard.
pub(crate) fn are_in_one_domain(
    inputs: Inputs<'_>,
    demand: &Demand,
    nodes: &[(&ClusterName, &NodeName)],
) -> bool {
    let clusters: BTreeSet<&ClusterName> = nodes.iter().map(|(cluster, _)| *cluster).collect();
    clusters.into_iter().all(|cluster| {
        let on = || nodes.iter().filter(|(on, _)| *on == cluster);
        hard_domains(inputs, demand, cluster).is_none_or(|domains| {
            let mut domains = domains.iter();
            domains.any(|domain| on().all(|(_, node)| domain.contains(*node)))
        })
    })
}
