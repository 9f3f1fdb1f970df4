//! The nodes of several clusters on which the pods of a gang are put one by one: over the fewest clusters that take it,
//! those that take most of it first.

use crate::api::demand::Demand;
use crate::api::ids::ClusterName;
use crate::capacity::Sites;
use crate::pending::shapes::RequestShape;
use crate::placement::put::put_all;
use crate::placement::spread;
use crate::placement::ways::{Unreserved, most_in};
use crate::state::Inputs;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The gang over the fewest of some clusters where it is put at an accepted cost, with what has to become free.
pub(crate) fn put_across<'a>(
    inputs: Inputs<'a>,
    shape: &'a RequestShape,
    clusters: &BTreeSet<&'a ClusterName>,
    left: Unreserved<'_>,
    accepts: impl Fn(i128) -> bool,
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
    (least.max(2)..=most.min(fitting.len())).find_map(|few| {
        let choices = chosen(inputs, demand, &fitting, few).into_iter();
        let choices = choices.filter(|chosen| are_enough(chosen));
        let mut put = choices.filter_map(|chosen| {
            let parts = chosen.iter().filter_map(|cluster| most_on.get(cluster));
            let mut sites = Sites::joined(parts.map(|(_, sites)| sites.clone()))?;
            let cost = put_all(&inputs.capacity, demand, &mut sites)?;
            Some((cost, sites))
        });
        put.find(|(cost, _)| accepts(*cost))
    })
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
