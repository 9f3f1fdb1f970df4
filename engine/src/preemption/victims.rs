//! The candidates for eviction: whole jobs, and single pods of elastic jobs.
//!
//! Each candidate has what becomes free by its eviction, and what is lost. Pods that an elastic gang has
//! above its minimum come before any whole job. Then the order is by what is lost: devices ×
//! milliseconds since the job last saved its work (a job without devices counts its CPUs, eight as a
//! device), times one more than the place of its priority among those in use. Jobs that are not
//! preemptible, are ending, or are within the minimum run time of their queue are no candidates. If the
//! queue's policy says so, a job that runs longer than it declared is a candidate in any case, also for
//! jobs of equal priority in its queue.

use crate::amounts::hashed::Hashed;
use crate::amounts::resources::{ResourceName, Resources};
use crate::api::charge::{Pools, pools_of};
use crate::api::ids::{ClusterName, JobKey, NodeName, QueueName, Time};
use crate::api::reason::Reason;
use crate::backfill::assume;
use crate::capacity::{Capacity, Holdings};
use crate::jobs::elastic::least_counts;
use crate::jobs::job::{Job, Released};
use crate::jobs::resize::{cuts_to, spare};
use crate::jobs::terminating::Cut;
use crate::state::Inputs;
use std::borrow::Cow;
use std::cmp::Reverse;

/// Most candidates into which the surplus of one gang is divided.
const STEPS: u32 = 64;

/// One candidate. It borrows what it can: there are thousands for a choice of one.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    /// The queue that is charged for it.
    pub(crate) queue: &'a QueueName,
    /// Reclaimed from another queue, or preempted in the preemptor's own.
    pub(crate) reason: Reason,
    order: Order<'a>,
    what: CandidateKind<'a>,
}

/// Which part of a job a candidate is.
#[derive(Debug)]
enum CandidateKind<'a> {
    /// All of a job without surplus of which nothing leaves, with its charge.
    Job(&'a Pools),
    PodSurplus(Box<PodSurplus>),
}

/// Some pods of a job, or all that is left of it without those.
#[derive(Debug)]
struct PodSurplus {
    /// The pods; `None`: all that is left.
    cut: Option<Cut>,
    /// The candidate of the same job that must be evicted before.
    after: Option<usize>,
    /// What is charged no more without it.
    charge: Pools,
    /// What it would be charged when it comes back, if that is not the same.
    again: Option<Pools>,
    /// What is free on nodes without it.
    nodes: Holdings,
}

/// A job that is evicted, or some of its pods.
#[derive(Debug, Clone)]
pub(crate) struct Victim {
    pub(crate) key: JobKey,
    /// The queue that is charged for it.
    pub(crate) queue: QueueName,
    pub(crate) reason: Reason,
    /// Some pods of an elastic gang; `None`: the whole job, or all that is left of it.
    pub(crate) cut: Option<Cut>,
}

/// The order of candidates; the order of the fields is the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Order<'a> {
    /// Surplus of elastic gangs first.
    whole: bool,
    /// Then the least loss.
    cost: i128,
    /// Then the lowest priority.
    priority: i32,
    /// Then the latest admission.
    younger: Reverse<Time>,
    key: &'a JobKey,
    step: usize,
}

/// The candidates, in order; and when there may be more.
#[derive(Debug, Default)]
pub(crate) struct Candidates<'a> {
    pub(crate) items: Vec<Item<'a>>,
    /// When the next job has run as long as its queue protects it.
    pub(crate) more_at: Option<Time>,
}

impl<'a> Candidates<'a> {
    /// Puts them in order. To be called once all are there.
    pub(crate) fn sort(&mut self) {
        self.items.sort_by(|a, b| a.order.cmp(&b.order));
        let mut last: Hashed<&JobKey, usize> = Hashed::default();
        for (index, item) in self.items.iter_mut().enumerate() {
            let CandidateKind::PodSurplus(part) = &mut item.what else {
                continue;
            };
            part.after = match part.cut {
                Some(_) => last.insert(item.order.key, index),
                None => last.get(item.order.key).copied(),
            };
        }
    }
}

