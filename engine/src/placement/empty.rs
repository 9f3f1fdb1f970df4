//! What the empty fleet could take: whether a gang could ever start, whatever runs now.
//!
//! This is computed for every request shape after every change of the fleet. If only whether it fits
//! is of interest, nothing is scored wherever one cluster takes the gang whole.

use crate::capacity::{NodeView, Place};
use crate::overlay::Overlay;
use crate::pending::shapes::RequestShape;
use crate::placement::request::GangRequest;
use crate::placement::{eligible, plan};
use crate::state::Inputs;
use facts::{ClusterName, QueueName, Share};
use std::collections::BTreeSet;

/// So many clusters are tried whole before plans are scored.
const TRIED: usize = 4;

/// True if the empty fleet could take the gang, some clusters left out.
pub(crate) fn fits_empty_fleet(
    inputs: Inputs<'_>,
    shape: &RequestShape,
    without: &BTreeSet<ClusterName>,
) -> bool {
    fits_whole(inputs, shape, without) || when_empty(inputs, shape, without).is_some()
}

/// True if the bounds of its queue would admit the gang if the fleet were empty and nothing charged.
pub(crate) fn fits_capability(inputs: Inputs<'_>, queue: &QueueName, shape: &RequestShape) -> bool {
    on_empty_fleet(inputs, queue, shape, &BTreeSet::new()).is_some()
}

/// Where the gang would go if the fleet were empty, some clusters left out.
pub(crate) fn when_empty(
    inputs: Inputs<'_>,
    shape: &RequestShape,
    without: &BTreeSet<ClusterName>,
) -> Option<Vec<Share>> {
    // The bounds of its queue do not count: an unknown queue has none.
    on_empty_fleet(inputs, &QueueName::from(""), shape, without)
}

fn on_empty_fleet(
    inputs: Inputs<'_>,
    queue: &QueueName,
    shape: &RequestShape,
    without: &BTreeSet<ClusterName>,
) -> Option<Vec<Share>> {
    let verbose = false;
    let gang = GangRequest {
        queue,
        shape,
        job: None,
        verbose,
    };
    plan::plan_without(inputs, gang, &Overlay::empty_fleet(), without).ok()
}

/// True if one of the first clusters that might take it all does; false says nothing.
fn fits_whole(inputs: Inputs<'_>, shape: &RequestShape, without: &BTreeSet<ClusterName>) -> bool {
    let demand = &shape.demand;
    if demand.placement.min_clusters.unwrap_or(1) > 1 {
        return false;
    }
    let roles = demand.roles.iter().filter(|role| role.count > 0);
    let fitting = roles.map(|role| {
        let fitting = inputs.capacity.fitting_for_role(role);
        (u64::from(role.count), fitting)
    });
    let fitting: Vec<_> = fitting.collect();
    let might = |place: &&Place| {
        let mut roles = fitting.iter();
        roles.all(|(count, fitting)| *count <= fitting[**place].empty)
    };
    let overlay = Overlay::empty_fleet();
    let takes = |place: &Place| {
        let cluster = &inputs.capacity.places()[*place];
        let packing = plan::place_all(inputs, demand, cluster, NodeView::of(&overlay));
        packing.lack.is_none()
    };
    let groups = eligible::eligible_by_group(inputs, &demand.placement, without);
    let places = groups.iter().flat_map(|group| &group.places);
    places.filter(might).take(TRIED).any(takes)
}
