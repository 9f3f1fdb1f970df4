//! The verdict on a waiting job: it may go, with this plan, or this is what stops it.
//!
//! Deciding, explaining and reserving all ask here, so that what is said is what is done.
//! A verdict changes nothing.

use crate::api::charge::Pools;
use crate::api::decision::Blocker;
use crate::api::facts::{Demand, Role, Share};
use crate::api::ids::{JobKey, QueueName};
use crate::api::job::QueueOrder;
use crate::api::reason::Reason;
use crate::cycle::decide;
use crate::pending::inadmissible::RequeueCondition;
use crate::pending::infeasible::Infeasible;
use crate::pending::shapes::RequestShape;
use crate::placement::empty;
use crate::placement::plan;
use crate::placement::plan::{ClusterLack, NoPlan, View};
use crate::preemption::evict;
use crate::quota::{LimitReached, Quota, Shortfall, Withheld};
use crate::reservation::reserve;
use crate::state::Inputs;
use std::collections::BTreeSet;

/// What stands for and against releasing a job now.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// It may go there.
    Go(Vec<Share>),
    /// It may not.
    Blocked(Box<Block>),
}

/// What stops a job.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    pub(crate) blocker: Option<Blocker>,
    pub(crate) gate: Gate,
    /// Set where it stops everybody who wants the same, not only this queue.
    pub(crate) infeasible: Option<Infeasible>,
    /// What may change that.
    pub(crate) conditions: Vec<RequeueCondition>,
}

/// Where it is stopped.
#[derive(Debug, Clone)]
pub(crate) enum Gate {
    /// It could not go even if nothing else were there.
    Never,
    /// A number of jobs is reached.
    Limit,
    /// Headroom is short; with the pools it would use, where a bound on those is.
    Quota(Box<Shortfall>, Option<Pools>),
    /// Room is short.
    Room,
    /// What it needs is there, but kept for a job further ahead.
    Reserved,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) queue: &'a QueueName,
    pub(crate) rank: &'a QueueOrder,
    pub(crate) shape: &'a RequestShape,
    /// Whether the verdict will be told in words: those cost more than the verdict.
    pub(crate) tells: bool,
}

impl Request<'_> {
    /// Everything that is free now, as it is told or not.
    fn view(&self) -> View {
        View {
            tells: self.tells,
            ..View::now()
        }
    }

    /// Words, if they will be told.
    fn words(&self, words: impl FnOnce() -> String) -> String {
        if self.tells { words() } else { String::new() }
    }

    /// Who asks, for limits by user.
    fn user(&self) -> &str {
        self.shape.user_of(&self.rank.key)
    }
}

