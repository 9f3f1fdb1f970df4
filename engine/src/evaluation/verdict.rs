//! The verdict on a pending job: the plan with which it may be admitted, or what blocks it.
//!
//! Deciding, explaining and reserving share it, so that an explanation says what a decision does. A
//! verdict changes nothing.

use crate::amounts::totals::clamp;
use crate::api::charge::Pools;
use crate::api::decision::Blocker;
use crate::backfill::spare::BindingSpares;
use crate::backfill::{spare, withheld};
use crate::cost;
use crate::evaluation::words;
use crate::overlay::Overlay;
use crate::pending::inadmissible::{QueueNeed, RequeueCondition};
use crate::pending::infeasible::Infeasible;
use crate::pending::shapes::RequestShape;
use crate::placement::plan::{ClusterLack, NoPlan};
use crate::placement::request::{Block, Gate, Request, Verdict};
use crate::placement::{eligible, empty, plan, request};
use crate::quota::{LimitReached, Shortfall};
use crate::state::Inputs;
use facts::{JobKey, Reason, Share};
use std::collections::BTreeSet;

/// Evaluates a pending job at the size of its request, which is a size of `gang`: it is known of the whole gang whether
/// it could ever be admitted, not of each size.
pub(crate) fn evaluate_at_size(
    inputs: Inputs<'_>,
    request: Request<'_>,
    gang: &RequestShape,
) -> Verdict {
    cost::evaluation();
    match try_plan(inputs, request, gang) {
        Ok(shares) => Verdict::Go(shares),
        Err(block) => Verdict::Blocked(block),
    }
}

/// The plan with which a job may be admitted, or what blocks it.
fn try_plan(
    inputs: Inputs<'_>,
    request: Request<'_>,
    gang: &RequestShape,
) -> Result<Vec<Share>, Box<Block>> {
    let (queue, shape) = (request.queue, request.shape);
    if let Some((position, limit)) = request::over_pending_limit(inputs, queue, request.rank) {
        let reached = LimitReached::pending(queue, limit, position);
        return Err(Box::new(block_by_limit(reached)));
    }
    let limits = inputs.quota.check_limits(request.owned(inputs), &[]);
    limits.map_err(block_by_limit)?;
    if inputs.pending.shapes.let_by(gang, queue) == Some(false) {
        return Err(Box::new(block_by_bounds(inputs, request)));
    }
    let spares = spare::binding(inputs, request);
    let now = Overlay::default().with_spares(inputs, request);
    if let Err(short) = inputs.quota.check_total(queue, &shape.total, &now) {
        // A job that could never start must not wait for headroom: the plan below says why.
        let never = inputs.pending.shapes.fits_empty_fleet(gang) == Some(false);
        if short.never() || !never {
            let short = Box::new(short);
            let block = block_by_quota(inputs, request, short, None);
            return Err(Box::new(beside_spares(block, &spares)));
        }
    }
    let shares = plan::plan(inputs, request.gang(), &now)
        .map_err(|no_plan| beside_spares(block_by_plan(inputs, request, no_plan), &spares))?;
    let ahead = withheld::reservations_ahead(inputs, request);
    if ahead.is_empty() {
        return Ok(shares);
    }
    let overlay = Overlay::for_request(inputs, request, &ahead);
    let total = inputs.quota.check_total(queue, &shape.total, &overlay);
    total.map_err(|short| {
        let why = request.words(|| short.message(&inputs.quota));
        block_by_reservation(inputs, request, &ahead, &why)
    })?;
    let plan = plan::plan(inputs, request.gang(), &overlay);
    let block = |no_plan: NoPlan| {
        let why = request.words(|| words::words(&inputs.quota, &shape.demand, &no_plan));
        let no_room = matches!(no_plan, NoPlan::NoRoom(_));
        // A job with a reservation is blocked by fewer reservations than others with its shape.
        let reserves = inputs.reservations.of(&request.rank.key).is_some();
        Block {
            infeasible: (no_room && !reserves && spares.is_empty())
                .then(|| withheld_by(inputs, &ahead)),
            ..block_by_reservation(inputs, request, &ahead, &why)
        }
    };
    Ok(plan.map_err(block)?)
}

/// A block beside the spares that bind the job: those do not bind every job of its shape, and they may end.
fn beside_spares(mut block: Block, spares: &BindingSpares<'_>) -> Block {
    if !spares.is_empty() {
        block.infeasible = None;
        block.conditions.push(RequeueCondition::Reservation);
        if !block.message.is_empty() {
            block.message.push_str(&spares.words());
        }
    }
    block
}

