//! The pending jobs of a queue in order, and the place of each.
//!
//! A sorted sequence in chunks: insert, remove and position cost the square root of the number of
//! jobs, where an ordered set would have to count.

use crate::api::job::QueueOrder;

const CHUNK: usize = 512;

/// Ranks in order; no chunk is empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct PositionIndex(Vec<Vec<QueueOrder>>);

impl PositionIndex {
    /// Adds `rank`, which is not there yet.
    pub(crate) fn insert(&mut self, rank: QueueOrder) {
        let index = self.chunk_of(&rank).min(self.0.len().saturating_sub(1));
        let Some(chunk) = self.0.get_mut(index) else {
            self.0.push(vec![rank]);
            return;
        };
        if let Err(at) = chunk.binary_search(&rank) {
            chunk.insert(at, rank);
        }
        if chunk.len() > 2 * CHUNK {
            let rest = chunk.split_off(CHUNK);
            // What is queued comes last most often: this one will hardly grow again.
            chunk.shrink_to_fit();
            self.0.insert(index + 1, rest);
        }
    }

    /// Takes `rank` out.
    pub(crate) fn remove(&mut self, rank: &QueueOrder) {
        let index = self.chunk_of(rank);
        if let Some(chunk) = self.0.get_mut(index)
            && let Ok(at) = chunk.binary_search(rank)
        {
            chunk.remove(at);
            if chunk.is_empty() {
                self.0.remove(index);
            }
        }
    }

    /// Place of `rank`, 1 being the first.
    pub(crate) fn position(&self, rank: &QueueOrder) -> Option<usize> {
        let index = self.chunk_of(rank);
        let within = self.0.get(index)?.binary_search(rank).ok()?;
        Some(self.0[..index].iter().map(Vec::len).sum::<usize>() + within + 1)
    }

    /// How many of the first satisfy a condition that holds for none after one for which it does not.
    pub(crate) fn count_while(&self, holds: impl Fn(&QueueOrder) -> bool) -> usize {
        let whole = |chunk: &Vec<QueueOrder>| chunk.last().is_some_and(&holds);
        let chunks = self.0.partition_point(whole);
        let rest = self.0.get(chunks);
        let rest = rest.map_or(0, |chunk| chunk.partition_point(&holds));
        self.0[..chunks].iter().map(Vec::len).sum::<usize>() + rest
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueueOrder> {
        self.0.iter().flatten()
    }

    /// Those after `rank`, which need not be there, in order.
    pub(crate) fn after(&self, rank: &QueueOrder) -> impl Iterator<Item = &QueueOrder> {
        let rest = self.0.get(self.chunk_of(rank)..);
        let mut rest = rest.unwrap_or_default().iter();
        let first = rest.next().map_or(&[][..], |chunk| {
            &chunk[chunk.partition_point(|other| other <= rank)..]
        });
        first.iter().chain(rest.flatten())
    }

    pub(crate) fn first(&self) -> Option<&QueueOrder> {
        self.0.first()?.first()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The chunk that holds `rank` or would, one past the last where it is beyond all.
    fn chunk_of(&self, rank: &QueueOrder) -> usize {
        self.0
            .partition_point(|chunk| chunk.last().is_some_and(|last| last < rank))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::api::job::UserId;
    use facts::{JobKey, Time};
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BTreeSet;

    fn rank(number: i64) -> QueueOrder {
        QueueOrder {
            priority: Reverse(0),
            at: Time(number),
            key: JobKey::new("ns", "job"),
            user: UserId::NONE,
        }
    }

    proptest! {
        #[test]
        fn agree_with_an_ordered_set(
            numbers in proptest::collection::vec(0..3000_i64, 1..4000),
            gone in proptest::collection::vec(0..3000_i64, 0..2000),
        ) {
            let (mut ranks, mut set) = (PositionIndex::default(), BTreeSet::new());
            for number in numbers {
                ranks.insert(rank(number));
                set.insert(rank(number));
            }
            for number in gone {
                ranks.remove(&rank(number));
                set.remove(&rank(number));
            }
            prop_assert!(ranks.iter().eq(set.iter()));
            prop_assert_eq!(ranks.first(), set.first());
            prop_assert_eq!(ranks.is_empty(), set.is_empty());
            for (index, rank) in set.iter().enumerate().step_by(97) {
                prop_assert_eq!(ranks.count_while(|other| other < rank), index);
                prop_assert_eq!(ranks.position(rank), Some(index + 1));
            }
        }
    }
}