/// Judges a job that waits in line, at the size that it wants.
pub(super) fn judge_as_is(inputs: Inputs<'_>, request: Request<'_>) -> Verdict {
    if let Some((position, limit)) = decide::over_pending_limit(inputs, request.queue, request.rank)
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
    let now = request.view();
    if let Err(short) = inputs
        .quota
        .check_total(request.queue, &request.shape.total, &now.kept)
    {
        // What could never start waits for no headroom: its plan says why.
        let never = inputs.pending.shapes.could_fit(request.shape) == Some(false);
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
    let shares = match plan::plan(inputs, request.queue, request.shape, &now) {
        Ok(shares) => shares,
        Err(no_plan) => return blocked(block_by_plan(inputs, request, no_plan)),
    };
    let ahead = reserve::reservations_ahead(inputs, request);
    if ahead.is_empty() {
        return Verdict::Go(shares);
    }
    let view = evict::beside(inputs, request, &ahead);
    let total = inputs
        .quota
        .check_total(request.queue, &request.shape.total, &view.kept);
    if let Err(short) = total {
        let why = request.words(|| short.message(inputs.quota));
        return blocked(block_by_reservation(inputs, request, &ahead, &why, None));
    }
    match plan::plan(inputs, request.queue, request.shape, &view) {
        Ok(shares) => Verdict::Go(shares),
        Err(no_plan) => {
            let why = request.words(|| words(inputs.quota, &request.shape.demand, &no_plan));
            let room = matches!(no_plan, NoPlan::NoRoom(_));
            // Who keeps something itself is stopped by fewer than others are.
            let holds = inputs.reservations.of(&request.rank.key).is_some();
            let infeasible = (room && !holds).then(|| shut_by(inputs, &ahead));
            blocked(block_by_reservation(
                inputs, request, &ahead, &why, infeasible,
            ))
        }
    }
}

/// Whether a job would be let go if so much less (below zero: more) headroom were kept, all
/// reservations ahead of it heeded.
pub(crate) fn passes(inputs: Inputs<'_>, request: Request<'_>, given: &Withheld) -> bool {
    let ahead = reserve::reservations_ahead(inputs, request);
    let mut view = View {
        nodes: reserve::nodes_kept(inputs, &ahead),
        kept: reserve::headroom_kept(inputs, &ahead),
        ..View::now()
    };
    view.kept.add(given);
    let total = inputs
        .quota
        .check_total(request.queue, &request.shape.total, &view.kept);
    total.is_ok() && plan::plan(inputs, request.queue, request.shape, &view).is_ok()
}

/// Bounds on pools that no plan could keep, whatever is charged.
pub(super) fn block_by_bounds(inputs: Inputs<'_>, request: Request<'_>) -> Block {
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

/// What stops a job where it is not bounded for ever: a bound on some clusters that it can
/// never keep says nothing of the others.
fn past_bounds(inputs: Inputs<'_>, request: Request<'_>, no_plan: NoPlan) -> NoPlan {
    let mut without = BTreeSet::new();
    let mut stops = no_plan;
    while let NoPlan::Bound(short, pools) = &stops
        && short.never()
    {
        let left_out = without.len();
        without.extend(pools.keys().map(|(cluster, _)| cluster.clone()));
        let elsewhere = plan::plan_without(
            inputs,
            request.queue,
            request.shape,
            &request.view(),
            &without,
        );
        match elsewhere {
            Err(next) if without.len() > left_out && !matches!(next, NoPlan::NoCluster(_)) => {
                stops = next;
            }
            _ => break,
        }
    }
    stops
}

fn block_by_plan(inputs: Inputs<'_>, request: Request<'_>, no_plan: NoPlan) -> Block {
    let no_plan = past_bounds(inputs, request, no_plan);
    let mut message = request.words(|| words(inputs.quota, &request.shape.demand, &no_plan));
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
            let known = inputs.pending.shapes.could_fit(request.shape);
            if !known.unwrap_or_else(|| empty::could_fit(inputs, request.shape, &BTreeSet::new())) {
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
                    .map(|lack| room_blocker(lack, &request.shape.demand.roles[lack.role])),
                message,
                gate: Gate::Room,
                // Where pools are bounded another queue may find room in others.
                infeasible: (!bounds).then_some(Infeasible::NoRoom),
                conditions: [RequeueCondition::Room, RequeueCondition::Fleet]
                    .into_iter()
                    .chain(conditions)
                    .collect(),
            }
        }
    }
}

/// Those of `ahead` who keep nodes: they stop everybody who wants the same and has to leave
/// alone what all of them keep.
fn shut_by(inputs: Inputs<'_>, ahead: &[&JobKey]) -> Infeasible {
    let keeps = |key: &JobKey| {
        let kept = inputs.reservations.of(key);
        kept.is_some_and(|kept| !kept.nodes.is_empty())
    };
    let holders = ahead.iter().filter(|key| keeps(key));
    Infeasible::Withheld(holders.map(|key| (*key).clone()).collect())
}

fn block_by_reservation(
    inputs: Inputs<'_>,
    request: Request<'_>,
    ahead: &[&JobKey],
    why: &str,
    infeasible: Option<Infeasible>,
) -> Block {
    let holders = || {
        let holders: Vec<String> = ahead.iter().map(ToString::to_string).collect();
        holders.join(" and ")
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
                holders()
            )
        }),
        blocker: ahead
            .first()
            .filter(|_| request.tells)
            .map(|holder| Blocker {
                scope: format!("reservation/{holder}"),
                resource: None,
                needs: None,
                free: None,
            }),
        gate: Gate::Reserved,
        infeasible,
        conditions,
    }
}

