//! The nodes of several clusters on which the pods of a gang are put one by one: over the fewest clusters that take it,
//! those that take most of it first.
//!
//! Where jobs are gone, those may take most of it that have nothing free now, or nothing for one of its roles. So other
//! choices of as many clusters are tried, too: an admission finds nodes that are free wherever a reservation would.

use crate::capacity::Sites;
use crate::pending::shapes::RequestShape;
use crate::placement::choices::{CHOICES, choices};
use crate::placement::put::put_all;
use crate::placement::spread;
use crate::placement::ways::{Unreserved, most_in};
use crate::state::Inputs;
use facts::{ClusterName, Demand};
use std::cell::LazyCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The gang over the fewest of some clusters that take it, with what has to become free: nothing if it starts `now`.
pub(crate) fn put_across<'a>(
    inputs: Inputs<'a>,
    shape: &'a RequestShape,
    clusters: &BTreeSet<&'a ClusterName>,
    left: Unreserved<'_>,
    now: bool,
) -> Option<(i128, Sites<'a>)> {
    let demand = &*shape.demand;
    let number = |count: Option<u32>, none| usize::try_from(count.unwrap_or(none));
    let least = number(demand.placement.min_clusters, 1).unwrap_or(usize::MAX);
    let most = [demand.placement.max_clusters, shape.max_clusters];
    let most = number(most.into_iter().flatten().min(), u32::MAX).unwrap_or(usize::MAX);
    if !demand.is_divisible() || most < 2 {
        return None;
    }
    let mut most_on: BTreeMap<&ClusterName, (u64, Sites<'a>)> = BTreeMap::new();
    let mut fitting: Vec<(Reverse<u64>, &ClusterName)> = Vec::new();
    for cluster in clusters {
        let most = most_in(inputs, demand, cluster, left);
        if let Some((pods, sites)) = most.filter(|(pods, _)| *pods > 0) {
            fitting.push((Reverse(pods), cluster));
            most_on.insert(*cluster, (pods, sites));
        }
    }
    fitting.sort();
    let are_enough = |chosen: &[&ClusterName]| {
        let pods = chosen.iter().filter_map(|cluster| most_on.get(cluster));
        let pods: u64 = pods.map(|(pods, _)| pods).sum();
        most_is_known(demand).is_none_or(|all| all <= pods)
    };
    let put = |chosen: &[&ClusterName]| {
        if !are_enough(chosen) {
            return None;
        }
        let parts = chosen.iter().filter_map(|cluster| most_on.get(cluster));
        let mut sites = Sites::joined(parts.map(|(_, sites)| sites.clone()))?;
        let cost = put_all(&inputs.capacity, demand, &mut sites)?;
        (!now || cost == 0).then_some((cost, sites))
    };
    let fitting: Vec<&ClusterName> = fitting.into_iter().map(|(_, cluster)| cluster).collect();
    // Asked for only where the first choice does not do.
    let might_take = LazyCell::new(|| {
        let now = now && !left.overlay.is_of_empty_fleet();
        might_take(inputs, demand, &fitting, now)
    });
    let mut tried = 0;
    (least.max(2)..=most.min(fitting.len())).find_map(|few| {
        let usual = chosen(inputs, demand, &fitting, few);
        let found = usual.iter().find_map(|chosen| put(chosen));
        if found.is_some() || tried == CHOICES {
            return found;
        }
        let mut others = others(demand, &might_take, few);
        others.retain(|chosen| !usual.contains(chosen));
        others.truncate(CHOICES - tried);
        tried += others.len();
        others.iter().find_map(|chosen| put(chosen))
    })
}

/// How many pods of each role each of some clusters might take, `now` or with all pods of jobs gone.
fn might_take<'a>(
    inputs: Inputs<'_>,
    demand: &Demand,
    clusters: &[&'a ClusterName],
    now: bool,
) -> Vec<(&'a ClusterName, Vec<u64>)> {
    let places = inputs.capacity.places();
    let roles = demand.roles.iter();
    let fitting: Vec<_> = roles
        .map(|role| inputs.capacity.fitting_for_role(role))
        .collect();
    let pods_in = |cluster: &&'a ClusterName| {
        let place = places.binary_search(cluster).ok()?;
        let pods = fitting.iter().map(|fitting| match now {
            true => fitting[place].now,
            false => fitting[place].empty,
        });
        Some((*cluster, pods.collect()))
    };
    clusters.iter().filter_map(pods_in).collect()
}

/// The choices of so many clusters that might take all pods of each role, beside the usual ones.
fn others<'a>(
    demand: &Demand,
    might_take: &[(&'a ClusterName, Vec<u64>)],
    few: usize,
) -> Vec<Vec<&'a ClusterName>> {
    if !demand.placement.spread.is_empty() {
        return Vec::new();
    }
    let takes_any = |(_, pods): &&(_, Vec<u64>)| pods.iter().any(|pods| *pods > 0);
    let able: Vec<_> = might_take.iter().filter(takes_any).collect();
    let enough = |chosen: &[&(_, Vec<u64>)]| {
        let mut roles = demand.roles.iter().enumerate();
        roles.all(|(index, role)| {
            let pods = chosen.iter().map(|(_, pods)| pods[index]);
            u64::from(role.count) <= pods.fold(0, u64::saturating_add)
        })
    };
    let chosen = choices(&able, few, enough).into_iter();
    let named = chosen.map(|chosen| chosen.into_iter().map(|(cluster, _)| *cluster).collect());
    named.collect()
}

/// How many pods a gang has of which several clusters take no more together than each of them alone: of one role,
/// without rules between its pods.
fn most_is_known(demand: &Demand) -> Option<u64> {
    let mut roles = demand.roles.iter().filter(|role| role.count > 0);
    let (first, others) = (roles.next()?, roles.next());
    (others.is_none() && !demand.has_rules()).then_some(u64::from(first.count))
}

/// Choices of so many clusters: the first ones, or those that meet the job's spread constraints.
fn chosen<'a>(
    inputs: Inputs<'a>,
    demand: &Demand,
    fitting: &[&'a ClusterName],
    few: usize,
) -> Vec<Vec<&'a ClusterName>> {
    let rules = demand.placement.spread.as_slice();
    if rules.is_empty() {
        return vec![fitting.iter().take(few).copied().collect()];
    }
    let names = fitting.iter().copied();
    let known: Vec<_> = names
        .filter_map(|name| Some((name, inputs.capacity.cluster_fact(name)?)))
        .collect();
    let facts: Vec<_> = known.iter().map(|(_, fact)| *fact).collect();
    let choices = spread::choices(rules, &facts, few).into_iter();
    let named = choices.map(|choice| choice.into_iter().map(|index| known[index].0).collect());
    named.collect()
}
