//! The queues that have to be asked for their head again.
//!
//! `cycle::next_head` searches for the next head; whatever else lets a job be admitted has to mark its
//! queue dirty or make its shape feasible.

use crate::amounts::hashed::Hashed;
use crate::quota::{Path, QueueId};
use std::collections::BTreeSet;

/// Which queues have to be asked for their head again.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadSelector {
    /// Queues whose head may be another job than when they last had none, each with those above it.
    /// If another queue gets the same id later, it is asked once too often.
    dirty: Hashed<QueueId, Path>,
    /// How many dirty queues are on each path.
    dirty_within: Hashed<QueueId, u32>,
    /// Queues that used less than they deserve when they were last ranked.
    unsatisfied: BTreeSet<QueueId>,
}

impl HeadSelector {
    /// A queue may have another head.
    pub(crate) fn mark_dirty(&mut self, queue: QueueId, path: Path) {
        self.note_none(queue);
        for id in &path {
            *self.dirty_within.entry(*id).or_default() += 1;
        }
        self.dirty.insert(queue, path);
    }

    /// A queue has no job to evaluate.
    pub(crate) fn note_none(&mut self, queue: QueueId) {
        for id in self.dirty.remove(&queue).into_iter().flatten() {
            if let Some(count) = self.dirty_within.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    self.dirty_within.remove(&id);
                }
            }
        }
    }

    /// Returns true if a queue may have another head.
    pub(crate) fn is_dirty(&self, queue: QueueId) -> bool {
        self.dirty.contains_key(&queue)
    }

    /// Returns true if a queue or one below it may have another head.
    pub(crate) fn is_dirty_within(&self, queue: QueueId) -> bool {
        self.dirty_within.contains_key(&queue)
    }

    /// Notes whether a queue uses less than it deserves. Returns whether that changed.
    pub(crate) fn note_unsatisfied(&mut self, queue: QueueId, unsatisfied: bool) -> bool {
        if unsatisfied {
            self.unsatisfied.insert(queue)
        } else {
            self.unsatisfied.remove(&queue)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::quota::{Quota, testing};
    use facts::QueueName;

    /// Two queues below the root, each with its path.
    fn queues() -> [(QueueId, Path); 2] {
        let mut quota = Quota::default();
        ["one", "two"].map(QueueName::from).map(|name| {
            quota.set_fact(&name, Some(testing::queue(&name, None)));
            let id = quota.id(&name).unwrap();
            (id, quota.path_of(id))
        })
    }

    #[test]
    fn a_queue_is_dirty_until_it_has_no_job_however_often_it_was_marked() {
        let [(one, path_of_one), (two, path_of_two)] = queues();
        let mut heads = HeadSelector::default();
        heads.mark_dirty(one, path_of_one.clone());
        heads.mark_dirty(one, path_of_one);
        heads.mark_dirty(two, path_of_two);
        let dirty = |heads: &HeadSelector| {
            [one, two, QueueId::ROOT].map(|id| [heads.is_dirty(id), heads.is_dirty_within(id)])
        };
        assert_eq!(dirty(&heads), [[true, true], [true, true], [false, true]]);
        heads.note_none(one);
        assert_eq!(dirty(&heads), [[false, false], [true, true], [false, true]]);
        heads.note_none(two);
        assert_eq!(dirty(&heads), [[false, false]; 3]);
    }

    #[test]
    fn that_a_queue_uses_less_than_it_deserves_or_does_not_is_new_once() {
        let [(one, _), (two, _)] = queues();
        let mut heads = HeadSelector::default();
        assert!(heads.note_unsatisfied(two, true));
        let changed =
            [false, true, true, false, false].map(|less| heads.note_unsatisfied(one, less));
        assert_eq!(changed, [false, true, false, true, false]);
    }
}
