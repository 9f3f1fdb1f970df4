//! Decayed usage of a queue, if its policy counts past usage (`fairShare.usageHalfLifeSeconds`).
//!
//! It is the average of the overall usage, in which a moment counts half as much as one a half-life
//! later: over a time `t` of constant usage, `average += (usage − average) × (1 − 2^(−t/half))`. It
//! is stored in 1/65,536 of a base unit and advanced whenever a charge changes. While the average is
//! above the current usage, the queue is ranked again every 64th of the half-life, but at most once
//! a second.

use crate::amounts::resource_ids::ResourceVec;
use crate::amounts::totals::clamp;
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::store::Quota;
use facts::{QueueName, ResourceName, Resources, Time};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

const FRACTION_BITS: u32 = 16;
const STEPS: i64 = 64;
const LEAST_STEP_MS: i64 = 1_000;

/// `2^(−n/16)` in units of 2^−32.
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

/// The decayed average usage of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DecayedUsage {
    /// In 1/65,536 of a base unit.
    average: ResourceVec,
    /// The end of the time that is averaged.
    at: Time,
}

/// [`DecayedUsage`] in a snapshot, with amounts as text, since they need more than 64 bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DecayedUsageSnapshot {
    queue: QueueName,
    average: BTreeMap<ResourceName, String>,
    at: Time,
}

impl DecayedUsage {
    /// No past usage, from a time on.
    pub(super) fn from(now: Time) -> Self {
        Self {
            average: ResourceVec::default(),
            at: now,
        }
    }

    pub(super) fn advance(&mut self, now: Time, half_life: i64, usage: &ResourceVec) {
        let elapsed = now.millis_since(self.at);
        if elapsed == 0 {
            return;
        }
        let keep = halved(elapsed, half_life);
        let mut next = ResourceVec::default();
        next.add_all(usage, 1 << FRACTION_BITS);
        let mut difference = self.average.clone();
        difference.add_all(&next, -1);
        for (id, difference) in difference.iter() {
            next.add(id, (difference * keep) >> 32);
        }
        self.average = next;
        self.at = now;
    }

    /// True if the average is above the current usage.
    pub(super) fn decays(&self, usage: &ResourceVec) -> bool {
        let mut average = self.average.iter();
        average.any(|(id, average)| whole(average) > usage.get(id))
    }

    /// True if nothing of it is left.
    pub(super) fn is_nothing(&self) -> bool {
        self.average.iter().all(|(_, average)| whole(average) == 0)
    }

    /// The larger of the current usage and the average.
    pub(super) fn counted(&self, usage: &ResourceVec) -> ResourceVec {
        let mut counted = usage.clone();
        for (id, average) in self.average.iter() {
            counted.set(id, usage.get(id).max(whole(average)));
        }
        counted
    }
}

/// An average in base units, rounded to the nearest.
fn whole(average: i128) -> i128 {
    (average + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS
}

/// `2^(−elapsed/half_life)` in units of 2^−32, interpolated linearly between sixteenths.
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
    pub(super) fn half_life(&self) -> Option<i64> {
        let fair_share = self.policy.as_ref()?.fair_share;
        fair_share
            .usage_half_life_ms
            .map(|half_life| half_life.max(1))
    }

    /// The larger of its overall usage and its decayed usage, if it has one.
    pub(super) fn counted_usage(&self) -> Cow<'_, ResourceVec> {
        let usage = &self.overall().charged;
        match &self.decayed {
            Some(decayed) => Cow::Owned(decayed.counted(usage)),
            None => Cow::Borrowed(usage),
        }
    }
}

