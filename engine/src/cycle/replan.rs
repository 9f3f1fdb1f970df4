//! Which owners of reservations are planned again after an admission, another reservation, or an end.

use crate::backfill::{expected_release, expected_start, plan, withheld};
use crate::cycle::wake::recheck;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::infeasible::Nodes;
use crate::reservation::store::{Reservation, ReservedNode};
use crate::state::{Engine, Inputs};
use facts::{JobKey, Time};
use std::cell::LazyCell;
use std::collections::BTreeSet;

/// The admitted job may use what was reserved, or give back by its end what is withheld for an owner: those
/// reservations are replanned. So are those of owners that its end may let start sooner on nodes that were reserved
/// for it until now, since no end was known of what is reserved.
pub(super) fn owners_met_by_admission(engine: &mut Engine, admitted: &JobKey, had_nodes: bool) {
    let Some(job) = engine.jobs.get(admitted) else {
        return;
    };
    let Some(released) = &job.released else {
        return;
    };
    let (end, admission) = (job.derived.has.expected_end, &released.admission);
    let clusters = admission.shares.iter().map(|share| &share.cluster);
    engine.pending.note_taken_in(clusters);
    let path = engine.quota.path(&admission.queue);
    let on_its_nodes = |node: &ReservedNode| {
        admission.shares.iter().any(|share| {
            share.cluster == node.cluster && share.slots.iter().any(|s| s.node == node.node)
        })
    };
    let ends_before = |kept: &Reservation| {
        let starts_later = |end| kept.start.is_none_or(|start| end < start);
        had_nodes && !kept.nodes.is_empty() && end.is_some_and(starts_later)
    };
    let mut met = Vec::new();
    for kept in engine.reservations.iter() {
        let its_path = engine.quota.path(&kept.queue);
        let mut shared = its_path.iter().filter(|queue| path.contains(queue));
        let gives_back =
            |queue| expected_release::would_count_on(engine.inputs(), kept, end, queue);
        if kept.nodes.iter().any(on_its_nodes)
            || path.contains(&kept.queue)
            || ends_before(kept)
            || shared.any(gives_back)
        {
            met.push(kept.rank.key.clone());
        }
    }
    for holder in met {
        recheck(engine, &holder);
    }
}

/// Takes note that jobs have ended on nodes that are reserved for an owner. Less has to become free there than before,
/// and no less than that on any other nodes: as long as it cannot start, it keeps its nodes. The quota that those jobs
/// gave back is reserved for it from now on. Where that is not all there is to it, its reservation is replanned: it may
/// start sooner, counts on ends, or more of its pods may go to a node than it has reserved there.
pub(super) fn reserved_freed(engine: &mut Engine, owner: &JobKey, freed: &Nodes) {
    let inputs = engine.inputs();
    let Some(kept) = inputs.reservations.of(owner) else {
        return;
    };
    let on = kept.nodes.iter().filter(|node| node.is_among(freed));
    let on: Vec<ReservedNode> = on.cloned().collect();
    let stays = !kept.taking()
        && !kept.lacked_headroom()
        && !kept.counts_on_ends()
        && !plan::takes_more_on(inputs, kept, &on)
        && plan::lacks_any(inputs, kept)
        && expected_start::is_still(inputs, &kept.nodes, kept.start);
    if !stays {
        recheck(engine, owner);
        return;
    }
    let fresh = expected_release::releases(inputs, &kept.queue, &on);
    if engine.reservations.replace_releases(owner, &on, fresh) {
        engine.changed.jobs.insert(owner.clone());
        // As after any change of a reservation ([`crate::cycle::react`]).
        engine.pending.queues.wake(&RequeueCondition::Reservation);
    }
}

/// Replans the reservations on nodes where pods are of jobs whose charges have changed: what these give back is not
/// what the owners expect. Most often the pods are gone together with the charge.
pub(super) fn charges_changed(engine: &mut Engine) {
    for key in engine.reservations.take_recharged() {
        let mut nodes = Nodes::new();
        for (cluster, node) in engine.capacity.holdings(&key).into_keys() {
            nodes.entry(cluster).or_default().insert(node);
        }
        let owners = engine.reservations.with_nodes();
        let owners = owners.filter(|kept| !nodes.is_empty() && !kept.taking());
        let met = owners.filter(|kept| kept.nodes.iter().any(|node| node.is_among(&nodes)));
        let met: Vec<JobKey> = met.map(|kept| kept.rank.key.clone()).collect();
        met.iter().for_each(|owner| recheck(engine, owner));
    }
}