impl Item<'_> {
    /// The job.
    pub(crate) fn key(&self) -> &JobKey {
        self.order.key
    }

    /// What is lost by it.
    pub(crate) fn cost(&self) -> i128 {
        self.order.cost
    }

    /// Some pods of an elastic gang; `None`: the whole job, or all that is left of it.
    pub(crate) fn cut(&self) -> Option<&Cut> {
        self.part()?.cut.as_ref()
    }

    /// The candidate of the same job that must be evicted before.
    pub(crate) fn after(&self) -> Option<usize> {
        self.part()?.after
    }

    /// What is charged no more without it.
    pub(crate) fn charge(&self) -> &Pools {
        match &self.what {
            CandidateKind::Job(charge) => charge,
            CandidateKind::PodSurplus(part) => &part.charge,
        }
    }

    /// What it would be charged when it comes back.
    pub(crate) fn again(&self) -> &Pools {
        let again = self.part().and_then(|part| part.again.as_ref());
        again.unwrap_or_else(|| self.charge())
    }

    /// What is free on nodes without it.
    pub(crate) fn nodes(&self, room: &Capacity) -> Cow<'_, Holdings> {
        let part = self.part().map(|part| Cow::Borrowed(&part.nodes));
        part.unwrap_or_else(|| Cow::Owned(room.holdings(self.key())))
    }

    /// The same by itself.
    pub(crate) fn taken(&self) -> Victim {
        Victim {
            key: self.key().clone(),
            queue: self.queue.clone(),
            reason: self.reason,
            cut: self.cut().cloned(),
        }
    }

    fn part(&self) -> Option<&PodSurplus> {
        match &self.what {
            CandidateKind::Job(_) => None,
            CandidateKind::PodSurplus(part) => Some(part),
        }
    }
}

/// The job for which others are evicted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preemptor<'a> {
    /// What it requests.
    pub(crate) wanted: &'a Resources,
    /// Its priority, in its own queue.
    pub(crate) below: Option<i32>,
    /// When its latest cause came up ([`crate::jobs::causes`]).
    pub(crate) cause: Time,
    /// Whether it was ever evicted for another job itself.
    pub(crate) gave_way: bool,
}

/// Adds the candidates of a queue that have any of the resources that the preemptor requests.
pub(crate) fn offer<'a>(
    inputs: Inputs<'a>,
    offers: &mut Candidates<'a>,
    queue: &QueueName,
    reason: Reason,
    preemptor: Preemptor<'_>,
) {
    let Preemptor {
        wanted,
        below,
        cause,
        gave_way,
    } = preemptor;
    let rules = inputs.quota.policy(queue).map(|policy| policy.preemption);
    let rules = rules.unwrap_or_default();
    let protected = rules.min_runtime_ms;
    let mut last = None;
    for (priority, key) in inputs.jobs.preemptible().of(queue) {
        if below.is_some_and(|below| *priority > below) {
            break;
        }
        let Some(job) = inputs.jobs.get(key) else {
            continue;
        };
        let Some(released) = job.released.as_deref() else {
            continue;
        };
        let Some((_, charge)) = &job.derived.has.charge else {
            continue;
        };
        if !charge.values().any(|part| shares_something(part, wanted)) {
            continue;
        }
        let lower = below.is_none_or(|below| rules.within_queue && *priority < below);
        // Evictions for a higher priority end by themselves: the lower one evicts nobody for it.
        let mut whole = below.is_some() || !job.gave_way() || job.gives_way_to(cause);
        if !lower || (rules.allow_non_preemptible && !job.preemptible) {
            let until = overdue_at(job, released).filter(|_| rules.evict_overdue);
            if until.is_none_or(|until| until > inputs.now) {
                offers.more_at = offers.more_at.into_iter().chain(until).min();
                continue;
            }
            // Otherwise two jobs that declare too little would evict each other in turn.
            whole = job.gives_way_to(cause) || !(gave_way || job.gave_way());
        }
        if protected > 0 {
            let until = released.started_at.map(|at| at.after(protected));
            if until.is_none_or(|until| until > inputs.now) {
                offers.more_at = offers.more_at.into_iter().chain(until).min();
                continue;
            }
        }
        // They come in order of priority.
        let place = match last {
            Some((of, place)) if of == *priority => place,
            _ => inputs.jobs.preemptible().rank(*priority),
        };
        last = Some((*priority, place));
        offer_job(
            inputs,
            offers,
            (key, job, released),
            (reason, whole),
            (*priority, place),
        );
    }
}

