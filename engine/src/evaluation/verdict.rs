//! The verdict on a pending job: it may be admitted with this plan, or this is what blocks it.
//!
//! Deciding, explaining and reserving all ask here, so that what is said is what is done. A verdict
//! changes nothing.

use crate::api::charge::Pools;
use crate::api::decision::Blocker;
use crate::api::ids::JobKey;
use crate::api::reason::Reason;
use crate::backfill::withheld;
use crate::evaluation::words;
use crate::overlay::Overlay;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::infeasible::Infeasible;
use crate::placement::plan::NoPlan;
use crate::placement::request::{Block, Gate, Request, Verdict};
use crate::placement::{empty, plan, request};
use crate::quota::{LimitReached, Shortfall};
use crate::state::Inputs;
use std::collections::BTreeSet;

/// Evaluates a pending job at the size that it requests.
pub(crate) fn evaluate_at_size(inputs: Inputs<'_>, request: Request<'_>) -> Verdict {
    if let Some((position, limit)) =
        request::over_pending_limit(inputs, request.queue, request.rank)
    {
        let reached = LimitReached::pending(request.queue, limit, position);
        return blocked(block_by_limit(reached));
    }
    if let Err(reached) = inputs.quota.check_limits(request.queue, request.user()) {
        return blocked(block_by_limit(reached));
    }
    if inputs.pending.shapes.let_by(request.shape, request.queue) == Some(false) {
        return blocked(block_by_bounds(inputs, request));
    }
    let now = Overlay::default();
    let (queue, total) = (request.queue, &request.shape.total);
    if let Err(short) = inputs.quota.check_total(queue, total, &now) {
        // What could never start waits for no headroom: its plan says why.
        let never = inputs.pending.shapes.fits_empty_fleet(request.shape) == Some(false);
        if short.never() || request.shape.demand.elastic || !never {
            return blocked(block_by_quota(
                inputs,
                request,
                Box::new(short),
                None,
                Vec::new(),
            ));
        }
    }
    let shares = match plan::plan(inputs, request.gang(), &now) {
        Ok(shares) => shares,
        Err(no_plan) => return blocked(block_by_plan(inputs, request, no_plan)),
    };
    let ahead = withheld::reservations_ahead(inputs, request);
    if ahead.is_empty() {
        return Verdict::Go(shares);
    }
    let overlay = Overlay::for_request(inputs, request, &ahead);
    if let Err(short) = inputs.quota.check_total(queue, total, &overlay) {
        let why = request.words(|| short.message(&inputs.quota));
        return blocked(block_by_reservation(inputs, request, &ahead, &why, None));
    }
    match plan::plan(inputs, request.gang(), &overlay) {
        Ok(shares) => Verdict::Go(shares),
        Err(no_plan) => {
            let why =
                request.words(|| words::words(&inputs.quota, &request.shape.demand, &no_plan));
            let by_capacity = matches!(no_plan, NoPlan::NoRoom(_));
            // A job with a reservation is bound by fewer reservations than other jobs.
            let has_reservation = inputs.reservations.of(&request.rank.key).is_some();
            let infeasible =
                (by_capacity && !has_reservation).then(|| infeasible_by(inputs, &ahead));
            blocked(block_by_reservation(
                inputs, request, &ahead, &why, infeasible,
            ))
        }
    }
}

/// True if a job would be admitted beside the reservations ahead of it and what `overlay` assumes.
pub(crate) fn passes(inputs: Inputs<'_>, request: Request<'_>, overlay: Overlay) -> bool {
    let ahead = withheld::reservations_ahead(inputs, request);
    let overlay = overlay.with_reservations(inputs, &ahead);
    let (queue, total) = (request.queue, &request.shape.total);
    inputs.quota.check_total(queue, total, &overlay).is_ok()
        && plan::plan(inputs, request.gang(), &overlay).is_ok()
}

/// Bounds on pools that no plan could meet, whatever is charged.
pub(crate) fn block_by_bounds(inputs: Inputs<'_>, request: Request<'_>) -> Block {
    let path = inputs.quota.path(request.queue);
    Block {
        reason: Reason::ExceedsCapability,
        message: request.words(|| {
            format!(
                "needs {}; no nodes of the fleet would take it within what queue {} and \
                 those above it may use of each class of pools",
                request.shape.total, request.queue
            )
        }),
        blocker: None,
        gate: Gate::Never,
        infeasible: None,
        conditions: path
            .into_iter()
            .map(RequeueCondition::Quota)
            .chain([RequeueCondition::Fleet])
            .collect(),
    }
}

/// What blocks a job in the clusters whose bounds it could meet: a bound on some clusters that it can never
/// meet says nothing of the others.
pub(crate) fn past_bounds(inputs: Inputs<'_>, request: Request<'_>, no_plan: NoPlan) -> NoPlan {
    let mut without = BTreeSet::new();
    let mut stops = no_plan;
    while let NoPlan::Bound(short, pools) = &stops
        && short.never()
    {
        let left_out = without.len();
        without.extend(pools.keys().map(|(cluster, _)| cluster.clone()));
        let now = Overlay::default();
        let elsewhere = plan::plan_without(inputs, request.gang(), &now, &without);
        match elsewhere {
            Err(next) if without.len() > left_out && !matches!(next, NoPlan::NoCluster(_)) => {
                stops = next;
            }
            _ => break,
        }
    }
    stops
}

