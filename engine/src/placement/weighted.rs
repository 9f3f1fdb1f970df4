//! A job that Karmada divides, shared out among clusters as its policy wishes: by the weights of clusters, or by the
//! capacity that they have for it.
//!
//! The clusters with the highest weights count, as many as the job may use. Each gets its part of the pods, rounded
//! so that the sum is right. Where a cluster has too little capacity for its part, the others share the rest by their
//! weights. If that cannot be, nothing is returned, and the job goes where it fits: the weights are a wish.

use crate::capacity::{FittingPods, Need, NodeView, Packing, Place};
use crate::eligibility::store::Eligible;
use crate::overlay::Overlay;
use crate::placement::request::GangRequest;
use crate::placement::score::Weights;
use crate::placement::{candidate, mixed, spread};
use crate::state::Inputs;
use facts::{ClusterFact, Division, Role, Share};
use std::cmp::Reverse;
use std::sync::Arc;

/// The most clusters that are considered.
const COUNTED: usize = 64;

/// A cluster with its weight and the pods that it has capacity for.
#[derive(Debug, Clone, Copy)]
struct WeighedSite<'a> {
    place: Place,
    fact: &'a ClusterFact,
    weight: u64,
    room: u32,
    fitting: FittingPods,
}

/// The job as its policy wishes it to be shared out, with its weighted score; `None` if it wishes nothing, or that
/// cannot be.
pub(crate) fn as_wished(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    eligible: &Eligible,
    weights: &Weights<'_>,
) -> Option<(Vec<Share>, i128)> {
    let demand = &*gang.shape.demand;
    let wishes = demand.natively_divisible && demand.placement.division != Division::Fewest;
    let main = demand.roles.iter().position(|role| role.count > 0)?;
    let one = demand.roles.iter().filter(|role| role.count > 0).count() == 1;
    if !wishes || !one {
        return None;
    }
    let role = &demand.roles[main];
    let pack = |place: Place, count: u32| {
        let need = Need {
            index: main,
            role,
            count,
        };
        let cluster = &inputs.capacity.places()[place];
        let node_view = NodeView::of(overlay);
        let topology = demand.topology.as_ref();
        inputs.capacity.fill(cluster, &[need], node_view, topology)
    };
    let sites = weighed(inputs, gang, role, eligible, &pack);
    let sites = chosen(inputs, gang, sites)?;
    let wanted: Vec<(u64, u32)> = sites.iter().map(|site| (site.weight, site.room)).collect();
    let counts = shared_out(role.count, &wanted)?;
    let used = || {
        let all = sites.iter().zip(&counts);
        all.filter(|(_, count)| **count > 0)
    };
    let facts: Vec<&ClusterFact> = used().map(|(site, _)| site.fact).collect();
    let least = demand.placement.min_clusters.unwrap_or(1) as usize;
    if facts.len() < least || !spread::is_met(&demand.placement.spread, &facts) {
        return None;
    }
    let parts: Vec<(Place, Packing)> = used()
        .map(|(site, count)| (site.place, pack(site.place, *count)))
        .collect();
    if used()
        .zip(&parts)
        .any(|((_, count), (_, packing))| packing.pods() != *count)
    {
        return None;
    }
    let parts = used().zip(parts).map(|((site, _), part)| {
        let scored = candidate::scored_part(inputs, gang, overlay, part, site.fitting, weights);
        Arc::new(scored)
    });
    let option = candidate::scored_together(inputs, parts.collect(), 0, weights);
    mixed::first_within_bounds(inputs, gang, overlay, vec![option]).ok()
}

/// The eligible clusters that have a weight and capacity, the highest weights first.
fn weighed<'a>(
    inputs: Inputs<'a>,
    gang: GangRequest<'_>,
    role: &Role,
    eligible: &Eligible,
    pack: &dyn Fn(Place, u32) -> Packing,
) -> Vec<WeighedSite<'a>> {
    let fitting = inputs.capacity.fitting_for_role(role);
    let weight_of = |fact: &ClusterFact| match &gang.shape.demand.placement.division {
        Division::ByWeight(rules) => {
            let rules = rules.iter().filter(|rule| rule.clusters.selects(fact));
            rules.map(|rule| rule.weight).max().unwrap_or(0)
        }
        Division::ByCapacity | Division::Fewest => 0,
    };
    let site = |place: &Place| {
        let fact = inputs
            .capacity
            .cluster_fact(&inputs.capacity.places()[*place])?;
        Some(WeighedSite {
            place: *place,
            fact,
            weight: weight_of(fact),
            room: 0,
            fitting: fitting[*place],
        })
    };
    let mut sites: Vec<WeighedSite<'_>> = eligible.places.iter().filter_map(site).collect();
    if sites.iter().any(|site| site.weight > 0) {
        sites.retain(|site| site.weight > 0);
    } else {
        sites.iter_mut().for_each(|site| site.weight = 1);
    }
    sites.sort_by_key(|site| (Reverse(site.weight), Reverse(site.fitting.now), site.place));
    sites.truncate(COUNTED);
    for site in &mut sites {
        site.room = pack(site.place, role.count).pods();
    }
    sites.retain(|site| site.room > 0);
    if gang.shape.demand.placement.division == Division::ByCapacity {
        sites
            .iter_mut()
            .for_each(|site| site.weight = u64::from(site.room));
        sites.sort_by_key(|site| (Reverse(site.weight), site.place));
    }
    sites
}

