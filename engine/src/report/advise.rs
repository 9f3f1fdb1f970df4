//! What would help a pending job: the smallest changes with which it would start now.
//!
//! The functions that decide try each change, with another request shape or an [`Overlay`]; nothing is
//! estimated that can be evaluated. It costs some tens of verdicts, so it is computed once for all jobs
//! that get the same answer ([`AdviceClass`]), and never as part of a decision.

use crate::amounts::bisect::boundary;
use crate::amounts::totals::{ResourceTotals, clamp};
use crate::api::charge::{PoolSelector, Pools};
use crate::api::decision::Help;
use crate::backfill::withheld;
use crate::capacity::most_on_a_node;
use crate::evaluation::verdict;
use crate::overlay::Overlay;
use crate::pending::shapes::RequestShape;
use crate::placement::plan::{ClusterLack, NoPlan};
use crate::placement::request::Request;
use crate::placement::{plan, unmatched};
use crate::quota::Shortfall;
use crate::state::Inputs;
use facts::{Amount, ClusterName, Demand, JobKey, PoolClass, QueueName, Role};
use std::sync::Arc;

/// Pending jobs that get the same advice, as long as nothing changes: those of one queue and one request
/// shape that stand behind the same reservations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdviceClass {
    queue: QueueName,
    shape: Arc<RequestShape>,
    /// The owners of all reservations: whether they bind the job, and whether they stand before it by rank,
    /// which is what counts in another queue.
    reservations: Vec<(JobKey, bool, bool)>,
}

/// The class of a pending job; `None` if it is not pending.
pub(crate) fn class_of(inputs: Inputs<'_>, key: &JobKey) -> Option<AdviceClass> {
    let line = inputs.jobs.line_of(key)?;
    let shape = inputs.pending.shapes.get(line.shape)?;
    let request = Request {
        queue: &line.queue,
        rank: &line.rank,
        shape,
        verbose: false,
    };
    let reservations = inputs.reservations.iter().map(|reserved| {
        let binds = withheld::binds(inputs, reserved, request);
        (reserved.rank.key.clone(), binds, reserved.rank < line.rank)
    });
    Some(AdviceClass {
        queue: line.queue.clone(),
        shape: Arc::clone(shape),
        reservations: reservations.collect(),
    })
}

/// Most other queues that are named, and that are tried.
const OTHER_QUEUES: (usize, usize) = (3, 64);

/// What blocks a job, with the numbers.
enum Blocking {
    /// A bound; with the pools that it would use, if the bound is on a class of those.
    Quota(Box<Shortfall>, Option<Pools>),
    /// Capacity.
    Room(Vec<ClusterLack>),
}

/// The smallest changes with which a pending job would start now; none if it may be admitted, or if neither
/// quota nor capacity blocks it. Other queues are named only if `may_use` says that the job may be
/// submitted to them.
#[must_use]
pub(crate) fn advise(
    inputs: Inputs<'_>,
    key: &JobKey,
    may_use: &dyn Fn(&QueueName) -> bool,
) -> Vec<Help> {
    let line = inputs.jobs.line_of(key);
    let Some((line, shape)) =
        line.and_then(|line| Some((line, Arc::clone(inputs.pending.shapes.get(line.shape)?))))
    else {
        return Vec::new();
    };
    let request = Request {
        queue: &line.queue,
        rank: &line.rank,
        shape: &shape,
        verbose: true,
    };
    if inputs.quota.problem(request.queue).is_some()
        || verdict::passes(inputs, request, Overlay::default())
    {
        return Vec::new();
    }
    let lack = lack(inputs, request);
    let mut helps: Vec<Help> = Vec::new();
    if let Some(Blocking::Room(lacks)) = &lack
        && let Some((cluster, label, _)) = unmatched::of_all(lacks)
    {
        helps.push(Help::NodeLabel {
            cluster: cluster.cloned(),
            label: label.to_owned(),
        });
    }
    helps.extend(fewer_pods(inputs, request));
    if let Some(Blocking::Quota(short, pools)) = &lack {
        helps.extend(higher_bound(inputs, request, short, pools.as_ref()));
    }
    helps.extend(other_queues(inputs, request, may_use));
    if let Some(Blocking::Room(lacks)) = &lack {
        helps.extend(more_nodes(inputs, &shape, lacks));
    }
    helps
}

fn lack(inputs: Inputs<'_>, request: Request<'_>) -> Option<Blocking> {
    let now = Overlay::default();
    let (queue, total) = (request.queue, &request.shape.total);
    if let Err(short) = inputs.quota.check_total(queue, total, &now) {
        return Some(Blocking::Quota(Box::new(short), None));
    }
    match plan::plan(inputs, request.gang(), &now) {
        Err(NoPlan::Bound(short, pools)) => Some(Blocking::Quota(short, Some(pools))),
        Err(NoPlan::NoRoom(lacks)) => Some(Blocking::Room(lacks)),
        Err(NoPlan::NoCluster(_)) | Ok(_) => None,
    }
}

/// The most pods of its largest role with which it would start.
fn fewer_pods(inputs: Inputs<'_>, request: Request<'_>) -> Option<Help> {
    let roles = request.shape.demand.roles.iter().enumerate();
    let (index, role) = roles.max_by_key(|(index, role)| (role.count, usize::MAX - index))?;
    let goes = |count| {
        smaller(request.shape, index, count).is_some_and(|shape| {
            let request = Request {
                shape: &shape,
                ..request
            };
            verdict::passes(inputs, request, Overlay::default())
        })
    };
    // What fits at one size is taken to fit at every smaller one.
    let (fits, ()) = boundary((0, ()), role.count, |count| goes(count).then_some(()));
    (fits > 0).then(|| Help::FewerPods {
        role: role.name.clone(),
        count: fits,
    })
}

