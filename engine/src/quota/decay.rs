//! What a queue held in the past, where its policy counts that (`fairShare.usageHalfLife`).
//!
//! The average of what it held over everything, each moment counting half as much as one a
//! half-life later: `average += (held − average) × (1 − 2^(−t/half))` over a time `t` in which
//! it held `preemptible_index`. Kept in 1/65,536 of a base unit and moved on whenever a charge changes; while
//! the average is above what is held its place in the order is looked at again every 64th of
//! the half-life, at least a second apart.

use crate::amounts::resources::{ResourceName, Resources};
use crate::amounts::tally::clamp;
use crate::api::ids::{QueueName, Time};
use crate::quota::measure::Sums;
use crate::quota::queues::{QueueId, QueueNode, Queues};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const FRACTION_BITS: u32 = 16;
const STEPS: i64 = 64;
const LEAST_STEP_MS: i64 = 1_000;

/// `2^(−n/16)` in 1/2^32.
const POWERS: [i128; 17] = [
    4_294_967_296,
    4_112_874_773,
    3_938_502_376,
    3_771_522_796,
    3_611_622_603,
    3_458_501_653,
    3_311_872_529,
    3_171_459_999,
    3_037_000_500,
    2_908_241_642,
    2_784_941_738,
    2_666_869_345,
    2_553_802_834,
    2_445_529_972,
    2_341_847_524,
    2_242_560_872,
    2_147_483_648,
];

/// What a queue held on average, the nearer past counting more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DecayedUsage {
    /// In 1/65,536 of a base unit.
    average: Sums,
    /// Up to when.
    at: Time,
    /// When the place of its queue is to be looked at again.
    due: Option<Time>,
}

/// [`DecayedUsage`] for a snapshot: amounts as text, since they need more than 64 bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PastSnapshot {
    queue: QueueName,
    average: BTreeMap<ResourceName, String>,
    at: Time,
}

impl DecayedUsage {
    fn advance(&mut self, now: Time, half_life: i64, held: &Sums) {
        let elapsed = now.millis_since(self.at);
        if elapsed == 0 {
            return;
        }
        let keep = halved(elapsed, half_life);
        let mut next = Sums::default();
        next.add_all(held, 1 << FRACTION_BITS);
        let mut apart = self.average.clone();
        apart.add_all(&next, -1);
        for (id, apart) in apart.iter() {
            next.add(id, (apart * keep) >> 32);
        }
        self.average = next;
        self.at = now;
    }

    /// Whether it counts for more than what is held.
    fn fades(&self, held: &Sums) -> bool {
        let mut average = self.average.iter();
        average.any(|(id, average)| whole(average) > held.get(id))
    }

    /// What counts as held: now, or on average if that was more.
    pub(crate) fn counted(&self, held: &Sums) -> Sums {
        let mut counted = held.clone();
        for (id, average) in self.average.iter() {
            counted.set(id, held.get(id).max(whole(average)));
        }
        counted
    }
}

/// An average in base units, to the nearest.
fn whole(average: i128) -> i128 {
    (average + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS
}

/// `2^(−elapsed/half_life)` in 1/2^32, between sixteenths in a straight line.
fn halved(elapsed: i64, half_life: i64) -> i128 {
    let half_life = half_life.max(1);
    let whole = elapsed / half_life;
    if whole >= 32 {
        return 0;
    }
    let rest = i128::from(elapsed % half_life) * 16;
    let half_life = i128::from(half_life);
    let sixteenth = usize::try_from(rest / half_life).unwrap_or(0).min(15);
    let (from, to) = (POWERS[sixteenth], POWERS[sixteenth + 1]);
    (from - (from - to) * (rest % half_life) / half_life) >> whole
}

impl QueueNode {
    fn half_life(&self) -> Option<i64> {
        let fair_share = self.policy.as_ref()?.fair_share;
        fair_share
            .usage_half_life_ms
            .map(|half_life| half_life.max(1))
    }

    /// What it holds over everything, or held on average if that was more.
    pub(crate) fn counted(&self) -> std::borrow::Cow<'_, Sums> {
        let held = &self.overall().charged;
        match &self.past {
            Some(past) => std::borrow::Cow::Owned(past.counted(held)),
            None => std::borrow::Cow::Borrowed(held),
        }
    }
}

