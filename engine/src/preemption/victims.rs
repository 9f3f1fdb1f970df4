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
use crate::api::charge::Pools;
use crate::capacity::{Capacity, Holdings, leading};
use crate::jobs::preemptible_index::VictimFacts;
use crate::jobs::terminating::Cut;
use crate::preemption::surplus::{PodSurplus, divided, surplus};
use crate::state::Inputs;
use facts::{JobKey, Preemption, QueueName, Reason, ResourceName, Resources, Time};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

/// One candidate. It borrows what it can: there are thousands for a choice of one.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    /// The queue that is charged for it.
    pub(crate) queue: &'a QueueName,
    /// Reclaimed from another queue, or preempted in the preemptor's own.
    pub(crate) reason: Reason,
    /// How much it frees of the leading resource of the preemptor.
    pub(crate) size: i64,
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

    /// Returns what is lost by it.
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

    /// Returns what is charged no more without it.
    pub(crate) fn charge(&self) -> &Pools {
        match &self.what {
            CandidateKind::Job(charge) => charge,
            CandidateKind::PodSurplus(part) => &part.charge,
        }
    }

    /// Returns what it would be charged when it comes back.
    pub(crate) fn again(&self) -> &Pools {
        let again = self.part().and_then(|part| part.again.as_ref());
        again.unwrap_or_else(|| self.charge())
    }

    /// Returns what is free on nodes without it.
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
    /// True if it was ever evicted for another job itself.
    pub(crate) gave_way: bool,
}

/// What is the same of all jobs that are charged the same.
#[derive(Debug, Clone, Copy)]
struct ChargeKind {
    /// True if it has any resource that the preemptor requests.
    competes: bool,
    /// What it counts as in what is lost ([`weight`]).
    weight: i128,
    /// How much it has of the leading resource.
    size: i64,
}

impl ChargeKind {
    fn of(charge: &Pools, wanted: &Resources) -> Self {
        Self {
            competes: charge.values().any(|part| shares_something(part, wanted)),
            weight: weight(charge.values()),
            size: size(charge, wanted),
        }
    }
}

/// Adds the candidates of a queue that have any of the resources that the preemptor requests.
pub(crate) fn offer<'a>(
    inputs: Inputs<'a>,
    offers: &mut Candidates<'a>,
    queue: &'a QueueName,
    reason: Reason,
    preemptor: Preemptor<'_>,
) {
    let rules = inputs.quota.policy(queue).map(|policy| policy.preemption);
    let rules = rules.unwrap_or_default();
    let mut kinds: Hashed<*const Pools, ChargeKind> = Hashed::default();
    let mut last = None;
    for ((priority, key), facts) in inputs.jobs.preemptible().with_facts(queue) {
        if preemptor.below.is_some_and(|below| *priority > below) {
            break;
        }
        let Some(charge) = &facts.charge else {
            continue;
        };
        // Jobs that are charged the same share their charge.
        let kind = kinds.entry(Arc::as_ptr(charge));
        let kind = *kind.or_insert_with(|| ChargeKind::of(charge, preemptor.wanted));
        if !kind.competes {
            continue;
        }
        let whole = match as_whole(inputs.now, rules, preemptor, *priority, facts) {
            Ok(whole) => whole,
            Err(until) => {
                offers.more_at = offers.more_at.into_iter().chain(until).min();
                continue;
            }
        };
        // They come in order of priority.
        let place = match last {
            Some((of, place)) if of == *priority => place,
            _ => inputs.jobs.preemptible().rank(*priority),
        };
        last = Some((*priority, place));
        let candidate = OfferedJob {
            key,
            facts,
            charge,
            queue,
            reason,
            kind,
            priority: *priority,
            place,
        };
        if !facts.is_whole {
            candidate.offer_parts(inputs, offers, whole, preemptor.wanted);
        } else if whole {
            offers.items.push(candidate.whole_job(inputs.now));
        }
    }
}

