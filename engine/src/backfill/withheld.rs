//! What reservations withhold from a request.
//!
//! A job ahead of a reservation's owner is never stopped by it. A job behind the owner may use what
//! is reserved only if it will have ended before the owner's expected start, or if enough is left
//! besides; where the start is not known, no job may. Starts come from declared or predicted ends,
//! which err: then the start moves, and no job is stopped for it.
//!
//! A preemptor's reservation binds every job (except those ahead in its own queue where that is
//! StrictFIFO) until its victims are gone and it was evaluated once more: otherwise a victim that is
//! first again when it is gone would take its capacity back, and be evicted again.

use crate::amounts::totals::ResourceTotals;
use crate::api::facts::QueueOrdering;
use crate::api::ids::JobKey;
use crate::backfill::{expected_release, reservation};
use crate::capacity::{Basis, ReservedNodes};
use crate::jobs::job::PendingEntry;
use crate::pending::shapes::ShapeId;
use crate::placement::plan::View;
use crate::placement::request::Request;
use crate::placement::without;
use crate::quota::Withheld;
use crate::reservation::store::Reservation;
use crate::state::Inputs;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Holders ahead of the request whose reservations it has to leave alone, in order.
pub(crate) fn reservations_ahead<'a>(inputs: Inputs<'a>, request: Request<'_>) -> Vec<&'a JobKey> {
    let mut ahead: Vec<&Reservation> = inputs
        .reservations
        .iter()
        .filter(|reserved| binds(inputs, reserved, request))
        .collect();
    ahead.sort_by(|a, b| {
        inputs
            .quota
            .compare((&a.queue, &a.rank), (&b.queue, &b.rank))
    });
    ahead
        .into_iter()
        .map(|reserved| &reserved.rank.key)
        .collect()
}

/// Whether an request has to leave a reservation alone.
pub(crate) fn binds(inputs: Inputs<'_>, reserved: &Reservation, request: Request<'_>) -> bool {
    if reserved.taking() {
        // Also those who would come first as things are: what is freed for it is for it.
        // In a strict queue the holder could not go before those ahead of it, so they may.
        let strict = inputs.quota.ordering(request.queue) == QueueOrdering::StrictFifo;
        let ahead = reserved.queue == *request.queue && *request.rank < reserved.rank;
        return reserved.rank.key != request.rank.key && !(strict && ahead);
    }
    let own = inputs.reservations.of(&request.rank.key);
    if own.is_some_and(Reservation::is_served) {
        // What was freed for it is not kept for anybody who lacked something later. Until
        // then it goes nowhere else either: what others keep is theirs.
        return false;
    }
    let holder = (&reserved.queue, &reserved.rank);
    let behind = inputs.quota.compare(holder, (request.queue, request.rank)) == Ordering::Less;
    let gone_before = match (reserved.start, request.shape.duration) {
        (Some(start), Some(duration)) => inputs.now.after(duration) <= start,
        _ => false,
    };
    behind && !gone_before
}

/// What the reservations of `holders` keep of the nodes.
pub(crate) fn nodes_reserved(inputs: Inputs<'_>, holders: &[&JobKey]) -> ReservedNodes {
    let mut nodes = ReservedNodes::new();
    for reserved in holders.iter().filter_map(|key| inputs.reservations.of(key)) {
        for node in &reserved.nodes {
            let cluster = nodes.entry(node.cluster.clone()).or_default();
            let totals = cluster.entry(node.node.clone()).or_default();
            totals.add(&node.resources, 1);
        }
    }
    nodes
}

/// What the reservations of `holders` keep of the headroom.
pub(crate) fn headroom_reserved(inputs: Inputs<'_>, holders: &[&JobKey]) -> Withheld {
    let mut all = Withheld::default();
    for reserved in holders.iter().filter_map(|key| inputs.reservations.of(key)) {
        for queue in inputs.quota.path(&reserved.queue) {
            let releases = reserved
                .releases
                .iter()
                .filter(|releases| releases.queue == queue);
            let releases =
                releases.filter(|releases| expected_release::is_expected(inputs, releases));
            let mut given = ResourceTotals::default();
            releases.clone().for_each(|r| given.add(&r.resources, 1));
            let headroom = all.headroom.entry(queue.clone()).or_default();
            headroom.add_totals(&reservation::beyond(&reserved.charge, &given), 1);
            let pools = all.pools.entry(queue.clone()).or_default();
            for (cluster, class, resources) in &reserved.pools {
                let mut given = ResourceTotals::default();
                let here = releases.clone();
                here.filter(|r| r.cluster == *cluster && r.class == *class)
                    .for_each(|r| given.add(&r.resources, 1));
                let pool = (cluster.clone(), class.clone());
                let reserved = pools.entry(pool).or_default();
                reserved.add_totals(&reservation::beyond(resources, &given), 1);
            }
        }
    }
    all
}

/// Whether jobs are being evicted for this one.
pub(crate) fn has_pending_evictions(inputs: Inputs<'_>, key: &JobKey) -> bool {
    inputs.reservations.has_preemptors()
        && inputs.reservations.of(key).is_some_and(Reservation::taking)
}

/// Where a waiting job stands in line.
pub(crate) fn line_now(inputs: Inputs<'_>, key: &JobKey) -> Option<PendingEntry> {
    inputs.jobs.get(key)?.derived.line.clone()
}

/// What a waiting job wants.
pub(crate) fn shape_of(inputs: Inputs<'_>, key: &JobKey) -> Option<ShapeId> {
    Some(inputs.jobs.line_of(key)?.shape)
}

/// What there is for a job beside what the reservations of `ahead` keep.
///
/// Promises to preemptors were made as if all that is leaving had left. One whose own victims
/// are gone has to find the same, or those of a later preemptor would stop it, charged and
/// about to be free for what is kept at once; but it may use only what is free already.
pub(crate) fn beside(inputs: Inputs<'_>, request: Request<'_>, ahead: &[&JobKey]) -> View {
    let mut view = View {
        basis: Basis::Now,
        nodes: nodes_reserved(inputs, ahead),
        kept: headroom_reserved(inputs, ahead),
        tells: request.tells,
    };
    let own = inputs.reservations.of(&request.rank.key);
    if !own.is_some_and(Reservation::is_served) {
        return view;
    }
    for key in inputs.jobs.preemptible().terminating() {
        if let Some((queue, charge, nodes)) = without::going(inputs, key) {
            without::without(inputs, &mut view, &queue, &charge);
            without::off_nodes(&mut view, nodes);
        }
    }
    view.kept.floored = true;
    let reserved = view.nodes.values_mut().flat_map(BTreeMap::values_mut);
    reserved.for_each(ResourceTotals::drop_negative);
    view
}
