//! Who is judged next, without asking every queue.
//!
//! The first that may be judged, of the queue that goes first, is found by asking queues in
//! order. A queue has to be asked only if its answer may be another than when it last had
//! nobody:
//! - something about its waiting jobs changed since (it was *stirred*), or something may be kept
//!   for one of them for which nothing could be;
//! - a shape that somebody in it has might find room again (a door opened);
//! - it stands before one of those whose reservations stop a shape: it may take what they keep;
//! - claims to reservations are others ([`crate::reservation::window`]): then who stands in front is asked once.
//!
//! So a round costs what may have changed, not the number of queues. Whatever else lets a job
//! go has to stir its queue or open its shape.

use crate::amounts::hashed::{Hashed, HashedSet};
use crate::quota::{Path, QueueId};
use std::collections::BTreeSet;

/// What is known of who has nobody to be judged.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadSelector {
    /// Queues that were stirred since they last had nobody.
    pub(crate) dirty: DirtyQueues,
    /// Openings and growths of nodes at which all who might find room were asked in vain.
    pub(crate) in_vain: Option<(u64, u64)>,
    /// Whether claims are others: who stands in front of each queue has to be asked.
    pub(crate) everybody: bool,
    /// Queues that were, and had nobody.
    pub(crate) answered: HashedSet<QueueId>,
    /// Queues that held less than they deserve when they were last ranked.
    pub(crate) unsatisfied: BTreeSet<QueueId>,
}

impl HeadSelector {
    /// Anybody's claim may be better now.
    pub(crate) fn ask_fronts(&mut self) {
        self.everybody = true;
        self.answered.clear();
    }

    /// A queue had nobody.
    pub(crate) fn note_nobody(&mut self, queue: QueueId) {
        self.dirty.remove(queue);
        if self.everybody {
            self.answered.insert(queue);
        }
    }

    /// Whether a queue had nobody when it was last asked, and nothing about it has changed since.
    pub(crate) fn has_answered(&self, queue: QueueId) -> bool {
        !self.dirty.contains(queue) && (!self.everybody || self.answered.contains(&queue))
    }
}

/// Queues that were stirred, each with those above it, and how many below each were. A number that
/// another queue gets later has that one asked once too often.
#[derive(Debug, Clone, Default)]
pub(crate) struct DirtyQueues {
    paths: Hashed<QueueId, Path>,
    below: Hashed<QueueId, u32>,
}

impl DirtyQueues {
    /// Whether the queue or one below it is dirty.
    pub(crate) fn are_below(&self, queue: QueueId) -> bool {
        self.below.contains_key(&queue)
    }

    pub(crate) fn contains(&self, queue: QueueId) -> bool {
        self.paths.contains_key(&queue)
    }

    pub(crate) fn insert(&mut self, queue: QueueId, path: Path) {
        self.remove(queue);
        for id in &path {
            *self.below.entry(*id).or_default() += 1;
        }
        self.paths.insert(queue, path);
    }

    pub(crate) fn remove(&mut self, queue: QueueId) {
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
