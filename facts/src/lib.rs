//! What all of Muster calls things: names, quantities of resources, the objects that Muster observes, the rules
//! that are set for them, and the reasons that it gives.
//!
//! ```text
//! members, webhook, crds, workload ──► facts, events ──► engine ──► decisions, in the same names
//! ```
//!
//! Every crate that reads objects or writes them describes them with these types, and the engine takes them as its
//! input. A type is here if a crate needs it that decides nothing; what only the engine needs is in the engine. The
//! crate therefore changes seldom, and a change of how Muster decides rebuilds few crates.
//!
//! It is plain data, and what follows from one value alone: whether a rule selects a cluster, whether a taint is
//! tolerated, how a quantity is written. Never allowed here: I/O, a clock, random numbers, floats, state, and any
//! choice between jobs, queues or clusters.

mod demand;
pub mod event;
pub mod faults;
pub mod ids;
mod images;
pub mod matching;
mod objects;
pub mod plugins;
pub mod pod_rules;
pub mod quantity;
pub mod reason;
pub mod resources;
mod shares;
pub mod small_map;
mod spread;
mod texts;
mod uid;

pub use demand::{ClusterPlacement, Demand, Held, Hold, Role, Split, Topology};
pub use event::{Event, Progress};
pub use ids::{Attempt, ClusterName, JobKey, JobNames, NodeName, PoolClass, QueueName, Time, Uid};
pub use images::{LARGE_IMAGE_BYTES, NodeImages, RoleImages};
pub use objects::{
    Admission, Ageing, Backfill, ClusterFact, ClusterPause, JobFact, Leaving, NodeFact, PodFact,
    PodPhase, PolicyFact, PoolBound, Preemption, PriorityClassFact, QueueFact, QueueOrdering,
    QueueState, RolePods, Share, Slot, SpareRule, StopPolicy,
};
pub use plugins::{Filters, PlacementWeights};
pub use quantity::{Amount, Quantity, QuantityError};
pub use reason::{Actor, NextStep, Reason};
pub use resources::{ResourceError, ResourceName, Resources, Unit};
pub use shares::{FairShare, FairShareWithin, Limits};
pub use spread::{ClusterWeight, Division, GroupBy, GroupSpread};
pub use texts::{counted, listed};
