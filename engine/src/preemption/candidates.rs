//! The list of candidates from which victims are chosen.
//!
//! Of thousands of candidates a few are enough most often. So of each group of jobs that are charged the same
//! (`jobs/victim_group.rs`) the first are listed and, as a choice by size begins there, the last; where others are left
//! out between them, that is noted ([`Item::gap_after`], [`Item::gap_before`]). A choice that comes to no such gap is
//! the one that would be made from all candidates. Otherwise it is made again from more of them, at last from all.

use crate::amounts::hashed::Hashed;
use crate::api::charge::Pools;
use crate::capacity::leading;
use crate::jobs::preemptible_index::VictimFacts;
use crate::jobs::victim_group::VictimGroup;
use crate::preemption::choose::EXACT;
use crate::preemption::victims::{Item, OfferedJob, shares_something, size, weight};
use crate::state::Inputs;
use facts::{JobKey, Preemption, QueueName, Reason, Resources, Time};

/// The candidates, in order; and when there may be more.
#[derive(Debug, Default)]
pub(crate) struct Candidates<'a> {
    pub(crate) items: Vec<Item<'a>>,
    /// True if some are left out.
    pub(crate) is_partial: bool,
    /// When the next job has run as long as its queue protects it; not of those that are left out.
    pub(crate) more_at: Option<Time>,
}

impl<'a> Candidates<'a> {
    /// Lists the candidates of groups, in order. `times` is how many times as many of each group as free all that is
    /// wanted: others between its first and its last are left out. If that is `None`, none are.
    pub(crate) fn list(
        inputs: Inputs<'a>,
        groups: &[OfferedGroup<'a>],
        times: Option<usize>,
    ) -> Self {
        let size = groups.first().map(|group| group.kind.size);
        let alike = |group: &OfferedGroup<'_>| group.is_whole && Some(group.kind.size) == size;
        // Only a choice by size begins with the last.
        let by_size = !groups.iter().all(alike);
        let least = (EXACT + 1).div_ceil(groups.len().max(1));
        let most = |group: &OfferedGroup<'_>| {
            let most = times.and_then(|times| group.enough(times));
            most.map_or(usize::MAX, |most| most.max(least))
        };
        let ends = if by_size { 2 } else { 1 };
        let listed =
            |group: &OfferedGroup<'_>| group.jobs.len().min(most(group).saturating_mul(ends));
        let mut candidates = Self::default();
        // To grow would take several times as much new memory.
        candidates.items.reserve(groups.iter().map(listed).sum());
        for group in groups {
            let most = most(group);
            match group.is_whole {
                true => group.list(inputs, &mut candidates, most, by_size),
                false => group.list_parts(inputs, &mut candidates),
            }
        }
        candidates.sort();
        candidates
    }

