//! A gang that packing finds no plan for, put pod by pod as a reservation for it is planned.
//!
//! Packing takes roles one after another, and divides only the largest of them. That finds a plan for gangs of one role
//! whenever there is one, but not for all gangs of several roles, with rules between pods, or over several clusters
//! beside bounds on pools. A reservation puts pods one by one on any nodes: without this its owner could wait for ever
//! on nodes that are free.

use crate::api::charge::pools_of;
use crate::capacity::{Place, Sites};
use crate::eligibility::store::Eligible;
use crate::overlay::Overlay;
use crate::placement::across::put_across;
use crate::placement::plan::share_of;
use crate::placement::put::put_all;
use crate::placement::request::GangRequest;
use crate::placement::ways::{Unreserved, ways};
use crate::state::Inputs;
use facts::{ClusterName, Demand, Role, Share};
use std::collections::BTreeSet;

/// The gang on nodes that have enough free, in one cluster or else over the fewest.
pub(crate) fn put_now(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    eligible: &Eligible,
) -> Option<Vec<Share>> {
    let demand = &*gang.shape.demand;
    let roles = demand.roles.iter().filter(|role| role.count > 0).count();
    let bounds = inputs.quota.bounds_pools(gang.queue);
    if roles < 2 && !demand.has_rules() && !bounds {
        return None;
    }
    let places = promising(inputs, demand, overlay, eligible)?;
    let clusters: BTreeSet<&ClusterName> = places
        .into_iter()
        .map(|place| &inputs.capacity.places()[place])
        .collect();
    let usage = match overlay.is_of_empty_fleet() {
        true => Overlay::empty_fleet(),
        false => Overlay::default(),
    };
    let limits = inputs.quota.pool_limits(gang.queue, &usage);
    let left = Unreserved {
        overlay,
        limits: &limits,
    };
    let sites = put_whole(inputs, demand, &clusters, left).or_else(|| {
        let put = put_across(inputs, gang.shape, &clusters, left, true);
        put.map(|(_, sites)| sites)
    })?;
    let packings = sites.packings(demand).into_iter();
    let shares: Vec<Share> = packings
        .map(|(cluster, packing)| share_of(inputs, cluster, demand, &packing))
        .collect();
    let checked = inputs
        .quota
        .check_pools(gang.queue, &pools_of(&shares), overlay);
    checked.is_ok().then_some(shares)
}

/// The clusters that the gang may use together, if they might take all pods of each role. Those on which something is
/// taken to be gone are left out: whole clusters would be looked at for each choice of victims.
fn promising(
    inputs: Inputs<'_>,
    demand: &Demand,
    overlay: &Overlay,
    eligible: &Eligible,
) -> Option<Vec<Place>> {
    let is_as_now = |place: &Place| {
        let nodes = overlay.nodes_of(&inputs.capacity.places()[*place]);
        let mut withheld = nodes.into_iter().flat_map(|nodes| nodes.values());
        withheld.all(|withheld| withheld.iter().all(|(_, amount)| amount >= 0))
    };
    let places: Vec<Place> = eligible.places.iter().copied().filter(is_as_now).collect();
    let might_take = |role: &Role| {
        let fitting = inputs.capacity.fitting_for_role(role);
        let fitting = places
            .iter()
            .map(|place| match overlay.is_of_empty_fleet() {
                true => fitting[*place].empty,
                false => fitting[*place].now,
            });
        fitting.fold(0, u64::saturating_add) >= u64::from(role.count)
    };
    demand.roles.iter().all(might_take).then_some(places)
}

/// All pods on one cluster.
fn put_whole<'a>(
    inputs: Inputs<'a>,
    demand: &'a Demand,
    clusters: &BTreeSet<&'a ClusterName>,
    left: Unreserved<'_>,
) -> Option<Sites<'a>> {
    if demand.placement.min_clusters.unwrap_or(1) > 1 {
        return None;
    }
    clusters.iter().find_map(|cluster| {
        let mut ways = ways(inputs, demand, cluster, left).into_iter();
        ways.find_map(|mut sites| {
            let cost = put_all(&inputs.capacity, demand, &mut sites)?;
            (cost == 0).then_some(sites)
        })
    })
}