/// The bound that blocks it, raised by what is short, if nothing else blocks it then.
fn higher_bound(
    inputs: Inputs<'_>,
    request: Request<'_>,
    short: &Shortfall,
    pools: Option<&Pools>,
) -> Option<Help> {
    let to = short.capability + short.excess();
    let raised = Overlay::with_more_headroom(short, pools, to - short.capability);
    let helps = verdict::passes(inputs, request, raised)
        && all_bounds_admit(inputs, request, short, pools, clamp(to));
    helps.then(|| Help::RaiseCapability {
        queue: short.queue.clone(),
        class: short.class().cloned(),
        resource: short.resource.to_string(),
        to: clamp(to).0,
    })
}

/// True if all bounds admit the job once the one that blocks it names `to`. A queue below may name as
/// little, and what is guaranteed to others stays theirs: a copy of the tree with the changed object says
/// so. An overlay changes usage and capacity, never what an object names.
fn all_bounds_admit(
    inputs: Inputs<'_>,
    request: Request<'_>,
    short: &Shortfall,
    pools: Option<&Pools>,
    to: Amount,
) -> bool {
    let mut queues = inputs.quota.clone();
    if short.class().is_some() {
        let mut policy = inputs.quota.policy(&short.queue).cloned();
        let bounds = policy.iter_mut().flat_map(|policy| &mut policy.pools);
        for bound in bounds {
            if PoolSelector::from(&*bound) == short.detail.pools {
                bound.capability.set(short.resource.clone(), to);
            }
        }
        queues.set_policy(&short.queue, policy);
    } else {
        let mut fact = inputs.quota.fact(&short.queue).cloned();
        if let Some(fact) = &mut fact {
            fact.capability.set(short.resource.clone(), to);
        }
        queues.set_fact(&short.queue, fact);
    }
    let overlay = Overlay::beside(inputs, &withheld::reservations_ahead(inputs, request));
    let (queue, total) = (request.queue, &request.shape.total);
    let checked = queues.check_charge(queue, total, pools, &overlay);
    checked.is_ok()
}

/// Other queues in which it would start, in order of name.
fn other_queues(
    inputs: Inputs<'_>,
    request: Request<'_>,
    may_use: &dyn Fn(&QueueName) -> bool,
) -> Vec<Help> {
    let (named, tried) = OTHER_QUEUES;
    let pending_queues = inputs
        .quota
        .listed()
        .filter(|queue| *queue != request.queue && may_use(queue))
        .filter(|queue| inputs.quota.problem(queue).is_none());
    let goes = |queue: &&QueueName| {
        verdict::passes(inputs, Request { queue, ..request }, Overlay::default())
    };
    pending_queues
        .take(tried)
        .filter(goes)
        .take(named)
        .map(|queue| Help::OtherQueue(queue.clone()))
        .collect()
}

/// How many more empty nodes like those of a cluster would take the rest, in the cluster that needs the
/// fewest. Only for gangs of one role: several roles on a node are not counted.
fn more_nodes(inputs: Inputs<'_>, shape: &RequestShape, lacks: &[ClusterLack]) -> Option<Help> {
    let [role] = shape.demand.roles.as_slice() else {
        return None;
    };
    // How many domains another node adds is not known.
    let alone = most_on_a_node(role);
    if !role.rules.is_empty() && (alone > 1 || role.rules.len() > 1) {
        return None;
    }
    let fewest = lacks
        .iter()
        .filter_map(|lack| {
            let missing = lack.wanted.saturating_sub(lack.placed);
            let (class, each) = roomiest(inputs, &lack.cluster, role, lack.wanted)?;
            let each = each.min(alone);
            Some((missing.div_ceil(each), &lack.cluster, class))
        })
        .min()?;
    Some(Help::MoreNodes {
        count: fewest.0,
        cluster: fewest.1.clone(),
        class: fewest.2,
    })
}

/// The class whose empty nodes take the most pods of a role, and how many one of them takes.
fn roomiest(
    inputs: Inputs<'_>,
    cluster: &ClusterName,
    role: &Role,
    most: u32,
) -> Option<(PoolClass, u32)> {
    let nodes = inputs.capacity.cluster(cluster)?.nodes().values();
    let takes = nodes
        .filter(|node| crate::capacity::can_run_on(role, node))
        .map(|node| {
            let empty = ResourceTotals::from(&node.fact.allocatable);
            (empty.fits(&role.request, most), &node.fact.class)
        });
    let (each, class) = takes.max_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.cmp(a.1)))?;
    (each > 0).then(|| (class.clone(), each))
}

/// The shape with another count of pods in one role, its minimums no larger than what is left.
fn smaller(shape: &RequestShape, index: usize, count: u32) -> Option<RequestShape> {
    let mut demand = Demand::clone(&shape.demand);
    let role = demand.roles.get_mut(index)?;
    role.count = count;
    role.min = role.min.min(count);
    let pods = u32::try_from(demand.pods()).unwrap_or(u32::MAX);
    demand.min_available = demand.min_available.min(pods);
    shape.resized(demand)
}
