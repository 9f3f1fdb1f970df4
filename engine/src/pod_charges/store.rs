//! The store of charges of pods, by the job of the pods or by their namespace.

use crate::api::charge::Pools;
use facts::{JobKey, QueueName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A charge for pods, beside that of their job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodCharge {
    /// The queue that is charged.
    pub(crate) queue: QueueName,
    /// The user who is charged: that of the job, or its namespace if the job is not known.
    pub(crate) user: Arc<str>,
    /// The amounts beyond the charge of the job, by pool. Never empty.
    pub(crate) pools: Arc<Pools>,
}

/// What of the store cannot be computed again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueMemory {
    /// The queue that jobs use by default, by managed namespace.
    namespaces: BTreeMap<Arc<str>, QueueName>,
    /// The last queue of each job that was forgotten while pods of it were left.
    forgotten: BTreeMap<JobKey, QueueName>,
}

impl QueueMemory {
    /// True if it remembers nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// See the module's documentation. A key is that of a job, or of the pods of a namespace that belong to none.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodCharges {
    queues: QueueMemory,
    charged: BTreeMap<JobKey, PodCharge>,
    /// Keys whose charge has to be computed again.
    stale: BTreeSet<JobKey>,
}

impl PodCharges {
    /// The charge for the pods of a key, if they use more than their job is charged.
    pub(crate) fn of(&self, key: &JobKey) -> Option<&PodCharge> {
        self.charged.get(key)
    }

    /// All charges, in order of key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobKey, &PodCharge)> {
        self.charged.iter()
    }

    /// Sets or removes the charge for the pods of a key. Returns the one before.
    pub(crate) fn set(&mut self, key: &JobKey, charge: Option<PodCharge>) -> Option<PodCharge> {
        match charge {
            Some(charge) => self.charged.insert(key.clone(), charge),
            None => self.charged.remove(key),
        }
    }

    /// Sets the queue that jobs of a namespace use by default; `None` if it is not managed. True if that changed
    /// anything.
    pub(crate) fn set_namespace(&mut self, name: &Arc<str>, queue: Option<QueueName>) -> bool {
        let now = queue.clone();
        let before = match queue {
            Some(queue) => self.queues.namespaces.insert(Arc::clone(name), queue),
            None => self.queues.namespaces.remove(name),
        };
        before != now
    }

    /// The queue that is charged for pods of a job that is not known: its last one, or else the default of its
    /// namespace. `None` if the namespace is not managed.
    pub(crate) fn queue_of_unknown(&self, key: &JobKey) -> Option<&QueueName> {
        let last = self.queues.forgotten.get(key);
        last.or_else(|| self.queues.namespaces.get(&key.namespace))
    }

    /// Notes that pods of `key` are left although its job is forgotten, which used `queue`.
    pub(crate) fn forget_job(&mut self, key: &JobKey, queue: QueueName) {
        self.queues.forgotten.insert(key.clone(), queue);
        self.stale.insert(key.clone());
    }

    /// Notes that no pods of a job are left, or that it is known again.
    pub(crate) fn drop_forgotten(&mut self, key: &JobKey) {
        self.queues.forgotten.remove(key);
    }

    /// Makes the charge of a key be computed again.
    pub(crate) fn note(&mut self, key: &JobKey) {
        if !self.stale.contains(key) {
            self.stale.insert(key.clone());
        }
    }

    /// True if no charge has to be computed again.
    pub(crate) fn is_settled(&self) -> bool {
        self.stale.is_empty()
    }

    /// Takes the keys whose charges have to be computed again. The caller does so.
    pub(crate) fn take_stale(&mut self) -> BTreeSet<JobKey> {
        std::mem::take(&mut self.stale)
    }

    /// Returns what a snapshot needs.
    pub(crate) fn queues(&self) -> &QueueMemory {
        &self.queues
    }

    /// Restores the memory of a snapshot, before any charge is computed.
    pub(crate) fn restore(&mut self, queues: QueueMemory) {
        self.queues = queues;
    }
}
