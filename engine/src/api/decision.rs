//! Decisions: what the engine wants done, each with its reason. Plain data; carrying it out
//! is the work of the shells.

use crate::amounts::quantity::Amount;
use crate::amounts::resources::{ResourceName, Resources};
use crate::api::facts::{Admission, Share};
use crate::api::ids::{Attempt, ClusterName, JobKey, PoolClass, QueueName, Time};
use crate::api::reason::Reason;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something to be done. The engine has already assumed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Write the placement of a queued job. It is charged from now on.
    Release {
        /// The job.
        key: JobKey,
        /// What is admitted, with the plan's shares and their slots.
        admission: Admission,
        /// In words: in which queue, past whom, why it may go.
        message: String,
    },
    /// Change the shares of a released job whose replicas Karmada holds (growth that was
    /// granted, or a shrink that was asked for). `admission` is the whole new state, of the
    /// same attempt.
    Resize {
        /// The job.
        key: JobKey,
        /// What is admitted from now on.
        admission: Admission,
        /// The job that room is made for, where this is a shrink for another.
        for_job: Option<JobKey>,
        /// In words.
        message: String,
    },
    /// Take a released job back: gate it again, remove its placement. It stays charged until
    /// its Works are reported gone.
    Evict {
        /// The job.
        key: JobKey,
        /// The attempt to evict.
        attempt: Attempt,
        /// Why.
        reason: Reason,
        /// The job that room is made for, where it is preempted or reclaimed.
        for_job: Option<JobKey>,
        /// In words, with names and numbers.
        message: String,
    },
}

/// What `decide` found to do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Decisions {
    /// To be carried out, in this order.
    pub decisions: Vec<Decision>,
    /// Whether the budget of decisions ran out before all was looked at, or the last of them made
    /// room for others: call again.
    pub more: bool,
    /// Whether it stopped since too many were evaluated in a row of whom nobody could go
    /// ([`crate::EngineConfig::max_fruitless_evaluations`]): a defect, which must not hold up all else.
    pub cut: bool,
    /// When to call again although no event came (back-offs and deadlines), if ever.
    pub wake_at: Option<Time>,
}

/// Where a job stands, for people. Computed by the functions that decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Its state in one word.
    pub reason: Reason,
    /// In a sentence, with names and numbers: what binds, by how much, what would help.
    pub message: String,
    /// Place among the waiting jobs of its queue, 1 being the head; `None` when it does not wait.
    pub position: Option<usize>,
    /// What holds it, where that is quota or room.
    pub blocker: Option<Blocker>,
    /// What the verdict rests on, one fact a line, most telling first.
    pub evidence: Vec<String>,
    /// Smallest changes that would let it start now, each found by evaluating it with the change
    /// made.
    pub helps: Vec<Help>,
    /// Who stands before it in its queue; `None` when it does not wait in line.
    pub ahead: Option<Ahead>,
    /// When it is expected to start; `None` where nothing is known.
    pub start: Option<StartRange>,
}

impl Explanation {
    /// A verdict with nothing but its words.
    #[must_use]
    pub fn of(reason: Reason, message: String) -> Self {
        Self {
            reason,
            message,
            position: None,
            blocker: None,
            evidence: Vec::new(),
            helps: Vec::new(),
            ahead: None,
            start: None,
        }
    }
}

/// One change that would let a job start now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Help {
    /// Ask for fewer pods of a role.
    FewerPods {
        /// The role.
        role: String,
        /// Pods with which it would start.
        count: u32,
    },
    /// Be submitted to another queue.
    OtherQueue(QueueName),
    /// A higher bound.
    RaiseCapability {
        /// Whose.
        queue: QueueName,
        /// Of which class of pools; `None`: the queue's overall one.
        class: Option<PoolClass>,
        /// Of which resource.
        resource: String,
        /// The bound with which it would start, in the resource's base unit.
        to: i64,
    },
    /// More nodes of a class in a cluster.
    MoreNodes {
        /// The cluster.
        cluster: ClusterName,
        /// The class.
        class: PoolClass,
        /// How many nodes more.
        count: u32,
    },
}