impl Queues {
    /// Time went on. Those whose past has faded are ranked anew.
    pub(crate) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some((at, id)) = self.fading.first().copied()
            && at <= self.now
        {
            self.fading.remove(&(at, id));
            self.keep_past_of(id);
            self.watch_past_of(id);
            self.unranked.insert(id);
        }
    }

    /// What a queue and those above it hold is about to change.
    pub(crate) fn keep_past(&mut self, id: QueueId) {
        let mut at = Some(id);
        while let Some(id) = at {
            self.keep_past_of(id);
            at = self.node(id).parent;
        }
    }

    /// What a queue and those above it hold has changed.
    pub(crate) fn watch_past(&mut self, id: QueueId) {
        let mut at = Some(id);
        while let Some(id) = at {
            self.watch_past_of(id);
            at = self.node(id).parent;
        }
    }

    /// Counts what the queue held up to now, before that changes.
    pub(crate) fn keep_past_of(&mut self, id: QueueId) {
        let now = self.now;
        let node = self.node_mut(id);
        let Some(half_life) = node.half_life() else {
            return;
        };
        let Some(mut past) = node.past.take() else {
            return;
        };
        past.advance(now, half_life, &node.overall().charged);
        node.past = Some(past);
    }

    /// The policy may ask for the past now, or no longer.
    pub(crate) fn refresh_past(&mut self, id: QueueId) {
        let now = self.now;
        let node = self.node_mut(id);
        if node.half_life().is_none() {
            let due = node.past.take().and_then(|past| past.due);
            if let Some(due) = due {
                self.fading.remove(&(due, id));
            }
            return;
        }
        node.past.get_or_insert_with(|| DecayedUsage {
            average: Sums::default(),
            at: now,
            due: None,
        });
        self.watch_past_of(id);
    }

    /// When the place of a queue in the order is to be looked at again, by its state alone: to
    /// be asked after all that changes what it holds.
    pub(crate) fn watch_past_of(&mut self, id: QueueId) {
        let Some(node) = self.slots[id.index()].as_mut() else {
            return;
        };
        let held = &node.overall().charged;
        let fades = node.past.as_ref().is_some_and(|past| past.fades(held));
        let half_life = node.half_life();
        let (Some(past), Some(half_life)) = (&mut node.past, half_life) else {
            return;
        };
        if let Some(due) = past.due.take() {
            self.fading.remove(&(due, id));
        }
        if fades {
            let due = past.at.after((half_life / STEPS).max(LEAST_STEP_MS));
            past.due = Some(due);
            self.fading.insert((due, id));
        }
    }

    /// Device-hours in thousandths, decayed: the integral of what it held, each moment
    /// weighed as in the average, which is the average times `half-life / ln 2`.
    pub(crate) fn decayed_usage(&self, node: &QueueNode) -> Option<Resources> {
        let half_life = i128::from(node.half_life()?);
        let mut past = node.past.clone()?;
        past.advance(self.now, node.half_life()?, &node.overall().charged);
        let devices = past
            .average
            .iter()
            .map(|(id, average)| (self.units.name(id), average))
            .filter(|(name, average)| name.is_device() && *average > 0);
        let hours = |average: i128| {
            // 1 / ln 2, in millionths.
            let millis = (average * half_life / 1_000_000) * 1_442_695;
            (millis * 1_000 / 3_600_000) >> FRACTION_BITS
        };
        Some(
            devices
                .map(|(name, average)| (name.clone(), clamp(hours(average))))
                .collect(),
        )
    }

    pub(crate) fn pasts(&self) -> Vec<PastSnapshot> {
        let kept = self.iter().filter_map(|(name, node)| {
            let past = node.past.as_ref()?;
            let average = past.average.iter();
            Some(PastSnapshot {
                queue: name.clone(),
                average: average
                    .map(|(id, amount)| (self.units.name(id).clone(), amount.to_string()))
                    .collect(),
                at: past.at,
            })
        });
        kept.collect()
    }

    pub(crate) fn restore_past(&mut self, snapshot: PastSnapshot) {
        let Some(id) = self.id(&snapshot.queue) else {
            return;
        };
        let mut average = Sums::default();
        for (name, amount) in &snapshot.average {
            let resource = self.units.intern(name);
            average.set(resource, amount.parse().unwrap_or_default());
        }
        let half_life = self.node(id).half_life();
        let before = self.node(id).past.as_ref().and_then(|past| past.due);
        if let Some(due) = before {
            self.fading.remove(&(due, id));
        }
        self.node_mut(id).past = half_life.map(|_| DecayedUsage {
            average,
            at: snapshot.at,
            due: None,
        });
        self.watch_past_of(id);
        self.unranked.insert(id);
    }

    /// Queues that will be looked at again though nothing of their past fades, or will not be
    /// though something does.
    pub(crate) fn pasts_not_watched(&self) -> Vec<String> {
        let watched =
            |id: QueueId, past: &DecayedUsage| past.due.map(|due| self.fading.contains(&(due, id)));
        let wrong = self.iter().filter_map(|(name, node)| {
            let past = node.past.as_ref()?;
            let watched = watched(self.id(name)?, past);
            let should = past.fades(&node.overall().charged).then_some(true);
            (watched != should).then(|| format!("queue {name}: its past is watched: {watched:?}"))
        });
        wrong.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::api::facts::{
        Backfill, FairShare, Limits, PlacementWeights, PolicyFact, Preemption, QueueOrdering,
    };
    use crate::api::ids::{ClusterName, PoolClass};
    use crate::quota::measure::Units;
    use crate::quota::queues::Pools;

    fn counting_the_past(queue: &QueueName, half_life: i64) -> PolicyFact {
        PolicyFact {
            queue: queue.clone(),
            pools: Vec::new(),
            ordering: QueueOrdering::default(),
            backfill: Backfill::default(),
            fair_share: FairShare {
                weight: None,
                usage_half_life_ms: Some(half_life),
            },
            preemption: Preemption::default(),
            limits: Limits::default(),
            max_clusters: None,
            weights: PlacementWeights::default(),
            preferred_clusters: Vec::new(),
            start_deadline_ms: 1,
            invalid: None,
        }
    }

    #[test]
    fn a_queue_is_watched_from_when_it_gives_something_back_until_that_has_faded() {
        const HALF: i64 = 640_000;
        let name = QueueName::from("q");
        let pool = (ClusterName::from("a"), PoolClass::from("gpu"));
        let four = Resources::parse([("nvidia.com/gpu", "4")]).unwrap();
        let charge = Pools::from([(pool, four)]);
        let mut queues = Queues::default();
        queues.set_policy(&name, Some(counting_the_past(&name, HALF)));
        queues.charge(&name, &charge, 1);
        queues.advance(Time(HALF));
        assert!(queues.fading.is_empty());
        queues.charge(&name, &charge, -1);
        let mut looks = 0;
        while let Some((at, _)) = queues.fading.first().copied() {
            assert_eq!(queues.pasts_not_watched(), Vec::<String>::new());
            looks += 1;
            queues.advance(at);
        }
        // Two on average, which is less than a half after two half-lives: that counts as none.
        assert!((128..140).contains(&looks), "{looks}");
        queues.charge(&name, &charge, 1);
        queues.advance(Time(100 * HALF));
        queues.charge(&name, &charge, -1);
        queues.fading.clear();
        assert_eq!(queues.pasts_not_watched().len(), 1);
    }

    #[test]
    fn what_is_held_as_it_was_on_average_does_not_fade() {
        const HALF: i64 = 3_600_000;
        let gpu = Units::default().intern(&ResourceName::new("nvidia.com/gpu"));
        let mut held = Sums::default();
        held.set(gpu, 4);
        let mut past = DecayedUsage::default();
        // It never held more, then for long the same.
        assert!(!past.fades(&held));
        past.advance(Time(40 * HALF), HALF, &held);
        assert!(!past.fades(&held));
        held.set(gpu, 3);
        assert!(past.fades(&held));
        past.advance(Time(80 * HALF), HALF, &held);
        assert!(!past.fades(&held));
    }
}