/// As many of the clusters as the job may use, which meet its spread constraints.
fn chosen<'a>(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    sites: Vec<WeighedSite<'a>>,
) -> Option<Vec<WeighedSite<'a>>> {
    let placement = &gang.shape.demand.placement;
    let policy = inputs.quota.policy(gang.queue);
    let of_queue = policy.and_then(|policy| policy.max_clusters);
    let most = placement.max_clusters.into_iter().chain(of_queue).min();
    let most = sites.len().min(most.unwrap_or(u32::MAX) as usize);
    let facts: Vec<&ClusterFact> = sites.iter().map(|site| site.fact).collect();
    let choice = (1..=most)
        .rev()
        .find_map(|count| match placement.spread.as_slice() {
            [] => Some((0..count).collect()),
            rules => spread::choices(rules, &facts, count).into_iter().next(),
        })?;
    Some(
        choice
            .into_iter()
            .map(|index: usize| sites[index])
            .collect(),
    )
}

/// So many pods over sites with a weight and room each; `None` if there is too little room.
fn shared_out(count: u32, sites: &[(u64, u32)]) -> Option<Vec<u32>> {
    let mut counts: Vec<Option<u32>> = vec![None; sites.len()];
    loop {
        let full: u64 = counts.iter().flatten().map(|count| u64::from(*count)).sum();
        let left = u64::from(count).saturating_sub(full);
        let open: Vec<usize> = (0..sites.len())
            .filter(|site| counts[*site].is_none())
            .collect();
        if open.is_empty() {
            let none_left = left == 0;
            return none_left.then(|| counts.into_iter().flatten().collect());
        }
        let weights: Vec<u64> = open.iter().map(|site| sites[*site].0).collect();
        let parts = apportioned(left, &weights);
        let beyond = |(site, part): &(&usize, &u64)| **part > u64::from(sites[**site].1);
        let too_much: Vec<usize> = open
            .iter()
            .zip(&parts)
            .filter(beyond)
            .map(|(site, _)| *site)
            .collect();
        if too_much.is_empty() {
            for (site, part) in open.iter().zip(parts) {
                counts[*site] = u32::try_from(part).ok();
            }
            return counts.into_iter().collect();
        }
        for site in too_much {
            counts[site] = Some(sites[site].1);
        }
    }
}

/// `count` by these weights: rounded down, and one more for each of the largest remainders.
fn apportioned(count: u64, weights: &[u64]) -> Vec<u64> {
    let sum = weights
        .iter()
        .map(|weight| u128::from(*weight))
        .sum::<u128>()
        .max(1);
    let exact = |weight: &u64| u128::from(count) * u128::from(*weight);
    let mut parts: Vec<u64> = weights
        .iter()
        .map(|weight| u64::try_from(exact(weight) / sum).unwrap_or(u64::MAX))
        .collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|index| (Reverse(exact(&weights[*index]) % sum), *index));
    let given: u64 = parts.iter().sum();
    for index in order
        .into_iter()
        .take(usize::try_from(count.saturating_sub(given)).unwrap_or(0))
    {
        parts[index] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_shared_out_by_weight_as_far_as_there_is_room() {
        type Case = (u32, &'static [(u64, u32)], Option<&'static [u32]>);
        let cases: [Case; 9] = [
            (12, &[(1, 99), (2, 99), (3, 99)], Some(&[2, 4, 6])),
            (10, &[(1, 99), (1, 99), (1, 99)], Some(&[4, 3, 3])),
            (3, &[(2, 9), (1, 9)], Some(&[2, 1])),
            (1, &[(1, 9), (2, 9)], Some(&[0, 1])),
            // The first has too little room: the others share the rest by their weights.
            (12, &[(2, 3), (1, 99), (2, 99)], Some(&[3, 3, 6])),
            (12, &[(8, 3), (4, 3), (1, 99)], Some(&[3, 3, 6])),
            (6, &[(1, 3), (1, 3)], Some(&[3, 3])),
            (7, &[(1, 3), (1, 3)], None),
            (1, &[], None),
        ];
        for (count, sites, wanted) in cases {
            let found = shared_out(count, sites);
            assert_eq!(found.as_deref(), wanted, "{count} over {sites:?}");
        }
    }

    #[test]
    fn no_pod_is_lost_or_added_by_rounding() {
        for count in [0, 1, 7, 1_000_003, u64::from(u32::MAX)] {
            for weights in [
                &[1][..],
                &[1, 1, 1],
                &[3, 5, 7, 11],
                &[u64::MAX, 1, u64::MAX],
            ] {
                let parts = apportioned(count, weights);
                assert_eq!(parts.iter().sum::<u64>(), count, "{count} by {weights:?}");
            }
        }
    }
}
