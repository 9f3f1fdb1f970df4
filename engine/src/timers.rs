//! Timers by what they are for: at most one each, which can be set to another time or removed.

use facts::Time;
use foldhash::fast::FixedState;
use priority_queue::PriorityQueue;
use std::cmp::Reverse;
use std::hash::Hash;

/// Timers, the first on top. Of equal times the lesser key comes first, so the order does not depend on
/// the history.
#[derive(Debug, Clone)]
pub(crate) struct Timers<K: Hash + Eq + Ord>(PriorityQueue<K, Reverse<(Time, K)>, FixedState>);

impl<K: Hash + Eq + Ord> Default for Timers<K> {
    fn default() -> Self {
        Self(PriorityQueue::with_default_hasher())
    }
}

impl<K: Hash + Eq + Ord + Clone> Timers<K> {
    /// Sets, moves or removes the timer of a key. Returns whether it was another.
    pub(crate) fn set(&mut self, key: &K, at: Option<Time>) -> bool {
        if self.of(key) == at {
            return false;
        }
        let Some(at) = at else {
            self.0.remove(key);
            return true;
        };
        if !self.0.change_priority_by(key, |due| due.0.0 = at) {
            self.0.push(key.clone(), Reverse((at, key.clone())));
        }
        true
    }

    /// The time of a key's timer.
    pub(crate) fn of(&self, key: &K) -> Option<Time> {
        let Reverse((at, _)) = self.0.get_priority(key)?;
        Some(*at)
    }

    /// The first time.
    pub(crate) fn first(&self) -> Option<Time> {
        let (_, Reverse((at, _))) = self.0.peek()?;
        Some(*at)
    }

    /// Takes the first timer, if it is due at `now`.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<K> {
        let (key, _) = self.0.pop_if(|_, due| due.0.0 <= now)?;
        Some(key)
    }

    /// All that have a timer, in no order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_order_of_time_and_then_of_key() {
        let mut timers = Timers::default();
        for (key, at) in [(3, 5), (1, 5), (2, 5), (4, 1), (5, 9)] {
            assert!(timers.set(&key, Some(Time(at))));
        }
        // Later, earlier, as it was, and removed.
        assert!(timers.set(&4, Some(Time(6))));
        assert!(timers.set(&5, Some(Time(2))));
        assert!(!timers.set(&5, Some(Time(2))));
        assert!(timers.set(&1, None));
        assert!(!timers.set(&1, None));
        assert_eq!(timers.of(&4), Some(Time(6)));
        assert_eq!(timers.of(&1), None);
        assert_eq!(timers.first(), Some(Time(2)));
        assert_eq!(timers.take_due(Time(1)), None);
        let due = std::iter::from_fn(|| timers.take_due(Time(5)));
        assert_eq!(due.collect::<Vec<_>>(), [5, 2, 3]);
        assert_eq!(timers.keys().collect::<Vec<_>>(), [&4]);
    }
}