impl fmt::Display for Help {
    /// As advice to a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewerPods { role, count } => write!(f, "ask for {count} {role} pods"),
            Self::OtherQueue(queue) => write!(f, "submit it to queue {queue}"),
            Self::RaiseCapability {
                queue,
                class,
                resource,
                to,
            } => {
                let to = ResourceName::new(resource).format(Amount(*to));
                write!(
                    f,
                    "raise the capability of queue {queue} to {resource} {to}"
                )?;
                match class {
                    Some(class) => write!(f, " of class {class}"),
                    None => Ok(()),
                }
            }
            Self::MoreNodes {
                cluster,
                class,
                count,
            } => write!(f, "add {count} nodes of class {class} to cluster {cluster}"),
        }
    }
}

/// What stands before a job in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ahead {
    /// Jobs.
    pub jobs: u32,
    /// Devices that they ask for together.
    pub devices: i64,
    /// Device-seconds that they are expected to take, as far as run times are known.
    pub device_seconds: i64,
}

/// When a job is expected to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRange {
    /// Not before.
    pub earliest: Time,
    /// Likely by; `None` where an end that it depends on is not known.
    pub latest: Option<Time>,
    /// What the range rests on, in words.
    pub basis: String,
}

/// The one constraint that binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// `queue/<name>`, `cluster/<name>`, `reservation/<job>`.
    pub scope: String,
    /// The resource that is short, if one is.
    pub resource: Option<String>,
    /// How much the job needs of it.
    pub needs: Option<i64>,
    /// How much is free of it.
    pub free: Option<i64>,
}

/// What a queue has and wants, for its status.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueUsage {
    /// Charged now, over the federation, its children included.
    pub allocated: Resources,
    /// What it deserves as things are: its own value within what its ancestors leave it, at
    /// least its guarantee. Resources it names only.
    pub deserved: Resources,
    /// What it may have at most as things are: its capability and those above it, less what is
    /// guaranteed to others. Resources that are bounded only.
    pub real_capability: Resources,
    /// What of `allocated` is above `deserved`.
    pub borrowed: Resources,
    /// What of `deserved` it does not use while others use it.
    pub lent: Resources,
    /// The same by bound of its policy, in the policy's order.
    pub pools: Vec<PoolUsage>,
    /// Device-hours in thousandths that it has used, decayed by its half-life, if it has one.
    pub decayed_usage: Option<Resources>,
    /// Asked for by jobs that wait, its children included.
    pub pending: Resources,
    /// Charged now, by cluster and class of pool (own jobs only), in order of their names.
    pub placed: Vec<PlacedUsage>,
    /// Jobs that wait.
    pub pending_jobs: u32,
    /// Jobs that are released and not yet seen running.
    pub admitted_jobs: u32,
    /// Jobs that run.
    pub running_jobs: u32,
    /// Jobs that are being evicted or deleted and still charged.
    pub ending_jobs: u32,
    /// Jobs that ended and whose objects are still there.
    pub finished_jobs: u32,
    /// The waiting job that is first in order, and where it stands.
    pub head: Option<(JobKey, Explanation)>,
    /// Why the queue takes no jobs, if so.
    pub closed: Option<(Reason, String)>,
}

/// For how many of a queue's waiting jobs something is kept, by what is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reserved {
    /// Nodes, on which the least has to become free.
    pub nodes: u32,
    /// Headroom of queues only.
    pub headroom: u32,
    /// What becomes free of jobs that are evicted for it.
    pub evictions: u32,
}

/// What a queue has of the pools that one bound of its policy counts together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUsage {
    /// The class.
    pub class: PoolClass,
    /// The clusters counted together, in order; empty: all.
    pub clusters: Vec<ClusterName>,
    /// Charged now.
    pub allocated: Resources,
    /// As [`QueueUsage::deserved`].
    pub deserved: Resources,
    /// As [`QueueUsage::real_capability`].
    pub real_capability: Resources,
}

/// What a queue holds of one class in one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedUsage {
    /// The cluster.
    pub cluster: ClusterName,
    /// The class.
    pub class: PoolClass,
    /// Charged there.
    pub allocated: Resources,
}

/// A queue's name and what it may never pass, for checks outside the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueBound {
    /// The queue.
    pub queue: QueueName,
    /// Its capability.
    pub capability: Resources,
}

/// The parts of an admission that differ only in what the plan assumed.
#[must_use]
pub fn without_slots(shares: &[Share]) -> Vec<Share> {
    shares
        .iter()
        .map(|share| Share {
            slots: Vec::new(),
            ..share.clone()
        })
        .collect()
}