    /// Puts them in order.
    fn sort(&mut self) {
        self.items.sort_unstable_by(Item::compare);
        let mut last: Hashed<&JobKey, usize> = Hashed::default();
        for (index, item) in self.items.iter_mut().enumerate() {
            let Some((key, part)) = item.part_mut() else {
                continue;
            };
            part.after = match part.cut {
                Some(_) => last.insert(key, index),
                None => last.get(key).copied(),
            };
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
pub(super) struct ChargeKind {
    /// True if it has any resource that the preemptor requests.
    competes: bool,
    /// What it counts as in what is lost ([`weight`]).
    pub(super) weight: i128,
    /// How much it has of the leading resource.
    pub(super) size: i64,
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

/// Jobs of a queue that may be candidates, all of one priority and charge.
pub(crate) struct OfferedGroup<'a> {
    jobs: &'a VictimGroup,
    /// True if nothing of them is cut.
    is_whole: bool,
    pub(super) charge: &'a Pools,
    pub(super) queue: &'a QueueName,
    pub(super) reason: Reason,
    rules: Preemption,
    pub(super) preemptor: Preemptor<'a>,
    pub(super) kind: ChargeKind,
    pub(super) priority: i32,
    /// The place of its priority among those in use.
    pub(super) place: usize,
}

/// Adds the groups of a queue that have any of the resources that the preemptor requests.
pub(crate) fn offer<'a>(
    inputs: Inputs<'a>,
    offers: &mut Vec<OfferedGroup<'a>>,
    queue: &'a QueueName,
    reason: Reason,
    preemptor: Preemptor<'a>,
) {
    let rules = inputs.quota.policy(queue).map(|policy| policy.preemption);
    let rules = rules.unwrap_or_default();
    let index = inputs.jobs.preemptible();
    // They come in order of priority.
    let mut last = None;
    for (of, jobs) in index.groups_of(queue) {
        let kind = ChargeKind::of(&of.charge, preemptor.wanted);
        let is_above = preemptor.below.is_some_and(|below| of.priority > below);
        if is_above || !kind.competes {
            continue;
        }
        let place = match last {
            Some((priority, place)) if priority == of.priority => place,
            _ => index.rank(of.priority),
        };
        last = Some((of.priority, place));
        offers.push(OfferedGroup {
            jobs,
            is_whole: of.is_whole,
            charge: &of.charge,
            queue,
            reason,
            rules,
            preemptor,
            kind,
            priority: of.priority,
            place,
        });
    }
}

impl<'a> OfferedGroup<'a> {
    /// Returns so many `times` as many of its jobs as free all that is wanted; `None` if none of them frees any.
    fn enough(&self, times: usize) -> Option<usize> {
        let wanted = self.preemptor.wanted;
        let wanted = leading(wanted).map_or(0, |name| wanted.amount_of(name).0);
        let size = usize::try_from(self.kind.size)
            .ok()
            .filter(|size| *size > 0)?;
        let count = usize::try_from(wanted).ok()?.div_ceil(size);
        // The search takes twice as many each time.
        Some(count.checked_next_power_of_two()?.saturating_mul(times))
    }

    /// Lists so many of its first candidates, and of its last too if `both`.
    fn list(&self, inputs: Inputs<'a>, candidates: &mut Candidates<'a>, most: usize, both: bool) {
        let mut more_at = candidates.more_at;
        let whole = |(key, facts)| {
            let may = as_whole(inputs.now, self.rules, self.preemptor, self.priority, facts);
            more_at = more_at.into_iter().chain(may.err().flatten()).min();
            let candidate = self.candidate(key, facts);
            (may == Ok(true)).then(|| candidate.whole_job(inputs.now))
        };
        let mut jobs = self.jobs.in_order(inputs.now).filter_map(whole);
        candidates.items.extend(jobs.by_ref().take(most));
        let last = if both { most } else { 0 };
        let mut last: Vec<Item<'a>> = jobs.by_ref().rev().take(last).collect();
        if jobs.next().is_some() {
            candidates.is_partial = true;
            let before = candidates.items.last_mut().into_iter();
            before.for_each(|item| item.gap_after = true);
            let after = last.last_mut().into_iter();
            after.for_each(|item| item.gap_before = true);
        }
        candidates.items.extend(last);
        candidates.more_at = more_at;
    }

    /// Lists all of its candidates, and of each those that a part of it is.
    fn list_parts(&self, inputs: Inputs<'a>, candidates: &mut Candidates<'a>) {
        for (key, facts) in self.jobs.in_order(inputs.now) {
            let candidate = self.candidate(key, facts);
            match as_whole(inputs.now, self.rules, self.preemptor, self.priority, facts) {
                Ok(whole) => candidate.offer_parts(inputs, candidates, whole),
                Err(until) => {
                    let more_at = candidates.more_at.into_iter().chain(until);
                    candidates.more_at = more_at.min();
                }
            }
        }
    }

    fn candidate<'g>(&'g self, key: &'a JobKey, facts: &'a VictimFacts) -> OfferedJob<'a, 'g> {
        let group = self;
        OfferedJob { group, key, facts }
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
