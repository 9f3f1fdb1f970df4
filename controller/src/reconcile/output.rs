//! What passes leave behind: actions, jobs to reconcile, and counts.

use crate::messages::action::ReconcileAction;
use crate::metrics::{ControllerMetrics, QueueSeries};
use crate::mirror::Mirror;
use crate::reconcile::work_queue::WorkQueue;
use engine::QueueName;

/// See the module's documentation.
pub(crate) struct Output {
    actions: Vec<ReconcileAction>,
    pub(crate) work_queue: WorkQueue,
    pub(crate) metrics: ControllerMetrics,
}

impl Output {
    /// Creates an empty output.
    pub(crate) fn new(metrics: ControllerMetrics) -> Self {
        Self {
            actions: Vec::new(),
            work_queue: WorkQueue::default(),
            metrics,
        }
    }

    /// Queues an action.
    pub(crate) fn push(&mut self, action: impl Into<ReconcileAction>) {
        self.actions.push(action.into());
    }

    /// Returns the actions since the last call, in order.
    pub(crate) fn take_actions(&mut self) -> Vec<ReconcileAction> {
        std::mem::take(&mut self.actions)
    }

    /// Returns the metrics of queues if `queue` exists: no series outlives its queue.
    pub(crate) fn series_of(&self, queue: &QueueName, mirror: &Mirror) -> Option<&QueueSeries> {
        let exists = mirror.queues().contains_key(queue);
        exists.then_some(&self.metrics.queues)
    }
}
