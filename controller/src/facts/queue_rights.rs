//! Which namespaces have the right to use which queues, where the queues' policies do not say so.
//!
//! No answer is guessed: a job waits until there is one. [`crate::effects::rights`] asks for answers that
//! are missing.

use engine::QueueName;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// A namespace and a queue.
pub(crate) type Pair = (String, QueueName);

/// The answers known so far.
#[derive(Debug, Default)]
pub(crate) struct QueueRights {
    known: BTreeMap<Pair, bool>,
    /// Pairs that a caller looked up without an answer. A cell, because a lookup is what triggers the
    /// question.
    asked: RefCell<BTreeSet<Pair>>,
}

impl QueueRights {
    /// Returns whether the namespace may use the queue; `None` while that is unknown, and it is then asked.
    pub(crate) fn of(&self, namespace: &str, queue: &QueueName) -> Option<bool> {
        let pair = (namespace.to_owned(), queue.clone());
        let known = self.known.get(&pair).copied();
        if known.is_none() {
            self.asked.borrow_mut().insert(pair);
        }
        known
    }

    /// Returns true if the namespace is known to have the right.
    pub(crate) fn is_known(&self, namespace: &str, queue: &QueueName) -> bool {
        let pair = (namespace.to_owned(), queue.clone());
        self.known.get(&pair).copied().unwrap_or(false)
    }

    /// Returns the pairs to ask for since the last call.
    pub(crate) fn take_asked(&mut self) -> BTreeSet<Pair> {
        std::mem::take(self.asked.get_mut())
    }

    /// Records an answer and returns true if it differs from the previous one.
    pub(crate) fn note(&mut self, pair: Pair, allowed: bool) -> bool {
        self.known.insert(pair, allowed) != Some(allowed)
    }
}
