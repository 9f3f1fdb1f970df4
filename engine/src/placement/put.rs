//! Puts the pods of a job on nodes where the least has to become free, as its rules between pods allow.

use crate::capacity::{Capacity, Need, Sites};
use crate::placement::plan::all_needs;
use facts::Demand;
use std::cmp::Reverse;

/// All roles, those with the most devices first.
fn ordered(demand: &Demand) -> Vec<Need<'_>> {
    let mut needs = all_needs(demand);
    needs.sort_by_key(|need| {
        let request = need.role.request.iter();
        let devices = request.filter(|(name, _)| name.is_device());
        Reverse(devices.map(|(_, amount)| amount).max())
    });
    needs
}

/// Puts all pods. What has to become free, or `None` where they do not all fit.
pub(crate) fn put_all<'a>(
    capacity: &'a Capacity,
    demand: &'a Demand,
    sites: &mut Sites<'a>,
) -> Option<i128> {
    let put = |sites: &mut Sites<'a>| {
        let mut cost = 0;
        for need in ordered(demand) {
            let (freed, left) = sites.put(need.role, need.count);
            if left > 0 {
                return None;
            }
            cost += freed;
        }
        Some(cost)
    };
    if !demand.has_rules() {
        return put(sites);
    }
    let ways = capacity.ways(sites, demand).into_iter();
    let ways = ways.filter_map(|mut way| Some((put(&mut way)?, way)));
    let (cost, best) = ways.min_by_key(|(cost, _)| *cost)?;
    *sites = best;
    Some(cost)
}

/// How many pods fit, if they are put one after another; none are put there.
pub(crate) fn most_on<'a>(capacity: &'a Capacity, demand: &'a Demand, sites: &Sites<'a>) -> u64 {
    if let [need] = ordered(demand).as_slice()
        && !demand.has_rules()
        && let Some(most) = sites.most(need.role, need.count)
    {
        return u64::from(most);
    }
    let put = |sites: &mut Sites<'a>| {
        let needs = ordered(demand).into_iter();
        let placed = needs.map(|need| need.count - sites.put(need.role, need.count).1);
        placed.map(u64::from).sum()
    };
    if !demand.has_rules() {
        return put(&mut sites.clone());
    }
    let ways = capacity.ways(sites, demand).into_iter();
    ways.map(|mut way| put(&mut way)).max().unwrap_or(0)
}
