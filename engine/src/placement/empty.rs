//! What the empty fleet could take: whether a job could ever start, whatever runs now.
//!
//! Asked of every want after every change of the fleet, so the mere question whether it fits is
//! answered without weighing anything wherever one cluster takes it whole.

use crate::api::facts::Share;
use crate::api::ids::{ClusterName, QueueName};
use crate::capacity::{Basis, Place};
use crate::pending::shapes::RequestShape;
use crate::placement::plan::{View, all_needs, node_view};
use crate::placement::{eligible, plan};
use crate::state::Inputs;
use std::collections::BTreeSet;

/// So many clusters are tried whole before plans are weighed.
const TRIED: usize = 4;

fn empty_fleet() -> View {
    View {
        basis: Basis::Empty,
        ..View::now()
    }
}

/// Whether the empty fleet could take the job, some clusters left out.
pub(crate) fn fits_empty_fleet(
    inputs: Inputs<'_>,
    shape: &RequestShape,
    without: &BTreeSet<ClusterName>,
) -> bool {
    fits_whole(inputs, shape, without) || when_empty(inputs, shape, without).is_some()
}

/// Whether the bounds of its queue would let the job go, were the fleet empty and nothing
/// charged.
pub(crate) fn could_be_let(inputs: Inputs<'_>, queue: &QueueName, shape: &RequestShape) -> bool {
    let mut view = empty_fleet();
    view.kept.idle = true;
    plan::plan_without(inputs, queue, shape, &view, &BTreeSet::new()).is_ok()
}

/// Where the job would go, were the fleet empty, some clusters left out.
pub(crate) fn when_empty(
    inputs: Inputs<'_>,
    shape: &RequestShape,
    without: &BTreeSet<ClusterName>,
) -> Option<Vec<Share>> {
    // Bounds of the queue do not matter here: of a queue that nobody knows there are none.
    let unbounded = QueueName::from("");
    plan::plan_without(inputs, &unbounded, shape, &empty_fleet(), without).ok()
}

/// Whether one of the first clusters that might would take it all: if not, that says
/// nothing.
fn fits_whole(inputs: Inputs<'_>, shape: &RequestShape, without: &BTreeSet<ClusterName>) -> bool {
    let placement = &shape.demand.placement;
    if placement.min_clusters.unwrap_or(1) > 1 {
        return false;
    }
    let view = empty_fleet();
    let roles = shape.demand.roles.iter().filter(|role| role.count > 0);
    let fitting = roles.map(|role| {
        (
            u64::from(role.count),
            inputs.capacity.fitting_for_role(role),
        )
    });
    let fitting: Vec<_> = fitting.collect();
    let might = |place: &&Place| {
        let mut roles = fitting.iter();
        roles.all(|(count, fitting)| *count <= fitting[**place].empty)
    };
    let needs = all_needs(&shape.demand);
    let takes = |place: &Place| {
        let cluster = &inputs.capacity.places()[*place];
        let node_view = node_view(&view, cluster, None);
        let topology = shape.demand.topology.as_ref();
        let packing = inputs.capacity.place(cluster, &needs, &node_view, topology);
        packing.lack.is_none()
    };
    let groups = eligible::eligible_by_group(inputs, placement, without);
    let places = groups.iter().flat_map(|group| &group.places);
    places.filter(might).take(TRIED).any(takes)
}
