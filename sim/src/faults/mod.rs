//! Faults of nodes: when they come, what they do to running jobs, and what they cost.
//!
//! ```text
//! FaultPlan ─► FaultGenerator ─► FaultInjector ─► nodes and pods as events ─► Engine
//!  (input)      (when, where)      (down, seen, repaired)   │
//!                                                           └─► work that stops, FaultRecord
//! ```
//!
//! A fault stops the pods on its node at once. After the detection delay the engine receives the node
//! as it is then, and decides about the jobs. After the time to repair the node is as before.

mod generator;
mod inject;
mod nodes;
mod pods;
mod record;
mod replace;

pub(crate) use inject::{FaultInjector, Sides};
pub use record::{FaultRecord, JobFaultRecord, RecoveryTimes};

/// What a fault does to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// The node is not Ready, or gone: all pods on it are lost.
    NodeLost,
    /// One device fails: the pod that has it is lost, and no pod is placed on the node until it is
    /// repaired. Other pods go on. On a node without devices the node is lost.
    DeviceFault,
}

/// How long a node is out of service, in milliseconds from the fault on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairTime {
    /// Always as long.
    Fixed(u64),
    /// Equally likely within these bounds.
    Uniform(u64, u64),
    /// Exponentially distributed with this mean.
    Exponential(u64),
}

/// The settings of one class of faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultClassPlan {
    /// Its share of all faults, relative to the other class.
    pub weight: u32,
    /// Milliseconds from a fault until the engine receives it.
    pub detection_ms: i64,
    /// How long the node is out of service.
    pub repair: RepairTime,
}

/// A fault at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedFault {
    /// Milliseconds from the first arrival.
    pub at_ms: i64,
    /// The node's index in the fleet.
    pub node: usize,
    /// How long the node is out of service, in milliseconds.
    pub for_ms: i64,
    /// What it does.
    pub class: FaultKind,
}

/// Which faults a simulation has, and what they cost the jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlan {
    /// Faults per 1,000 nodes and day, in thousandths. They come at random to nodes in service.
    pub rate_milli: u64,
    /// Of a million jobs, how many are hit by a fault at a random moment of their first attempt.
    pub jobs_hit_ppm: u64,
    /// The seed of all that is random.
    pub seed: u64,
    /// Nodes that are lost.
    pub node_lost: FaultClassPlan,
    /// Devices that fail.
    pub device_fault: FaultClassPlan,
    /// Faults at given times.
    pub planned: Vec<PlannedFault>,
    /// The checkpoint interval of jobs that state none, in milliseconds. `None` if they start over.
    pub checkpoint_ms: Option<i64>,
    /// Milliseconds from a start after a fault until new work is done.
    pub restart_ms: i64,
    /// For how long a job may be below its minimum of pods, if its queue's policy does not say.
    pub recovery_deadline_ms: i64,
    /// Milliseconds until the controller of a gang has started another pod in the place of a lost one, where a node
    /// has room for it. `None` if it starts none.
    pub replace_ms: Option<i64>,
    /// True if an eviction for another job has the same costs as a fault.
    pub preemption_restarts: bool,
    /// Milliseconds from the first arrival after which no random fault comes.
    pub until_ms: i64,
}

impl Default for FaultPlan {
    /// No faults; detection as in Kubernetes (50 s for nodes) and by health monitors (20 s for devices).
    fn default() -> Self {
        Self {
            rate_milli: 0,
            jobs_hit_ppm: 0,
            seed: 1,
            node_lost: FaultClassPlan {
                weight: 40,
                detection_ms: 50_000,
                repair: RepairTime::Fixed(3_600_000),
            },
            device_fault: FaultClassPlan {
                weight: 60,
                detection_ms: 20_000,
                repair: RepairTime::Fixed(3_600_000),
            },
            planned: Vec::new(),
            checkpoint_ms: None,
            restart_ms: 0,
            recovery_deadline_ms: 60_000,
            replace_ms: None,
            preemption_restarts: false,
            until_ms: 365 * 86_400_000,
        }
    }
}

impl FaultPlan {
    fn class(&self, class: FaultKind) -> &FaultClassPlan {
        match class {
            FaultKind::NodeLost => &self.node_lost,
            FaultKind::DeviceFault => &self.device_fault,
        }
    }
}