/// Adds the candidates of one job; the `whole` job only where that is allowed.
fn offer_job<'a>(
    inputs: Inputs<'a>,
    offers: &mut Candidates<'a>,
    (key, job, released): (&'a JobKey, &'a Job, &'a Released),
    (reason, whole): (Reason, bool),
    (priority, place): (i32, usize),
) {
    let cost = cost_of(inputs, job, released, place);
    let item = |step, cost, what: CandidateKind<'a>| Item {
        queue: &released.admission.queue,
        reason,
        order: Order {
            whole: !matches!(&what, CandidateKind::PodSurplus(part) if part.cut.is_some()),
            cost,
            priority,
            younger: Reverse(released.admission.admitted_at),
            key,
            step,
        },
        what,
    };
    let steps = surplus(job, released);
    if steps.is_empty() && !whole {
        return;
    }
    if let Some((_, charge)) = &job.derived.has.charge
        && steps.is_empty()
        && released.leaving.is_empty()
    {
        let all = item(usize::MAX, cost, CandidateKind::Job(charge));
        return offers.items.push(all);
    }
    let mut nodes = inputs.capacity.holdings(key);
    if !released.leaving.is_empty() {
        // What leaves already counts as gone.
        let leaving = assume::leaving(inputs, key).map(|leaving| leaving.nodes);
        for (node, held) in leaving.into_iter().flatten() {
            nodes.entry(node).or_default().add_totals(&held, -1);
        }
    }
    let again = pools_of(&released.admission.shares);
    let mut rest = released.clone();
    let on: Vec<(ClusterName, NodeName)> = nodes.keys().cloned().collect();
    for (step, cut) in steps.into_iter().enumerate() {
        let basis = rest.basis.clone().or_else(|| job.demand.clone());
        let Some((leaving, from)) = basis.and_then(|basis| rest.cut(&basis, &cut)) else {
            break;
        };
        let mut freed = Holdings::new();
        let mut left = leaving.count;
        let mut free = |at: &(ClusterName, NodeName), count: u32| {
            let held = nodes.entry(at.clone()).or_default();
            let count = held.fits(&leaving.request, count);
            held.add(&leaving.request, -i64::from(count));
            let freed = freed.entry(at.clone()).or_default();
            freed.add(&leaving.request, i64::from(count));
            count
        };
        for (node, count) in from {
            left -= free(&(cut.cluster.clone(), node), count.min(left));
        }
        // A restored plan names no nodes: pods leave where they are seen.
        for at in on.iter().rev().filter(|at| at.0 == cut.cluster) {
            left -= free(at, left);
        }
        let charge: Pools = leaving
            .charge
            .into_iter()
            .map(|(class, part)| ((cut.cluster.clone(), class), part))
            .collect();
        let part = PodSurplus {
            cut: Some(cut),
            after: None,
            charge,
            again: None,
            nodes: freed,
        };
        offers
            .items
            .push(item(step, 0, CandidateKind::PodSurplus(part.into())));
    }
    if !whole {
        return;
    }
    let left = PodSurplus {
        cut: None,
        after: None,
        charge: pools_of(&rest.admission.shares),
        again: Some(again),
        nodes,
    };
    let left = item(usize::MAX, cost, CandidateKind::PodSurplus(left.into()));
    offers.items.push(left);
}

/// What is lost if a job is evicted whose priority has this place among those in use.
fn cost_of(inputs: Inputs<'_>, job: &Job, released: &Released, place: usize) -> i128 {
    let saved = released.started_at.max(job.cold.checkpointed_at);
    let since = released.started_at.and(saved);
    let lost = since.map_or(0, |since| inputs.now.millis_since(since).max(0));
    let charged = job.derived.has.charge.as_ref();
    let charged = charged.filter(|_| released.leaving.is_empty());
    let weight = match charged {
        Some((_, pools)) => weight(pools.values()),
        None => weight(&released.admission.charge()),
    };
    let place = i128::try_from(place).unwrap_or(i128::MAX);
    weight * i128::from(lost) * (1 + place)
}

/// When a released job has run as long as it declared; `None` while it does not run, and for one
/// that declared nothing.
pub(crate) fn overdue_at(job: &Job, released: &Released) -> Option<Time> {
    let declared = released.declared_ms.or(job.duration)?;
    Some(released.started_at?.after(declared))
}

/// Devices in thousandths; CPUs where there are none, eight as a device.
fn weight<'a>(parts: impl IntoIterator<Item = &'a Resources>) -> i128 {
    let (mut devices, mut cpus) = (0, 0);
    for (name, amount) in parts.into_iter().flat_map(Resources::iter) {
        if name.is_device() {
            devices += i128::from(amount.0);
        } else if name.as_str() == ResourceName::CPU {
            cpus += i128::from(amount.0);
        }
    }
    if devices > 0 {
        return devices * 1000;
    }
    (cpus / 8).max(1)
}

/// True if `part` has any resource of `wanted`, pod slots aside.
fn shares_something(part: &Resources, wanted: &Resources) -> bool {
    let competes = |name: &ResourceName| name.as_str() != ResourceName::PODS;
    wanted
        .iter()
        .any(|(name, amount)| amount.0 > 0 && competes(name) && part.amount_of(name).0 > 0)
}

/// The steps by which an elastic gang shrinks to its minimum: the last role first, and of it the last part.
/// If overrides enforce its parts, each part keeps a pod.
fn surplus(job: &Job, released: &Released) -> Vec<Cut> {
    let Some(demand) = job.demand.as_ref() else {
        return Vec::new();
    };
    let Some(least) = least_counts(demand) else {
        return Vec::new();
    };
    let shares = &released.admission.shares;
    let mut spare = spare(demand, shares);
    let mut cuts = Vec::new();
    for (role, least) in demand.roles.iter().zip(least).rev() {
        let pods = shares.iter().map(|share| share.pods_of(&role.name));
        let each = pods
            .sum::<u32>()
            .saturating_sub(least)
            .div_ceil(STEPS)
            .max(1);
        for cut in cuts_to(shares, &role.name, least, &mut spare) {
            let mut left = cut.count;
            while left > 0 {
                let count = each.min(left);
                left -= count;
                cuts.push(Cut {
                    count,
                    ..cut.clone()
                });
            }
        }
    }
    cuts
}
