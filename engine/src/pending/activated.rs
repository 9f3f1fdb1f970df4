//! The active classes of a queue that were activated since the queue last had no candidate.
//!
//! They are named only while they are few. It is kept up at each activation, so it allocates nothing then.

use crate::pending::shapes::ShapeId;

/// The most classes that are named.
const MOST: usize = 64;

/// The activated classes of a queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Activated {
    /// In order; none where there are too many.
    few: Vec<ShapeId>,
    too_many: bool,
}

impl Activated {
    /// The classes, unless there are too many to name them.
    pub(super) fn named(&self) -> Option<&[ShapeId]> {
        (!self.too_many).then_some(&self.few)
    }

    /// Whether a class may be one of them.
    pub(super) fn may_contain(&self, shape: ShapeId) -> bool {
        self.too_many || self.few.binary_search(&shape).is_ok()
    }

    pub(super) fn insert(&mut self, shape: ShapeId) {
        let Err(at) = self.few.binary_search(&shape) else {
            return;
        };
        self.too_many |= self.few.len() == MOST;
        match self.too_many {
            true => self.few.clear(),
            false => self.few.insert(at, shape),
        }
    }

    pub(super) fn remove(&mut self, shape: ShapeId) {
        if let Ok(at) = self.few.binary_search(&shape) {
            self.few.remove(at);
        }
    }

    pub(super) fn clear(&mut self) {
        self.few.clear();
        self.too_many = false;
    }
}
