//! Nodes for a job of a queue with bounds on pools: within what these leave when it starts.
//!
//! Jobs that end give back what they have of a bound, on whichever nodes they are. A job reserves nodes within what the
//! bounds leave now, or others if it starts much sooner there by the ends that are expected: once these nodes are free
//! and the bounds leave enough. Without nodes within what the bounds leave now, those that are free before a bound has
//! room are left to others.

use crate::api::charge::{PoolLimit, Pools};
use crate::backfill::plan::{ReservationPlan, target_beside};
use crate::backfill::reservation::pools_on;
use crate::backfill::{expected_release, sooner};
use crate::overlay::Overlay;
use crate::placement::request::Request;
use crate::placement::ways::Unreserved;
use crate::quota::Shortfall;
use crate::state::Inputs;
use facts::{QueueName, Time};
use std::ops::{Bound, RangeBounds as _};

/// So many plans are made at most that start sooner than the ones before.
const TRIED: usize = 4;

/// The best plan that is known, if there is one, and when the job starts by it.
struct KnownPlan {
    plan: Option<ReservationPlan>,
    start: Option<Time>,
    /// True if it is within what the bounds leave now.
    within: bool,
}

/// The nodes to reserve beside an overlay: within what the bounds on pools leave now or when the job starts, or else
/// what they ever leave.
pub(crate) fn target(
    inputs: Inputs<'_>,
    request: Request<'_>,
    overlay: &Overlay,
) -> Option<ReservationPlan> {
    let beside = |limits: &[PoolLimit]| {
        let left = Unreserved { overlay, limits };
        target_beside(inputs, request, left)
    };
    if !inputs.quota.bounds_pools(request.queue) {
        return beside(&[]);
    }
    let limits = |usage: &Overlay| inputs.quota.pool_limits(request.queue, usage);
    let now = beside(&limits(&Overlay::default()));
    let within = now.is_some();
    let plan = now.or_else(|| beside(&limits(&Overlay::empty_fleet())))?;
    let start = match within {
        true => plan.start,
        false => start_of(inputs, request.queue, &plan),
    };
    if !within && start == plan.start {
        return Some(plan);
    }
    let plan = Some(plan);
    let known = KnownPlan {
        plan,
        start,
        within,
    };
    much_sooner(inputs, request, overlay, known)
}

/// The nodes to reserve for a job that a bound on pools keeps from those that are free: within what the bounds leave
/// now or when the job starts; and whether there are any within what they leave now. If there are none, it waits for
/// the bound that is `short`, or for another one that has room much sooner.
pub(crate) fn target_elsewhere(
    inputs: Inputs<'_>,
    request: Request<'_>,
    overlay: &Overlay,
    short: &Shortfall,
) -> Option<(ReservationPlan, bool)> {
    let limits = inputs.quota.pool_limits(request.queue, &Overlay::default());
    let limits = limits.as_slice();
    let plan = target_beside(inputs, request, Unreserved { overlay, limits });
    let start = match &plan {
        Some(plan) => plan.start,
        None => expected_release::headroom_from(inputs, request.queue, short).0,
    };
    let within = plan.is_some();
    let known = KnownPlan {
        plan,
        start,
        within,
    };
    Some((much_sooner(inputs, request, overlay, known)?, within))
}

/// A plan by which a job starts much sooner than by the one that is known, or else that one.
fn much_sooner(
    inputs: Inputs<'_>,
    request: Request<'_>,
    overlay: &Overlay,
    mut known: KnownPlan,
) -> Option<ReservationPlan> {
    let reserved = inputs.reservations.of(&request.rank.key);
    let reserved = reserved.map_or(&[][..], |reserved| &reserved.nodes);
    let is_reserved = |plan: &ReservationPlan| plan.nodes == reserved;
    let octave = |start| sooner::octave(inputs, start);
    let stays = reserved.is_empty() || known.plan.as_ref().is_some_and(is_reserved);
    if stays && octave(known.start) == 0 {
        return known.plan;
    }
    let is_better = |found: &ReservationPlan, known: &KnownPlan| {
        if is_reserved(found) {
            // Other jobs passed it because it was to start here.
            return known.start.is_none_or(|start| found.start <= Some(start));
        }
        match known.plan.as_ref().is_some_and(is_reserved) {
            true => sooner::is_clearly_sooner(inputs, found.start, known.start),
            false => octave(found.start) < octave(known.start),
        }
    };
    // At first as late as the known plan: where it is reserved already, it stays if it starts there no later.
    let mut until = known.start.map_or(Bound::Unbounded, Bound::Included);
    for _ in 0..TRIED {
        let Some((plan, waits_for_bound)) = plan_before(inputs, request, overlay, until) else {
            break;
        };
        until = plan.start.map_or(Bound::Unbounded, Bound::Excluded);
        if (known.within || !waits_for_bound) && is_better(&plan, &known) {
            known.start = plan.start;
            known.plan = Some(plan);
        }
        if !waits_for_bound {
            break;
        }
    }
    known.plan
}

/// A plan within what the bounds leave once jobs have ended that end within `until`, by which the job starts within
/// that, but not now. Whether it waits for a bound there, on nodes that are free before.
fn plan_before(
    inputs: Inputs<'_>,
    request: Request<'_>,
    overlay: &Overlay,
    until: Bound<Time>,
) -> Option<(ReservationPlan, bool)> {
    let is_before = |at: Time| (Bound::Unbounded, until).contains(&at);
    let limits = |usage: &Overlay| inputs.quota.pool_limits(request.queue, usage);
    let left = limits(&Overlay::after_ends(inputs, is_before));
    if left == limits(&Overlay::default()) {
        return None;
    }
    let limits = left.as_slice();
    let found = target_beside(inputs, request, Unreserved { overlay, limits })?;
    let start = start_of(inputs, request.queue, &found);
    let start = start.filter(|start| *start > inputs.now && is_before(*start))?;
    let waits_for_bound = found.start != Some(start);
    let plan = ReservationPlan {
        start: Some(start),
        ..found
    };
    Some((plan, waits_for_bound))
}

/// When a job starts by a plan: once its nodes are free and the bounds on pools leave enough.
fn start_of(inputs: Inputs<'_>, queue: &QueueName, plan: &ReservationPlan) -> Option<Time> {
    let pools = pools_on(&plan.nodes);
    let mut start = plan.start?;
    while let Some(short) = short_at(inputs, queue, &pools, start) {
        let (room, _) = expected_release::headroom_from(inputs, queue, &short);
        start = room.filter(|room| start < *room)?;
    }
    Some(start)
}

/// The bound on pools that leaves too little for a job once those have ended that are expected to end by a time.
pub(crate) fn short_at(
    inputs: Inputs<'_>,
    queue: &QueueName,
    pools: &Pools,
    at: Time,
) -> Option<Shortfall> {
    if !inputs.quota.bounds_pools(queue) {
        return None;
    }
    let ended = Overlay::after_ends(inputs, |end| end <= at);
    inputs.quota.check_pools(queue, pools, &ended).err()
}
