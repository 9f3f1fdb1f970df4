//! The pending store: jobs that wait, in order, and what is known of why they do.

use super::head_selector::HeadSelector;
use super::infeasible::FreedNodes;
use super::queues::PendingQueues;
use super::shapes::Shapes;
use crate::pending::backoff::PreemptionBackoff;

/// Pending jobs, and what is known of their request shapes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    /// The pending jobs of each queue.
    pub(crate) queues: PendingQueues,
    /// What pending jobs ask for.
    pub(crate) shapes: Shapes,
    /// Nodes with capacity that was freed since all that is feasible was evaluated.
    pub(crate) freed: FreedNodes,
    /// Which queue's head is evaluated next.
    pub(crate) heads: HeadSelector,
    /// Jobs that found nothing to evict, and when they look again.
    pub(crate) backoff: PreemptionBackoff,
}
