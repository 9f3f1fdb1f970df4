//! Quota that a job need not reserve, since the jobs that it waits for give it back.
//!
//! A job that waits for others to end gets back what they are charged: on nodes from all jobs that
//! are on them, of a short bound from those that are expected to end first. If the charge of the
//! whole gang were reserved on top, a pending job would idle what others could use.

use crate::amounts::hashed::Hashed;
use crate::amounts::totals::ResourceTotals;
use crate::api::charge::Pools;
use crate::backfill::expected_start::jobs_on;
use crate::backfill::reservation::not_given_back;
use crate::overlay::Overlay;
use crate::quota::Shortfall;
use crate::reservation::store::{ExpectedRelease, ReleaseSource, Reservation, ReservedNode};
use crate::state::Inputs;
use facts::{JobKey, QueueName, Time};
use std::collections::BTreeSet;

/// At most so many ends are read for one start; if they are not enough, it is unknown.
pub(crate) const ENDS: usize = 1024;

/// True if the job that an expected release waits for is still charged.
pub(crate) fn is_expected(inputs: Inputs<'_>, releases: &ExpectedRelease) -> bool {
    match &releases.from {
        ReleaseSource::Job(key) => inputs.jobs.charge_of(key).is_some(),
        ReleaseSource::Node(_) => true,
    }
}

/// The releases that an owner still expects on a queue.
pub(crate) fn expected_on<'a>(
    inputs: Inputs<'a>,
    kept: &'a Reservation,
    queue: &'a QueueName,
) -> impl Iterator<Item = &'a ExpectedRelease> + Clone {
    let releases = kept.releases.iter();
    releases.filter(move |release| release.queue == *queue && is_expected(inputs, release))
}

/// Returns what of an owner's charge becomes free on each queue of its path when the jobs on its nodes end.
/// That much headroom is not reserved in addition: it would be idle while the owner waits.
pub(crate) fn releases(
    inputs: Inputs<'_>,
    queue: &QueueName,
    nodes: &[ReservedNode],
) -> Vec<ExpectedRelease> {
    let path = inputs.quota.path(queue);
    let mut shared: Hashed<&QueueName, usize> = Hashed::default();
    let mut levels_of = |key: &JobKey| {
        let (of, _) = inputs.jobs.charge_of(key)?;
        let is_shared = |above: &&QueueName| inputs.quota.is_within(of, above);
        let count = || path.iter().take_while(is_shared).count();
        Some(*shared.entry(of).or_insert_with(count))
    };
    let mut releases = Vec::new();
    for reserved in nodes {
        let known = inputs.capacity.cluster(&reserved.cluster);
        let Some(node) = known.and_then(|known| known.nodes().get(&reserved.node)) else {
            continue;
        };
        let mut shortfall = ResourceTotals::default();
        for (name, amount) in reserved.resources.iter() {
            let lacks = i128::from(amount.0) - inputs.capacity.free_of(node, name).max(0);
            shortfall.add_amount(name, lacks.max(0));
        }
        if shortfall.is_empty() {
            continue;
        }
        let on_it = jobs_on(inputs, &reserved.cluster, &reserved.node);
        let on_it = on_it.into_iter();
        let on_it: Vec<_> = on_it
            .map(|(key, amount)| (levels_of(key).unwrap_or(0), amount))
            .collect();
        for (level, above) in path.iter().enumerate() {
            let mut inside = ResourceTotals::default();
            let mut outside = ResourceTotals::default();
            for (levels, amount) in &on_it {
                let within = level < *levels;
                let sum = if within { &mut inside } else { &mut outside };
                sum.add_totals(amount, 1);
            }
            let mut sure = ResourceTotals::default();
            for (name, lacks) in shortfall.iter() {
                let least = (lacks - outside.get(name).max(0)).min(inside.get(name));
                sure.add_amount(name, least.max(0));
            }
            if !sure.is_empty() {
                releases.push(ExpectedRelease {
                    from: ReleaseSource::Node(reserved.node.clone()),
                    queue: above.clone(),
                    cluster: reserved.cluster.clone(),
                    class: reserved.class.clone(),
                    resources: sure.to_resources(),
                });
            }
        }
    }
    releases
}

/// The jobs that are expected to end by a time at which `has_come` still holds, in order.
pub(crate) fn ends_until<'a>(
    inputs: Inputs<'a>,
    has_come: impl Fn(Time) -> bool,
) -> impl Iterator<Item = &'a JobKey> {
    let ends = inputs.jobs.ends_after(inputs.now).take(ENDS);
    ends.take_while(move |(end, _)| has_come(*end))
        .map(|(_, key)| key)
}