pub(crate) fn block_by_plan(inputs: Inputs<'_>, request: Request<'_>, no_plan: NoPlan) -> Block {
    let no_plan = past_bounds(inputs, request, no_plan);
    let mut message =
        request.words(|| words::words(&inputs.quota, &request.shape.demand, &no_plan));
    let never = |reason, message| Block {
        reason,
        message,
        blocker: None,
        gate: Gate::Never,
        infeasible: None,
        conditions: vec![RequeueCondition::Fleet],
    };
    match no_plan {
        NoPlan::NoCluster(_) => never(Reason::NoEligibleCluster, message),
        NoPlan::Bound(short, pools) => {
            // Another of its choices may be bounded by another queue of its path.
            let mut conditions = vec![RequeueCondition::Room, RequeueCondition::Fleet];
            conditions.extend(
                inputs
                    .quota
                    .path(request.queue)
                    .into_iter()
                    .map(RequeueCondition::Quota),
            );
            block_by_quota(inputs, request, short, Some(pools), conditions)
        }
        NoPlan::NoRoom(lacks) => {
            let known = inputs.pending.shapes.fits_empty_fleet(request.shape);
            if !known
                .unwrap_or_else(|| empty::fits_empty_fleet(inputs, request.shape, &BTreeSet::new()))
            {
                message.push_str("; it would not fit even if they were empty");
                return never(Reason::ExceedsFleet, message);
            }
            // Bounds on pools may leave less of some nodes than is free there.
            let bounds = inputs.quota.bounds_pools(request.queue);
            let path = bounds.then(|| inputs.quota.path(request.queue));
            let conditions = path.into_iter().flatten().map(RequeueCondition::Quota);
            Block {
                reason: Reason::WaitingForRoom,
                blocker: lacks
                    .iter()
                    .max_by_key(|lack| lack.placed)
                    .map(|lack| words::room_blocker(lack, &request.shape.demand.roles[lack.role])),
                message,
                gate: Gate::Room,
                // Where pools are bounded, another queue may fit in others.
                infeasible: (!bounds).then_some(Infeasible::NoRoom),
                conditions: [RequeueCondition::Room, RequeueCondition::Fleet]
                    .into_iter()
                    .chain(conditions)
                    .collect(),
            }
        }
    }
}

/// The owners of `ahead` with nodes: they block every job of the same shape that all of them bind.
pub(crate) fn infeasible_by(inputs: Inputs<'_>, ahead: &[&JobKey]) -> Infeasible {
    let has_nodes = |key: &JobKey| {
        let reserved = inputs.reservations.of(key);
        reserved.is_some_and(|reserved| !reserved.nodes.is_empty())
    };
    let owners = ahead.iter().filter(|key| has_nodes(key));
    Infeasible::Withheld(owners.map(|key| (*key).clone()).collect())
}

pub(crate) fn block_by_reservation(
    inputs: Inputs<'_>,
    request: Request<'_>,
    ahead: &[&JobKey],
    why: &str,
    infeasible: Option<Infeasible>,
) -> Block {
    let owners = || {
        let owners: Vec<String> = ahead.iter().map(ToString::to_string).collect();
        owners.join(" and ")
    };
    let mut conditions = vec![
        RequeueCondition::Room,
        RequeueCondition::Fleet,
        RequeueCondition::Reservation,
    ];
    conditions.extend(
        inputs
            .quota
            .path(request.queue)
            .into_iter()
            .map(RequeueCondition::Quota),
    );
    Block {
        reason: Reason::ReservedForAnother,
        message: request.words(|| {
            format!(
                "what is free is kept for {}, further ahead; beside that it {why}",
                owners()
            )
        }),
        blocker: ahead
            .first()
            .filter(|_| request.verbose)
            .map(|owner| Blocker {
                scope: format!("reservation/{owner}"),
                resource: None,
                needs: None,
                free: None,
            }),
        gate: Gate::Reserved,
        infeasible,
        conditions,
    }
}

pub(crate) fn block_by_quota(
    inputs: Inputs<'_>,
    request: Request<'_>,
    short: Box<Shortfall>,
    pools: Option<Pools>,
    mut conditions: Vec<RequeueCondition>,
) -> Block {
    let never = short.never();
    // Once the bound could admit it, it may reserve or reclaim what is short: it does not wait until that
    // is free.
    conditions.push(if never {
        RequeueCondition::Bounds(short.queue.clone())
    } else if short.detail.beyond == 0 {
        // Guarantees together are more than there is: it needs no more than what frees.
        RequeueCondition::Quota(short.queue.clone())
    } else {
        RequeueCondition::Headroom {
            queue: short.queue.clone(),
            class: short.class.clone(),
            resource: short.resource.clone(),
            needs: short.detail.beyond,
        }
    });
    let below = inputs.quota.guaranteed_below(request.queue, &short);
    conditions.extend(below.filter(|_| !never).map(RequeueCondition::Quota));
    Block {
        reason: if never {
            Reason::ExceedsCapability
        } else {
            Reason::WaitingForQuota
        },
        message: request.words(|| short.message(&inputs.quota)),
        blocker: request.verbose.then(|| Blocker {
            scope: format!("queue/{}", short.queue),
            resource: Some(short.resource.to_string()),
            needs: Some(crate::amounts::totals::clamp(short.needs).0),
            free: Some(short.free().0),
        }),
        gate: if never {
            Gate::Never
        } else {
            Gate::Quota(short, pools)
        },
        infeasible: None,
        conditions,
    }
}

pub(crate) fn blocked(block: Block) -> Verdict {
    Verdict::Blocked(Box::new(block))
}

pub(crate) fn block_by_limit(reached: LimitReached) -> Block {
    Block {
        reason: reached.reason,
        message: reached.message,
        blocker: Some(Blocker {
            scope: format!("queue/{}", reached.queue),
            resource: None,
            needs: Some(1),
            free: Some(0),
        }),
        gate: Gate::Limit,
        infeasible: None,
        conditions: vec![RequeueCondition::Quota(reached.queue)],
    }
}
