//! Waiters by what they wait for: the one index through which anything is woken for a condition.
//!
//! A waiter keeps its conditions, and is listed here under each of them. Classes of pending jobs wait
//! ([`queues`](super::queues)), and preemptors that searched for victims ([`backoff`](super::backoff)).

use super::inadmissible::{QueueNeed, RequeueCondition};
use facts::{PoolClass, QueueName, ResourceName};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::{Bound, RangeInclusive};

/// Waiters by what they wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingList<S>(BTreeMap<RequeueCondition, BTreeSet<S>>);

impl<S> Default for WaitingList<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: Ord + Clone> WaitingList<S> {
    /// Lists a waiter under a condition.
    pub(super) fn add(&mut self, waiter: &S, condition: &RequeueCondition) {
        match self.0.get_mut(condition) {
            Some(waiting) => waiting.insert(waiter.clone()),
            None => {
                let waiting = self.0.entry(condition.clone()).or_default();
                waiting.insert(waiter.clone())
            }
        };
    }

    /// Returns true if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a waiter off under a condition.
    pub(super) fn remove(&mut self, waiter: &S, condition: &RequeueCondition) {
        if let Some(waiting) = self.0.get_mut(condition) {
            waiting.remove(waiter);
            if waiting.is_empty() {
                self.0.remove(condition);
            }
        }
    }

    /// All that wait for a condition, which are not listed under it from now on.
    pub(super) fn take(&mut self, condition: &RequeueCondition) -> BTreeSet<S> {
        self.0.remove(condition).unwrap_or_default()
    }

    /// The first that waits for a condition, which is not listed under it from now on.
    pub(super) fn take_first(&mut self, condition: &RequeueCondition) -> Option<S> {
        let waiting = self.0.get_mut(condition)?;
        let first = waiting.pop_first();
        if waiting.is_empty() {
            self.0.remove(condition);
        }
        first
    }

    /// All that wait for a condition.
    pub(super) fn of(&self, condition: &RequeueCondition) -> impl Iterator<Item = &S> {
        self.0.get(condition).into_iter().flatten()
    }

    /// All that wait for conditions in a range, in order.
    pub(super) fn within(
        &self,
        range: RangeInclusive<RequeueCondition>,
    ) -> impl Iterator<Item = (&RequeueCondition, &S)> {
        let conditions = self.0.range(range);
        conditions.flat_map(|(condition, all)| all.iter().map(move |waiter| (condition, waiter)))
    }

    /// The conditions of a kind that are met, now that a queue has so much: resource by resource, of each
    /// up to what it has.
    pub(super) fn met(
        &self,
        kind: fn(QueueNeed) -> RequeueCondition,
        queue: &QueueName,
        has: impl Fn(Option<&PoolClass>, &ResourceName) -> i128,
    ) -> Vec<RequeueCondition> {
        self.by_resource(kind, queue, has, |least, has| {
            (least.needs <= has).then_some((Included(least.needs), Included(has)))
        })
    }

    /// The conditions of a kind that are not met, now that a queue has only so much.
    pub(super) fn unmet(
        &self,
        kind: fn(QueueNeed) -> RequeueCondition,
        queue: &QueueName,
        has: impl Fn(Option<&PoolClass>, &ResourceName) -> i128,
    ) -> Vec<RequeueCondition> {
        self.by_resource(kind, queue, has, |_, has| {
            (has < i128::MAX).then_some((Excluded(has), Included(i128::MAX)))
        })
    }

    /// The conditions of a kind and a queue whose needs are within bounds, which `within` returns for the
    /// least need of a resource and what the queue has of it.
    fn by_resource(
        &self,
        kind: fn(QueueNeed) -> RequeueCondition,
        queue: &QueueName,
        has: impl Fn(Option<&PoolClass>, &ResourceName) -> i128,
        within: impl Fn(&QueueNeed, i128) -> Option<(Bound<i128>, Bound<i128>)>,
    ) -> Vec<RequeueCondition> {
        let mut found = Vec::new();
        let mut from = kind(QueueNeed {
            queue: queue.clone(),
            class: None,
            resource: ResourceName::new(""),
            needs: i128::MIN,
        });
        while let Some((next, _)) = self.0.range((Excluded(&from), Unbounded)).next() {
            let same_kind = discriminant(next) == discriminant(&from);
            let Some(least) = next.need().filter(|need| same_kind && need.queue == *queue) else {
                break;
            };
            let with = |needs| {
                let least = least.clone();
                kind(QueueNeed { needs, ..least })
            };
            let has = has(least.class.as_ref(), &least.resource);
            if let Some((first, last)) = within(least, has) {
                let range = self.0.range((first.map(with), last.map(with)));
                found.extend(range.map(|(condition, _)| condition.clone()));
            }
            from = with(i128::MAX);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_is_met_by_what_its_queue_has_of_its_resource() {
        let need = |queue: &str, class: Option<&str>, resource: &str, needs| QueueNeed {
            queue: QueueName::from(queue),
            class: class.map(PoolClass::from),
            resource: ResourceName::new(resource),
            needs,
        };
        let mut list = WaitingList::default();
        let headroom = |need| RequeueCondition::Headroom(need);
        let conditions = [
            headroom(need("a", None, "cpu", 9)),
            headroom(need("b", None, "cpu", 2)),
            headroom(need("b", None, "cpu", 4)),
            headroom(need("b", None, "cpu", 5)),
            headroom(need("b", None, "gpu", 1)),
            headroom(need("b", Some("big"), "cpu", 3)),
            headroom(need("c", None, "cpu", 1)),
            RequeueCondition::Entitlement(need("b", None, "cpu", 1)),
        ];
        for (index, condition) in conditions.iter().enumerate() {
            list.add(&index, condition);
        }
        let has = |class: Option<&PoolClass>, resource: &ResourceName| match resource.as_str() {
            "cpu" if class.is_some() => 3,
            "cpu" => 4,
            _ => 0,
        };
        let met = |kind| list.met(kind, &QueueName::from("b"), has);
        let expected = [1, 2, 5].map(|index: usize| conditions[index].clone());
        assert_eq!(met(RequeueCondition::Headroom), expected);
        assert_eq!(met(RequeueCondition::Entitlement), conditions[7..]);
        let unmet = |kind| list.unmet(kind, &QueueName::from("b"), has);
        let expected = [3, 4].map(|index: usize| conditions[index].clone());
        assert_eq!(unmet(RequeueCondition::Headroom), expected);
        assert_eq!(unmet(RequeueCondition::Entitlement), []);
    }

    #[test]
    fn a_condition_is_forgotten_with_its_last_waiter() {
        let mut list = WaitingList::default();
        let (room, fleet) = (RequeueCondition::Room, RequeueCondition::Fleet);
        list.add(&1, &room);
        list.add(&2, &room);
        list.add(&2, &fleet);
        list.remove(&1, &room);
        assert_eq!(list.of(&room).collect::<Vec<_>>(), [&2]);
        assert_eq!(list.take(&fleet), BTreeSet::from([2]));
        list.remove(&2, &room);
        assert_eq!(list, WaitingList::default());
    }
}
