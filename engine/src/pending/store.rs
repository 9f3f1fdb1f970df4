//! The pending store: pending jobs, in order, and what each waits for.

use super::head_selector::HeadSelector;
use super::infeasible::FreedNodes;
use super::queues::PendingQueues;
use super::shapes::Shapes;
use crate::api::ids::JobKey;
use crate::pending::backoff::PreemptionBackoff;
use crate::pending::shapes::ShapeId;
use std::collections::BTreeSet;

/// Pending jobs, and what is known of their request shapes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    /// The pending jobs of each queue.
    pub(crate) queues: PendingQueues,
    /// Their request shapes.
    pub(crate) shapes: Shapes,
    /// Nodes with capacity that was freed since all feasible shapes were evaluated.
    pub(crate) freed: FreedNodes,
    /// Which queue's head is evaluated next.
    pub(crate) heads: HeadSelector,
    /// Jobs that found no victims, and when they search again.
    pub(crate) backoff: PreemptionBackoff,
    /// Jobs for which no reservation is possible until a node is freed or unreserved.
    unreservable: BTreeSet<JobKey>,
}

impl Pending {
    /// No reservation is possible for a job, nor for another job of this shape behind all owners of
    /// reserved nodes, until a node is freed or unreserved.
    pub(crate) fn note_unreservable(&mut self, key: &JobKey, shape: Option<ShapeId>) {
        self.unreservable.insert(key.clone());
        if let Some(shape) = shape {
            self.shapes.note_unreservable(shape);
        }
    }

    /// Whether no reservation is possible for a job until a node is freed or unreserved.
    pub(crate) fn is_unreservable(&self, key: &JobKey) -> bool {
        self.unreservable.contains(key)
    }

    /// A node was freed or unreserved. The jobs for which a reservation may be possible now.
    pub(crate) fn retry_unreservable(&mut self) -> BTreeSet<JobKey> {
        self.shapes.retry_unreservable();
        std::mem::take(&mut self.unreservable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreservable_job_is_retried_once() {
        let key = JobKey::new("ns", "one");
        let mut pending = Pending::default();
        assert!(!pending.is_unreservable(&key));
        pending.note_unreservable(&key, None);
        assert!(pending.is_unreservable(&key));
        assert_eq!(pending.retry_unreservable(), BTreeSet::from([key.clone()]));
        assert!(!pending.is_unreservable(&key));
        assert_eq!(pending.retry_unreservable(), BTreeSet::new());
    }
}