impl Quota {
    /// Advances the clock, and marks queues that are due for ranking.
    pub(crate) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(id) = self.decay_due.take_due(self.now) {
            self.decay_one(id);
            self.decay_users(id);
            self.schedule_decay_of(id);
            self.unranked.insert(id);
        }
    }

    /// Advances the decayed usage of a queue and those above it, before their usage changes.
    pub(super) fn decay(&mut self, id: QueueId) {
        for at in self.path_of(id) {
            self.decay_one(at);
        }
    }

    /// Schedules the next ranking of a queue and those above it, after their usage has changed.
    pub(super) fn schedule_decay(&mut self, id: QueueId) {
        for at in self.path_of(id) {
            self.schedule_decay_of(at);
        }
    }

    /// Advances the decayed usage of one queue.
    pub(super) fn decay_one(&mut self, id: QueueId) {
        let now = self.now;
        let node = self.node_mut(id);
        let Some(half_life) = node.half_life() else {
            return;
        };
        let Some(mut past) = node.decayed.take() else {
            return;
        };
        past.advance(now, half_life, &node.overall().charged);
        node.decayed = Some(past);
    }

    /// Starts or stops to count past usage after a change of the policy.
    pub(super) fn sync_decay(&mut self, id: QueueId) {
        let now = self.now;
        self.sync_users(id);
        let node = self.node_mut(id);
        if node.half_life().is_none() {
            node.decayed = None;
            self.decay_due.set(&id, None);
            return;
        }
        node.decayed.get_or_insert_with(|| DecayedUsage::from(now));
        self.schedule_decay_of(id);
    }

    /// Schedules the next ranking of one queue. Called after every change of its usage.
    pub(super) fn schedule_decay_of(&mut self, id: QueueId) {
        let Some(node) = self.slots[id.index()].as_ref() else {
            return;
        };
        let (Some(past), Some(half_life)) = (&node.decayed, node.half_life()) else {
            return;
        };
        let due = past.at.after((half_life / STEPS).max(LEAST_STEP_MS));
        let decays = past.decays(&node.overall().charged) || node.users_decay();
        self.decay_due.set(&id, decays.then_some(due));
    }

    /// The decayed device-hours of a queue in thousandths: the integral of its usage with the
    /// weights of the average, which is the average times `half-life / ln 2`.
    pub(super) fn decayed_usage(&self, node: &QueueNode) -> Option<Resources> {
        let half_life = i128::from(node.half_life()?);
        let mut past = node.decayed.clone()?;
        past.advance(self.now, node.half_life()?, &node.overall().charged);
        let devices = past
            .average
            .iter()
            .map(|(id, average)| (self.resource_ids.name(id), average))
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

    /// The decayed usage of all queues that count it, for a snapshot.
    pub(crate) fn decayed_usages(&self) -> Vec<DecayedUsageSnapshot> {
        let usages = self
            .iter()
            .filter_map(|(name, node)| Some(self.decayed_snapshot(name, node.decayed.as_ref()?)));
        usages.collect()
    }

    /// A decayed usage in a queue, for a snapshot.
    pub(super) fn decayed_snapshot(
        &self,
        queue: &QueueName,
        past: &DecayedUsage,
    ) -> DecayedUsageSnapshot {
        let average = past.average.iter();
        DecayedUsageSnapshot {
            queue: queue.clone(),
            average: average
                .map(|(id, amount)| (self.resource_ids.name(id).clone(), amount.to_string()))
                .collect(),
            at: past.at,
        }
    }

    /// The decayed usage of a snapshot, with its queue if that counts past usage.
    pub(super) fn decayed_of(
        &mut self,
        snapshot: &DecayedUsageSnapshot,
    ) -> Option<(QueueId, DecayedUsage)> {
        let id = self.id(&snapshot.queue)?;
        self.node(id).half_life()?;
        let mut average = ResourceVec::default();
        for (name, amount) in &snapshot.average {
            let resource = self.resource_ids.intern(name);
            average.set(resource, amount.parse().unwrap_or_default());
        }
        let at = snapshot.at;
        Some((id, DecayedUsage { average, at }))
    }

    /// Restores the decayed usage of a queue, after its objects and charges.
    pub(crate) fn restore_decayed(&mut self, snapshot: &DecayedUsageSnapshot) {
        let Some((id, past)) = self.decayed_of(snapshot) else {
            return;
        };
        self.node_mut(id).decayed = Some(past);
        self.schedule_decay_of(id);
        self.unranked.insert(id);
    }

    /// Queues that are scheduled for ranking though their usage does not decay, or the reverse.
    pub(crate) fn audit_decay(&self) -> Vec<String> {
        let wrong = self.iter().filter_map(|(name, node)| {
            let scheduled = self.decay_due.of(&self.id(name)?).is_some();
            let decayed = node.decayed.as_ref();
            let decays = |past: &DecayedUsage| past.decays(&node.overall().charged);
            let should = decayed.is_some_and(|past| decays(past) || node.users_decay());
            (scheduled != should)
                .then(|| format!("queue {name}: its decay is scheduled: {scheduled}"))
        });
        wrong.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::amounts::resource_ids::ResourceIds;
    use crate::api::charge::Pools;
    use crate::quota::testing::{ann, policy};
    use crate::timers::Timers;
    use facts::{ClusterName, FairShare, PoolClass};

    #[test]
    fn a_queue_is_scheduled_from_a_drop_of_its_usage_until_past_usage_has_decayed() {
        const HALF: i64 = 640_000;
        let name = QueueName::from("q");
        let pool = (ClusterName::from("a"), PoolClass::from("gpu"));
        let four = Resources::parse([("nvidia.com/gpu", "4")]).unwrap();
        let charge = Pools::from([(pool, four)]);
        let mut queues = Quota::default();
        let mut counting = policy(&name);
        counting.fair_share = FairShare {
            weight: None,
            usage_half_life_ms: Some(HALF),
            within: None,
        };
        queues.set_policy(&name, Some(counting));
        queues.charge(&name, ann(), &charge, 1);
        queues.advance(Time(HALF));
        assert_eq!(queues.decay_due.first(), None);
        queues.charge(&name, ann(), &charge, -1);
        let mut rankings = 0;
        while let Some(at) = queues.decay_due.first() {
            assert_eq!(queues.audit_decay(), Vec::<String>::new());
            rankings += 1;
            queues.advance(at);
        }
        // The average of two falls below a half, which counts as zero, within two half-lives.
        assert!((128..140).contains(&rankings), "{rankings}");
        queues.charge(&name, ann(), &charge, 1);
        queues.advance(Time(100 * HALF));
        queues.charge(&name, ann(), &charge, -1);
        queues.decay_due = Timers::default();
        assert_eq!(queues.audit_decay().len(), 1);
    }

    #[test]
    fn usage_decays_only_if_it_is_below_the_average() {
        const HALF: i64 = 3_600_000;
        let gpu = ResourceIds::default().intern(&ResourceName::new("nvidia.com/gpu"));
        let mut held = ResourceVec::default();
        held.set(gpu, 4);
        let mut past = DecayedUsage::default();
        // First the usage is above the average, later equal to it.
        assert!(!past.decays(&held));
        past.advance(Time(40 * HALF), HALF, &held);
        assert!(!past.decays(&held));
        held.set(gpu, 3);
        assert!(past.decays(&held));
        past.advance(Time(80 * HALF), HALF, &held);
        assert!(!past.decays(&held));
    }
}
