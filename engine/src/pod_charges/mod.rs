//! What pods in members use beyond what is charged for their jobs.
//!
//! Facts of namespaces flow in, and the jobs of which pods or charges have changed. `cycle` computes from the
//! observed pods how much more than its charge each of them uses, charges that to a queue, and keeps it here. This
//! store never decides what is charged, and knows no pods.

mod store;

pub(crate) use store::{PodCharge, PodCharges, QueueMemory};
