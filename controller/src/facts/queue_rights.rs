//! Which namespaces have the right to use which queues, where the queues' policies do not say so.
//!
//! No answer is guessed: until there is one the job waits, and what is not known is asked
//! ([`crate::effects::rights`]).

use engine::QueueName;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// A namespace and a queue.
pub(crate) type Pair = (String, QueueName);

/// What is known of rights.
#[derive(Debug, Default)]
pub(crate) struct QueueRights {
    known: BTreeMap<Pair, bool>,
    /// What somebody wanted to know that is not known. In a cell: to look is what asks.
    asked: RefCell<BTreeSet<Pair>>,
}

impl QueueRights {
    /// Whether the namespace may use the queue; `None` until that is known, and it is asked.
    pub(crate) fn of(&self, namespace: &str, queue: &QueueName) -> Option<bool> {
        let pair = (namespace.to_owned(), queue.clone());
        let known = self.known.get(&pair).copied();
        if known.is_none() {
            self.asked.borrow_mut().insert(pair);
        }
        known
    }

    /// Whether it is known that the namespace may use the queue.
    pub(crate) fn is_known(&self, namespace: &str, queue: &QueueName) -> bool {
        let pair = (namespace.to_owned(), queue.clone());
        self.known.get(&pair).copied().unwrap_or(false)
    }

    /// What is to be asked since the last call.
    pub(crate) fn take_asked(&mut self) -> BTreeSet<Pair> {
        std::mem::take(self.asked.get_mut())
    }

    /// An answer came. Whether it is another than before.
    pub(crate) fn note(&mut self, pair: Pair, allowed: bool) -> bool {
        self.known.insert(pair, allowed) != Some(allowed)
    }
}
