//! What is remembered between two searches for the next head: which queues have to be asked again.
//!
//! `cycle::next_head` searches; whatever else lets a job be admitted has to mark its queue dirty or
//! make its shape feasible.

use crate::amounts::hashed::Hashed;
use crate::quota::{Path, QueueId};
use std::collections::BTreeSet;

/// Which queues have to be asked for their head again.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadSelector {
    /// Queues whose head may be another job than when they last had none.
    dirty: DirtyQueues,
    /// Queues that held less than they deserve when they were last ranked.
    unsatisfied: BTreeSet<QueueId>,
}

impl HeadSelector {
    /// A queue may have another head.
    pub(crate) fn mark_dirty(&mut self, queue: QueueId, path: Path) {
        self.dirty.insert(queue, path);
    }

    /// Whether a queue may have another head.
    pub(crate) fn is_dirty(&self, queue: QueueId) -> bool {
        self.dirty.contains(queue)
    }

    /// Whether a queue or one below it may have another head.
    pub(crate) fn is_dirty_within(&self, queue: QueueId) -> bool {
        self.dirty.are_below(queue)
    }

    /// A queue has no job to evaluate.
    pub(crate) fn note_none(&mut self, queue: QueueId) {
        self.dirty.remove(queue);
    }

    /// Notes whether a queue holds less than it deserves; whether that is news.
    pub(crate) fn note_unsatisfied(&mut self, queue: QueueId, unsatisfied: bool) -> bool {
        if unsatisfied {
            self.unsatisfied.insert(queue)
        } else {
            self.unsatisfied.remove(&queue)
        }
    }
}

/// Dirty queues, each with those above it, and how many below each are dirty. Where another queue gets
/// the same id later, it is asked once too often.
#[derive(Debug, Clone, Default)]
struct DirtyQueues {
    paths: Hashed<QueueId, Path>,
    below: Hashed<QueueId, u32>,
}

impl DirtyQueues {
    /// Whether the queue or one below it is dirty.
    fn are_below(&self, queue: QueueId) -> bool {
        self.below.contains_key(&queue)
    }

    fn contains(&self, queue: QueueId) -> bool {
        self.paths.contains_key(&queue)
    }

    fn insert(&mut self, queue: QueueId, path: Path) {
        self.remove(queue);
        for id in &path {
            *self.below.entry(*id).or_default() += 1;
        }
        self.paths.insert(queue, path);
    }

    fn remove(&mut self, queue: QueueId) {
        for id in self.paths.remove(&queue).into_iter().flatten() {
            if let Some(count) = self.below.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    self.below.remove(&id);
                }
            }
        }
    }
}