/// Returns what the jobs that are expected to end by a start give back to each queue of the owner's path.
pub(crate) fn releases_until(
    inputs: Inputs<'_>,
    queue: &QueueName,
    start: Time,
) -> Vec<ExpectedRelease> {
    let path = inputs.quota.path(queue);
    let ends = ends_until(inputs, |end| end <= start);
    ends.flat_map(|key| given_back_by(inputs, key, &path))
        .collect()
}

/// Returns what the end of a job gives back to each queue of a path.
fn given_back_by<'a>(
    inputs: Inputs<'a>,
    key: &'a JobKey,
    path: &'a [QueueName],
) -> impl Iterator<Item = ExpectedRelease> + 'a {
    let charge = inputs.jobs.charge_of(key).into_iter();
    charge.flat_map(move |(of, pools)| {
        let above = path
            .iter()
            .filter(move |above| inputs.quota.is_within(of, above));
        above.flat_map(move |above| {
            let pools = pools.iter();
            pools.map(move |((cluster, class), resources)| ExpectedRelease {
                from: ReleaseSource::Job(key.clone()),
                queue: above.clone(),
                cluster: cluster.clone(),
                class: class.clone(),
                resources: resources.clone(),
            })
        })
    })
}

/// When enough of a short bound will be free by the expected ends, and what those ends give back to
/// each queue of the owner's path. That much headroom is not reserved until then: a job that leaves
/// the rest does not delay the owner.
pub(crate) fn headroom_from(
    inputs: Inputs<'_>,
    queue: &QueueName,
    short: &Shortfall,
) -> (Option<Time>, Vec<ExpectedRelease>) {
    let path = inputs.quota.path(queue);
    let mut shortfall = short.excess() - short.detail.withheld;
    let mut overlay = Overlay::default();
    let mut releases = Vec::new();
    let mut start = None;
    for (end, key) in inputs.jobs.ends_after(inputs.now).take(ENDS) {
        if start.is_some_and(|start| start < end) {
            break;
        }
        let job = inputs.jobs.get(key);
        let charge = job.and_then(|job| job.derived.has.charge.as_ref());
        let Some((of, pools)) = charge else {
            continue;
        };
        releases.extend(given_back_by(inputs, key, &path));
        if inputs.quota.is_within(of, &short.queue) {
            shortfall = if short.detail.idle > 0 {
                // What a queue gives back of its guarantee stays withheld for it.
                inputs.quota.assume(&mut overlay, of, pools, -1);
                inputs.quota.still_short(queue, short, &overlay)
            } else {
                shortfall - charged_towards(pools, short)
            };
        }
        if shortfall <= 0 {
            // Whatever else ends at that moment is free then, too.
            start = Some(end);
        }
    }
    if start.is_none() {
        releases.clear();
    }
    (start, releases)
}

/// Returns true if a start for which headroom is short has changed since the expected ends of these jobs have moved: it
/// counted on one of them, or it would count on one of them now, or one is on nodes that are reserved besides.
pub(crate) fn is_moved_by(
    inputs: Inputs<'_>,
    kept: &Reservation,
    moved: &BTreeSet<JobKey>,
) -> bool {
    let mut counted = kept.releases.iter().filter_map(|ends| match &ends.from {
        ReleaseSource::Job(key) => Some(key),
        ReleaseSource::Node(_) => None,
    });
    let counts = |key: &JobKey| {
        let end = inputs.jobs.get(key)?.derived.has.expected_end?;
        Some(kept.start.is_none_or(|start| end <= start))
    };
    let is_on = |node: &ReservedNode| {
        let on_it = jobs_on(inputs, &node.cluster, &node.node);
        on_it.keys().any(|key| moved.contains(key))
    };
    counted.any(|key| moved.contains(key))
        || moved.iter().any(|key| counts(key) == Some(true))
        || kept.nodes.iter().any(is_on)
}

/// True if an owner that waits for ends would count on `end`, that of a job which was just admitted: it is in time, and
/// more of `queue` is withheld for the owner than the ends that it knows give back.
pub(crate) fn would_count_on(
    inputs: Inputs<'_>,
    kept: &Reservation,
    end: Option<Time>,
    queue: &QueueName,
) -> bool {
    let in_time = end.is_some_and(|end| kept.start.is_none_or(|start| end <= start));
    if !in_time || !(kept.lacked_headroom() || kept.counts_on_ends()) {
        return false;
    }
    !not_given_back(&kept.charge, expected_on(inputs, kept, queue)).is_empty()
}

/// How much of a charge counts towards the bound.
pub(crate) fn charged_towards(pools: &Pools, short: &Shortfall) -> i128 {
    let counted = pools
        .iter()
        .filter(|((cluster, class), _)| short.counts(cluster, class));
    counted
        .map(|(_, charge)| i128::from(charge.amount_of(&short.resource).0))
        .sum()
}
