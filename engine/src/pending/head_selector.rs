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

    /// Whether a queue may have another head.
    pub(crate) fn is_dirty(&self, queue: QueueId) -> bool {
        self.dirty.contains_key(&queue)
    }

    /// Whether a queue or one below it may have another head.
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
