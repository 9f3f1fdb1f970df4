//! Pending jobs: in order, in classes of one shape, parked until what they wait for changes.

mod audit;
pub(crate) mod backoff;
pub(crate) mod head_selector;
pub(crate) mod inadmissible;
pub(crate) mod infeasible;
pub(crate) mod infeasible_shapes;
pub(crate) mod pending_queue;
pub(crate) mod position_index;
pub(crate) mod queues;
pub(crate) mod shapes;
pub(crate) mod store;
