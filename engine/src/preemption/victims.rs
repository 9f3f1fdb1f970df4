//! The candidates for eviction: whole jobs, and single pods of elastic jobs.
//!
//! Each candidate has what becomes free by its eviction, and what is lost. Pods that an elastic gang has
//! above its minimum come before any whole job. Then the order is by what is lost: devices ×
//! milliseconds since the job last saved its work (a job without devices counts its CPUs, eight as a
//! device), times one more than the place of its priority among those in use. Jobs that are not
//! preemptible, are ending, or are within the minimum run time of their queue are no candidates. If the
//! queue's policy says so, a job that runs longer than it declared is a candidate in any case, also for
//! jobs of equal priority in its queue.
//!
//! Which of the candidates are listed is in `candidates.rs`.

use crate::api::charge::Pools;
use crate::capacity::{Capacity, Holdings, leading};
use crate::jobs::preemptible_index::VictimFacts;
use crate::jobs::terminating::Cut;
use crate::preemption::candidates::{Candidates, OfferedGroup};
use crate::preemption::surplus::{PodSurplus, divided, surplus};
use crate::state::Inputs;
use facts::{JobKey, QueueName, Reason, ResourceName, Resources, Time};
use std::borrow::Cow;
use std::cmp::Reverse;

/// One candidate. It borrows what it can: there are thousands for a choice of one.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    /// The queue that is charged for it.
    pub(crate) queue: &'a QueueName,
    /// Reclaimed from another queue, or preempted in the preemptor's own.
    pub(crate) reason: Reason,
    /// How much it frees of the leading resource of the preemptor.
    pub(crate) size: i64,
    /// True if candidates that come after it are left out.
    pub(crate) gap_after: bool,
    /// True if candidates that come before it are left out.
    pub(crate) gap_before: bool,
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

impl<'a> Item<'a> {
    /// Compares it with another, in the order of candidates.
    pub(super) fn compare(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }

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

    /// Returns the part of an elastic gang that it is, to be changed.
    pub(super) fn part_mut(&mut self) -> Option<(&'a JobKey, &mut PodSurplus)> {
        match &mut self.what {
            CandidateKind::Job(_) => None,
            CandidateKind::PodSurplus(part) => Some((self.order.key, part)),
        }
    }

    fn part(&self) -> Option<&PodSurplus> {
        match &self.what {
            CandidateKind::Job(_) => None,
            CandidateKind::PodSurplus(part) => Some(part),
        }
    }
}

/// A job of which candidates are made.
pub(super) struct OfferedJob<'a, 'g> {
    pub(super) group: &'g OfferedGroup<'a>,
    pub(super) key: &'a JobKey,
    pub(super) facts: &'a VictimFacts,
}

impl<'a> OfferedJob<'a, '_> {
    /// All of it, with its charge.
    pub(super) fn whole_job(&self, now: Time) -> Item<'a> {
        let what = CandidateKind::Job(self.group.charge);
        let cost = self.cost(now, self.group.kind.weight);
        self.item(usize::MAX, cost, self.group.kind.size, what)
    }

    /// Returns what is lost if it is evicted.
    fn cost(&self, now: Time, weight: i128) -> i128 {
        let since = self.facts.unsaved_since;
        let lost = since.map_or(0, |since| now.millis_since(since).max(0));
        let place = i128::try_from(self.group.place).unwrap_or(i128::MAX);
        weight * i128::from(lost) * (1 + place)
    }

    fn item(&self, step: usize, cost: i128, size: i64, what: CandidateKind<'a>) -> Item<'a> {
        Item {
            queue: self.group.queue,
            reason: self.group.reason,
            size,
            gap_after: false,
            gap_before: false,
            order: Order {
                whole: !matches!(&what, CandidateKind::PodSurplus(part) if part.cut.is_some()),
                cost,
                priority: self.group.priority,
                younger: Reverse(self.facts.admitted_at),
                key: self.key,
                step,
            },
            what,
        }
    }

    /// Adds its surplus, and all that is left of it where that is allowed.
    pub(super) fn offer_parts(&self, inputs: Inputs<'a>, offers: &mut Candidates<'a>, whole: bool) {
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
            true => self.group.kind.weight,
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
            let size = size(&part.charge, self.group.preemptor.wanted);
            let what = CandidateKind::PodSurplus(part.into());
            offers.items.push(self.item(step, cost, size, what));
        }
    }
}

/// Devices in thousandths; CPUs where there are none, eight as a device.
pub(super) fn weight<'a>(parts: impl IntoIterator<Item = &'a Resources>) -> i128 {
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
pub(super) fn shares_something(part: &Resources, wanted: &Resources) -> bool {
    let competes = |name: &ResourceName| name.as_str() != ResourceName::PODS;
    wanted
        .iter()
        .any(|(name, amount)| amount.0 > 0 && competes(name) && part.amount_of(name).0 > 0)
}

/// How much a charge has of the leading resource of what is wanted.
pub(super) fn size(charge: &Pools, wanted: &Resources) -> i64 {
    let sum = |name| charge.values().map(|part| part.amount_of(name).0).sum();
    leading(wanted).map_or(0, sum)
}