/// Returns whether a job may be evicted as a whole, or only its surplus; if it is no candidate: when it becomes one.
fn as_whole(
    now: Time,
    rules: Preemption,
    preemptor: Preemptor<'_>,
    priority: i32,
    facts: &VictimFacts,
) -> Result<bool, Option<Time>> {
    let Preemptor {
        below,
        cause,
        gave_way,
        ..
    } = preemptor;
    let is_later = |until: Option<Time>| until.is_none_or(|until| until > now);
    let lower = below.is_none_or(|below| rules.within_queue && priority < below);
    // Evictions for a higher priority end by themselves: the lower one evicts nobody for it.
    let mut whole = below.is_some() || !facts.gave_way || facts.gives_way_to(cause);
    if !lower || (rules.allow_non_preemptible && !facts.preemptible) {
        let until = facts.overdue_at.filter(|_| rules.evict_overdue);
        if is_later(until) {
            return Err(until);
        }
        // Otherwise two jobs that declare too little would evict each other in turn.
        whole = facts.gives_way_to(cause) || !(gave_way || facts.gave_way);
    }
    if rules.min_runtime_ms > 0 {
        let until = facts.started_at;
        let until = until.map(|at| at.after(rules.min_runtime_ms));
        if is_later(until) {
            return Err(until);
        }
    }
    Ok(whole)
}

/// A job of which candidates are made.
struct OfferedJob<'a> {
    key: &'a JobKey,
    facts: &'a VictimFacts,
    charge: &'a Pools,
    queue: &'a QueueName,
    reason: Reason,
    kind: ChargeKind,
    priority: i32,
    /// The place of its priority among those in use.
    place: usize,
}

impl<'a> OfferedJob<'a> {
    /// All of it, with its charge.
    fn whole_job(&self, now: Time) -> Item<'a> {
        let what = CandidateKind::Job(self.charge);
        let cost = self.cost(now, self.kind.weight);
        self.item(usize::MAX, cost, self.kind.size, what)
    }

    /// Returns what is lost if it is evicted.
    fn cost(&self, now: Time, weight: i128) -> i128 {
        let since = self.facts.unsaved_since;
        let lost = since.map_or(0, |since| now.millis_since(since).max(0));
        let place = i128::try_from(self.place).unwrap_or(i128::MAX);
        weight * i128::from(lost) * (1 + place)
    }

    fn item(&self, step: usize, cost: i128, size: i64, what: CandidateKind<'a>) -> Item<'a> {
        Item {
            queue: self.queue,
            reason: self.reason,
            size,
            order: Order {
                whole: !matches!(&what, CandidateKind::PodSurplus(part) if part.cut.is_some()),
                cost,
                priority: self.priority,
                younger: Reverse(self.facts.admitted_at),
                key: self.key,
                step,
            },
            what,
        }
    }

    /// Adds its surplus, and all that is left of it where that is allowed.
    fn offer_parts(
        &self,
        inputs: Inputs<'a>,
        offers: &mut Candidates<'a>,
        whole: bool,
        wanted: &Resources,
    ) {
        let Some(job) = inputs.jobs.get(self.key) else {
            return;
        };
        let Some(released) = job.released.as_deref() else {
            return;
        };
        let steps = surplus(job, released);
        if steps.is_empty() && !whole {
            return;
        }
        if steps.is_empty() && released.leaving.is_empty() {
            return offers.items.push(self.whole_job(inputs.now));
        }
        let weight = match released.leaving.is_empty() {
            true => self.kind.weight,
            false => weight(&released.admission.charge()),
        };
        let cost = self.cost(inputs.now, weight);
        let parts = divided(inputs, self.key, (job, released), steps);
        for (step, part) in parts.into_iter().enumerate() {
            let (step, cost) = match part.cut {
                Some(_) => (step, 0),
                None if whole => (usize::MAX, cost),
                None => continue,
            };
            let size = size(&part.charge, wanted);
            let what = CandidateKind::PodSurplus(part.into());
            offers.items.push(self.item(step, cost, size, what));
        }
    }
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

/// How much a charge has of the leading resource of what is wanted.
fn size(charge: &Pools, wanted: &Resources) -> i64 {
    let sum = |name| charge.values().map(|part| part.amount_of(name).0).sum();
    leading(wanted).map_or(0, sum)
}