/// Returns true if a job would be admitted beside the reservations ahead of it and what `overlay` assumes.
pub(crate) fn passes(inputs: Inputs<'_>, request: Request<'_>, overlay: Overlay) -> bool {
    let ahead = withheld::reservations_ahead(inputs, request);
    let overlay = overlay.with_reservations(inputs, &ahead);
    let overlay = overlay.with_spares(inputs, request);
    let (queue, total) = (request.queue, &request.shape.total);
    let owner = inputs.quota.check_owner(request.owned(inputs));
    owner.is_ok()
        && inputs.quota.check_total(queue, total, &overlay).is_ok()
        && plan::plan(inputs, request.gang(), &overlay).is_ok()
}

/// The block of a job whose every plan breaks a bound on pools, whatever is charged.
fn block_by_bounds(inputs: Inputs<'_>, request: Request<'_>) -> Block {
    let message = request.words(|| {
        format!(
            "needs {}; no nodes of the fleet would take it within what queue {} and \
             those above it may use of each class of pools",
            request.shape.total, request.queue
        )
    });
    let mut conditions = vec![RequeueCondition::Fleet];
    conditions.extend(path_changes(inputs, request));
    block(Reason::ExceedsCapability, message, Gate::Never, conditions)
}

/// Returns what blocks a job apart from bounds on pools that it could never keep: such a bound on some
/// clusters does not block the others.
fn past_bounds(inputs: Inputs<'_>, request: Request<'_>, no_plan: NoPlan) -> NoPlan {
    let mut without = BTreeSet::new();
    let mut last = no_plan;
    while let NoPlan::Bound(short, pools) = &last
        && short.never()
    {
        let left_out = without.len();
        without.extend(pools.keys().map(|(cluster, _)| cluster.clone()));
        let now = Overlay::default();
        match plan::plan_without(inputs, request.gang(), &now, &without) {
            Err(next) if without.len() > left_out && !matches!(next, NoPlan::NoCluster(_)) => {
                last = next;
            }
            _ => break,
        }
    }
    last
}

fn block_by_plan(inputs: Inputs<'_>, request: Request<'_>, no_plan: NoPlan) -> Block {
    let no_plan = past_bounds(inputs, request, no_plan);
    let message = request.words(|| words::words(&inputs.quota, &request.shape.demand, &no_plan));
    match no_plan {
        NoPlan::NoCluster(_) => {
            let reason = match eligible::is_paused(inputs, &request.shape.demand.placement) {
                true => Reason::ClusterPaused,
                false => Reason::NoEligibleCluster,
            };
            let conditions = vec![RequeueCondition::Fleet];
            block(reason, message, Gate::Never, conditions)
        }
        NoPlan::Bound(short, pools) => {
            let mut block = block_by_quota(inputs, request, short, Some(pools));
            // Another plan may be bounded by another queue of the path.
            let others = [RequeueCondition::Room, RequeueCondition::Fleet];
            block.conditions.extend(others);
            block.conditions.extend(path_changes(inputs, request));
            block
        }
        NoPlan::NoRoom(lacks) => block_by_room(inputs, request, &lacks, message),
    }
}

fn block_by_room(
    inputs: Inputs<'_>,
    request: Request<'_>,
    lacks: &[ClusterLack],
    message: String,
) -> Block {
    let shape = request.shape;
    let known = inputs.pending.shapes.fits_empty_fleet(shape);
    if !known.unwrap_or_else(|| empty::fits_empty_fleet(inputs, shape, &BTreeSet::new())) {
        let conditions = vec![RequeueCondition::Fleet];
        if eligible::is_paused(inputs, &shape.demand.placement) {
            let message = message + "; other clusters that it may use are paused";
            return block(Reason::ClusterPaused, message, Gate::Never, conditions);
        }
        let message = message + "; it would not fit even if they were empty";
        return block(Reason::ExceedsFleet, message, Gate::Never, conditions);
    }
    // Bounds on pools may leave less of some nodes than is free there: then a change of the quota
    // helps, and another queue may fit.
    let bounds = inputs.quota.bounds_pools(request.queue);
    let mut conditions = vec![RequeueCondition::Room, RequeueCondition::Fleet];
    if bounds {
        conditions.extend(path_changes(inputs, request));
    }
    let closest = lacks.iter().max_by_key(|lack| lack.placed);
    Block {
        blocker: closest.map(|lack| words::room_blocker(lack, &shape.demand.roles[lack.role])),
        infeasible: (!bounds).then_some(Infeasible::NoRoom),
        ..block(Reason::WaitingForRoom, message, Gate::Room, conditions)
    }
}

