//! What a change of the fleet wakes: a part of `react`.
//!
//! A change of a cluster may change all that is known of what fits. A change of a node concerns what may run on that
//! node: one that may run more is as good as freed, and one that may run less wakes nobody, besides jobs that the
//! fleet may be too small for now, and those that hold up others.

use crate::backfill::{offers, withheld};
use crate::cycle::react::bounds_changed;
use crate::cycle::reserve;
use crate::cycle::wake::{cluster_total, nodes_freed, recheck};
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::infeasible::Nodes;
use crate::state::Engine;
use facts::{ClusterName, JobKey, QueueOrdering};
use std::collections::BTreeSet;

/// Facts of clusters changed: the fleet's totals change, and what could never fit is evaluated again.
pub(crate) fn clusters_changed<'a>(
    engine: &mut Engine,
    clusters: impl IntoIterator<Item = &'a ClusterName>,
) {
    set_totals(engine, clusters);
    engine.eligibility.renew(&engine.capacity);
    // A node that is new, or larger than it was, may take more of an elastic gang.
    engine.jobs.retry_scale_up();
    bounds_changed(engine);
    engine.pending.backoff.moved();
    engine.pending.forget_fits();
    engine.pending.retry_all_reservations();
    // With none known, an owner would lose its reservation to the first job that is in the window with it.
    let owners = engine.reservations.iter();
    let shapes = owners.filter_map(|kept| withheld::shape_of(engine.inputs(), &kept.rank.key));
    for shape in shapes.collect::<BTreeSet<_>>() {
        reserve::guess_scopes(engine, shape);
    }
    engine.pending.queues.wake(&RequeueCondition::Fleet);
    // A job that lacks quota may not fit the fleet now: then it must not hold up those behind it.
    engine.pending.queues.wake_windows();
}

/// Nodes of clusters came, went or changed what they are; those that are named may run what they could not run before.
pub(crate) fn nodes_changed(engine: &mut Engine, touched: Nodes) {
    let regrouped = engine.capacity.take_regrouped();
    if !engine.eligibility.is_current(&engine.capacity) {
        // A cluster has its first nodes, or has none any more.
        return clusters_changed(engine, touched.keys());
    }
    set_totals(engine, touched.keys());
    bounds_changed(engine);
    let may_exceed = offers::may_exceed_fleet(engine.inputs());
    engine.pending.nodes_changed(may_exceed, regrouped);
    recheck_ahead(engine, &touched);
    engine.pending.queues.wake_windows();
    if regrouped {
        engine.pending.retry_all_reservations();
    }
    let better: Nodes = touched
        .into_iter()
        .filter(|(_, nodes)| !nodes.is_empty())
        .collect();
    if !better.is_empty() {
        engine.jobs.retry_scale_up();
        engine.pending.backoff.moved();
        engine.pending.queues.wake(&RequeueCondition::Fleet);
        nodes_freed(engine, better);
    }
}

fn set_totals<'a>(engine: &mut Engine, clusters: impl IntoIterator<Item = &'a ClusterName>) {
    let clusters = clusters.into_iter();
    let totals = clusters.map(|cluster| (cluster, cluster_total(engine.inputs(), cluster)));
    let totals: Vec<_> = totals.collect();
    engine.quota.set_fleet(totals);
}

/// Jobs that hold what others could use, or are ahead of others, are evaluated again: those with reservations in
/// clusters whose nodes changed, and the heads of StrictFIFO queues. They may be jobs that can never start now.
fn recheck_ahead(engine: &mut Engine, touched: &Nodes) {
    let owners = engine.reservations.with_nodes().filter(|kept| {
        let mut nodes = kept.nodes.iter();
        nodes.any(|node| touched.contains_key(&node.cluster))
    });
    let queues = engine.pending.queues.pending_queues();
    let strict =
        queues.filter(|(name, _)| engine.quota.ordering(name) == QueueOrdering::StrictFifo);
    let heads = strict.filter_map(|(_, queue)| queue.first_that_may_go());
    let ahead = owners.map(|kept| &kept.rank).chain(heads);
    let mut ahead: Vec<JobKey> = ahead.map(|rank| rank.key.clone()).collect();
    ahead.sort_unstable();
    for key in ahead {
        recheck(engine, &key);
    }
}
