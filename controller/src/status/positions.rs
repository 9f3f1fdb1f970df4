//! Positions of pending jobs: when the order of a queue has changed, its first jobs show theirs again.
//!
//! ```text
//! the order of a queue changes ─► at most once in two seconds ─► its first ten jobs, and who was one of them
//! ```
//!
//! Only the first ten positions are exact ([`EXACT_POSITIONS`]): all others show an order of magnitude, and take
//! turns with their advice. So a queue of any length writes at most twenty statuses at a time. Pure.

use crds::podgroup::EXACT_POSITIONS;
use engine::{JobKey, QueueName, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Least milliseconds between two looks at one queue.
const EVERY_MS: i64 = 2_000;

/// The queues whose order has changed, and who shows an exact position.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    /// When each queue is looked at.
    due: BTreeMap<QueueName, Time>,
    /// When each queue was looked at last, and its first jobs then.
    shown: HashMap<QueueName, (Time, BTreeSet<JobKey>)>,
}

impl Positions {
    /// Notes that the order of a queue may have changed.
    pub(crate) fn moved(&mut self, queue: QueueName, now: Time) {
        let last = self.shown.get(&queue);
        let at = last.map_or(now, |(last, _)| last.after(EVERY_MS).max(now));
        self.due.entry(queue).or_insert(at);
    }

    /// Returns when the next queue is looked at, if one is.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.values().min().copied()
    }

    /// Returns the jobs that have to show their positions; `first` returns the first pending jobs of a queue.
    pub(crate) fn take_due(
        &mut self,
        now: Time,
        first: impl Fn(&QueueName, usize) -> BTreeSet<JobKey>,
    ) -> BTreeSet<JobKey> {
        let mut jobs = BTreeSet::new();
        let due = self.due.iter().filter(|(_, at)| **at <= now);
        let due: Vec<QueueName> = due.map(|(queue, _)| queue.clone()).collect();
        for queue in due {
            self.due.remove(&queue);
            let first = first(&queue, EXACT_POSITIONS);
            jobs.extend(first.iter().cloned());
            let before = match first.is_empty() {
                true => self.shown.remove(&queue),
                false => self.shown.insert(queue, (now, first)),
            };
            jobs.extend(before.into_iter().flat_map(|(_, before)| before));
        }
        jobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(positions: &mut Positions, now: i64, jobs: std::ops::Range<u32>) -> Vec<String> {
        let first = |_: &QueueName, most: usize| {
            let first = jobs.clone().take(most);
            first
                .map(|job| JobKey::new("team", &format!("w{job:02}")))
                .collect()
        };
        let taken = positions.take_due(Time(now), first);
        taken.iter().map(|job| job.name.to_string()).collect()
    }

    #[test]
    fn the_first_jobs_show_their_positions_when_the_order_changes_and_not_more_often() {
        let queue = || QueueName::new("q");
        let mut positions = Positions::default();
        assert_eq!(take(&mut positions, 0, 0..99), Vec::<String>::new());
        positions.moved(queue(), Time(0));
        assert_eq!(take(&mut positions, 0, 0..99).len(), EXACT_POSITIONS);
        // Many changes are one look, which is soon enough for who reads them.
        for at in 1..100 {
            positions.moved(queue(), Time(at));
        }
        assert_eq!(positions.next_due(), Some(Time(EVERY_MS)));
        let early = take(&mut positions, EVERY_MS - 1, 1..99);
        assert_eq!(early, Vec::<String>::new());
        // Who is no longer one of the first shows that, too.
        let taken = take(&mut positions, EVERY_MS, 1..99);
        assert_eq!((taken.len(), &*taken[0]), (EXACT_POSITIONS + 1, "w00"));
        positions.moved(queue(), Time(EVERY_MS * 9));
        let _ = take(&mut positions, EVERY_MS * 9, 0..0);
        assert!(positions.shown.is_empty() && positions.next_due().is_none());
    }
}