/// The owners among `ahead` that reserve nodes: they block every job with the same shape for which
/// all these reservations are ahead.
fn withheld_by(inputs: Inputs<'_>, ahead: &[&JobKey]) -> Infeasible {
    let reserves_nodes = |key: &&&JobKey| {
        let reservation = inputs.reservations.of(key);
        reservation.is_some_and(|reservation| !reservation.nodes.is_empty())
    };
    let owners = ahead.iter().filter(reserves_nodes);
    Infeasible::Withheld(owners.map(|key| (*key).clone()).collect())
}

fn block_by_reservation(
    inputs: Inputs<'_>,
    request: Request<'_>,
    ahead: &[&JobKey],
    why: &str,
) -> Block {
    let message = request.words(|| {
        let owners: Vec<String> = ahead.iter().map(ToString::to_string).collect();
        let owners = owners.join(" and ");
        format!("what is free is kept for {owners}, further ahead; beside that it {why}")
    });
    let mut conditions = vec![
        RequeueCondition::Room,
        RequeueCondition::Fleet,
        RequeueCondition::Reservation,
    ];
    conditions.extend(path_changes(inputs, request));
    let first = ahead.first().filter(|_| request.verbose);
    Block {
        blocker: first.map(|owner| Blocker {
            scope: format!("reservation/{owner}"),
            ..Blocker::default()
        }),
        ..block(
            Reason::ReservedForAnother,
            message,
            Gate::Reserved,
            conditions,
        )
    }
}

fn block_by_quota(
    inputs: Inputs<'_>,
    request: Request<'_>,
    short: Box<Shortfall>,
    pools: Option<Pools>,
) -> Block {
    let message = request.words(|| short.message(&inputs.quota));
    let blocker = request.verbose.then(|| Blocker {
        scope: format!("queue/{}", short.queue),
        resource: Some(short.resource.to_string()),
        needs: Some(clamp(short.needs).0),
        free: Some(short.free().0),
    });
    let queue = short.queue.clone();
    let (reason, gate, conditions) = if short.never() {
        // Once the bound allows it, the job may reserve or reclaim what it lacks: it does not wait
        // until that is free.
        let conditions = vec![RequeueCondition::Bounds(queue)];
        (Reason::ExceedsCapability, Gate::Never, conditions)
    } else {
        let first = if short.detail.beyond == 0 {
            // Guarantees exceed the capacity, so that any change of the queue may help.
            RequeueCondition::Quota(queue)
        } else {
            RequeueCondition::Headroom(QueueNeed {
                queue,
                class: short.class().cloned(),
                resource: short.resource.clone(),
                needs: short.detail.beyond,
            })
        };
        let mut conditions = vec![first];
        let mut below = inputs.quota.guaranteed_below(request.queue, &short);
        if short.class().is_some() {
            conditions.extend(below.pop().map(RequeueCondition::Quota));
        } else {
            let any_of = |queue| QueueNeed {
                queue,
                class: None,
                resource: short.resource.clone(),
                needs: 1,
            };
            conditions.extend(
                below
                    .into_iter()
                    .map(any_of)
                    .map(RequeueCondition::Guarantee),
            );
        }
        (
            Reason::WaitingForQuota,
            Gate::Quota(short, pools),
            conditions,
        )
    };
    Block {
        blocker,
        ..block(reason, message, gate, conditions)
    }
}

fn block_by_limit(reached: LimitReached) -> Block {
    let blocker = Blocker {
        scope: format!("queue/{}", reached.queue),
        resource: reached.resource.as_ref().map(ToString::to_string),
        needs: Some(clamp(reached.needs).0),
        free: Some(clamp(reached.free).0),
    };
    let (gate, conditions) = match reached.never() {
        // Nothing that ends helps, only another policy.
        true => (Gate::Never, vec![RequeueCondition::Bounds(reached.queue)]),
        false => (Gate::Limit, vec![RequeueCondition::Quota(reached.queue)]),
    };
    Block {
        blocker: Some(blocker),
        ..block(reached.reason, reached.message, gate, conditions)
    }
}

/// A change of the quota of any queue on the path of the request's queue.
fn path_changes(
    inputs: Inputs<'_>,
    request: Request<'_>,
) -> impl Iterator<Item = RequeueCondition> + use<> {
    let path = inputs.quota.path(request.queue);
    path.into_iter().map(RequeueCondition::Quota)
}

/// A block without a blocker, of this request only.
fn block(reason: Reason, message: String, gate: Gate, conditions: Vec<RequeueCondition>) -> Block {
    Block {
        reason,
        message,
        blocker: None,
        gate,
        infeasible: None,
        conditions,
    }
}