/// Replans the reservations that share nodes with a new one and have to leave it alone: they would
/// withhold from the jobs behind them what they cannot have. So are those of headroom only that counted on a node of
/// the new one to be free by their start: they need others.
pub(super) fn replan_beside(engine: &mut Engine, planned: &Reservation) {
    let shares_nodes = |other: &&Reservation| {
        let mut nodes = other.nodes.iter();
        nodes.any(|other| {
            let mut planned = planned.nodes.iter();
            planned.any(|node| node.node == other.node && node.cluster == other.cluster)
        })
    };
    let has_to_leave_it = |other: &&Reservation| {
        let inputs = engine.inputs();
        withheld::request_of(inputs, other)
            .is_some_and(|request| withheld::binds_from(inputs, planned, request, other.start))
    };
    // Known once for all owners, and only if there is one that it matters to.
    let first_free = LazyCell::new(|| expected_start::first_free(engine.inputs(), &planned.nodes));
    let counts_on = |other: &&Reservation| {
        other.nodes.is_empty()
            && first_free.is_some_and(|free| other.may_count_on_node_free_from(free))
    };
    let owners = engine.reservations.iter();
    let owners = owners.filter(|other| !other.taking() && other.rank != planned.rank);
    let owners = owners.filter(|other| shares_nodes(other) || counts_on(other));
    let owners = owners.filter(has_to_leave_it);
    let owners: Vec<JobKey> = owners.map(|other| other.rank.key.clone()).collect();
    for owner in owners {
        recheck(engine, &owner);
    }
}

/// Replans the reservations on nodes whose owners may have had to leave the nodes of one that is gone, and would start
/// there as soon or sooner.
pub(super) fn replan_after(engine: &mut Engine, gone: &Reservation) {
    let owners = owners_after(engine.inputs(), gone);
    let owners: Vec<JobKey> = owners.map(|other| other.rank.key.clone()).collect();
    for owner in owners {
        recheck(engine, &owner);
    }
}

/// The owners that [`replan_after`] has planned again.
pub(super) fn owners_after<'a>(
    inputs: Inputs<'a>,
    gone: &'a Reservation,
) -> impl Iterator<Item = &'a Reservation> {
    let free = expected_start::first_free(inputs, &gone.nodes);
    let is_later =
        move |start: Option<Time>| start.is_none_or(|start| free.is_some_and(|free| free <= start));
    let owners = inputs.reservations.with_nodes();
    let owners = owners.filter(|other| !gone.nodes.is_empty() && !other.taking());
    owners.filter(move |other| other.rank.key != gone.rank.key && is_later(other.start))
}

/// To be called when all that may go were evaluated. Replans the reservations on nodes whose owners start clearly
/// sooner in a cluster in which jobs or reservations took of a node since: that has the pods of an owner put on others,
/// and of these the ends may be known. Looks at one cluster, and counts each owner as an evaluation. Returns
/// whether there are any that might.
pub(super) fn replan_sooner(engine: &mut Engine, evaluations: &mut usize) -> bool {
    while let Some(cluster) = engine.pending.next_taken_in() {
        let inputs = engine.inputs();
        let late = inputs.reservations.with_nodes();
        let late = late.filter(|kept| plan::might_start_sooner(inputs, kept, &cluster));
        let late: Vec<&Reservation> = late.collect();
        if late.is_empty() {
            continue;
        }
        *evaluations += late.len();
        let sooner = late.into_iter();
        let sooner = sooner.filter(|kept| plan::starts_sooner(inputs, kept, &cluster));
        let sooner: Vec<JobKey> = sooner.map(|kept| kept.rank.key.clone()).collect();
        sooner.iter().for_each(|owner| recheck(engine, owner));
        return true;
    }
    false
}

/// Replans the reservations whose starts differ now that expected ends have moved. A start that is yet to come may
/// be one of them: it is later if it counted on such an end, and sooner if a job has an end that was not known before.
pub(super) fn ends_moved(engine: &mut Engine, jobs: &BTreeSet<JobKey>) {
    let inputs = engine.inputs();
    let moved = |kept: &&Reservation| match kept.lacked_headroom() || kept.counts_on_ends() {
        true => expected_release::is_moved_by(inputs, kept, jobs),
        // Nothing is new where its nodes become free when they were expected to.
        false => {
            kept.nodes.is_empty() || expected_start::start_on(inputs, &kept.nodes) != kept.start
        }
    };
    let moved = engine.reservations.iter().filter(moved);
    let moved: Vec<JobKey> = moved.map(|kept| kept.rank.key.clone()).collect();
    for key in moved {
        recheck(engine, &key);
    }
}