fn block_by_quota(
    inputs: Inputs<'_>,
    request: Request<'_>,
    short: Box<Shortfall>,
    pools: Option<Pools>,
    mut conditions: Vec<RequeueCondition>,
) -> Block {
    let never = short.never();
    // Once the bound could let it go it may keep or reclaim what it lacks: it does not wait for
    // that to be free.
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
        message: request.words(|| short.message(inputs.quota)),
        blocker: request.tells.then(|| Blocker {
            scope: format!("queue/{}", short.queue),
            resource: Some(short.resource.to_string()),
            needs: Some(crate::amounts::tally::clamp(short.needs).0),
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

pub(super) fn blocked(block: Block) -> Verdict {
    Verdict::Blocked(Box::new(block))
}

fn block_by_limit(reached: LimitReached) -> Block {
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

fn room_blocker(lack: &ClusterLack, role: &Role) -> Blocker {
    let name = crate::capacity::leading(&role.request);
    let each = name.map_or(0, |name| role.request.amount_of(name).0);
    Blocker {
        scope: format!("cluster/{}", lack.cluster),
        resource: name.map(ToString::to_string),
        needs: Some(each.saturating_mul(i64::from(lack.wanted))),
        free: Some(each.saturating_mul(i64::from(lack.placed))),
    }
}

/// Why there is no plan, in words that follow "it".
fn words(queues: &Quota, demand: &Demand, no_plan: &NoPlan) -> String {
    match no_plan {
        NoPlan::Bound(short, _) => short.message(queues),
        NoPlan::NoCluster(why) if why.is_empty() => {
            "has no cluster to go to: no member cluster is known".to_owned()
        }
        NoPlan::NoCluster(why) => {
            let why = why
                .iter()
                .map(|entry| format!("{}: {}", entry.cluster, entry.why));
            format!("has no cluster to go to: {}", some(why.collect()))
        }
        NoPlan::NoRoom(lacks) => {
            let asks: Vec<String> = demand
                .roles
                .iter()
                .filter(|role| role.count > 0)
                .map(|role| asks(role, demand.roles.len() > 1))
                .collect();
            let mut lacks = lacks.clone();
            lacks.sort_by_key(|lack| (std::cmp::Reverse(lack.placed), lack.cluster.clone()));
            let rooms: Vec<String> = lacks.iter().map(|lack| has(lack, demand)).collect();
            let rooms = if rooms.is_empty() {
                // One cluster alone would take it.
                let least = demand.placement.min_clusters.unwrap_or(1);
                format!("no {least} clusters have room for it together")
            } else {
                some(rooms)
            };
            format!("needs {}; {rooms}", asks.join(" and "))
        }
    }
}

/// `8 pods × nvidia.com/gpu 8`, or with the role's name where there are several.
fn asks(role: &Role, named: bool) -> String {
    let each = crate::capacity::leading(&role.request).map_or_else(String::new, |name| {
        let amount = name.format(role.request.amount_of(name));
        format!(" × {name} {amount}")
    });
    let pods = if role.count == 1 { "pod" } else { "pods" };
    let name = if named {
        format!("{} ", role.name)
    } else {
        String::new()
    };
    format!("{} {name}{pods}{each}", role.count)
}

fn has(lack: &ClusterLack, demand: &Demand) -> String {
    let role = if demand.roles.len() > 1 {
        format!(" {}", demand.roles[lack.role].name)
    } else {
        String::new()
    };
    if lack.nodes == 0 {
        return format!(
            "{} has no usable node that its{role} pods may run on",
            lack.cluster
        );
    }
    let domain = lack.domain.as_ref();
    let domain = domain.map_or_else(String::new, |domain| format!(" in {domain}"));
    format!(
        "{}{domain} has room for {}{role} of {}",
        lack.cluster, lack.placed, lack.wanted
    )
}

/// The first few of many.
fn some(mut all: Vec<String>) -> String {
    const SHOWN: usize = 4;
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    let list = all.join(", ");
    if more == 0 {
        list
    } else {
        format!("{list}, and {more} more")
    }
}
