//! Decisions: what the caller has to carry out, each with its reason. Plain data.

use facts::{
    Admission, Amount, Attempt, ClusterName, JobKey, NodeName, PoolClass, QueueName, Reason,
    ResourceName, Resources, Share, Time, Uid, counted,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A change to carry out. The engine already assumes that it happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Write the placement of a queued job. The job is charged from now on.
    Release {
        /// The job.
        key: JobKey,
        /// What is admitted, with the plan's shares and their slots.
        admission: Admission,
        /// In words: the queue, the jobs that it passes, why it may start.
        message: String,
    },
    /// Change the shares of an admitted job whose size is enforced in its clusters: it scales up
    /// or shrinks. `admission` is the complete new state, of the same attempt.
    Resize {
        /// The job.
        key: JobKey,
        /// The admission from now on.
        admission: Admission,
        /// The preemptor, if this is a shrink for another job.
        for_job: Option<JobKey>,
        /// In words.
        message: String,
    },
    /// Evict an admitted job: gate it again and remove its placement. It stays charged until its
    /// Works are reported gone.
    Evict {
        /// The job.
        key: JobKey,
        /// The attempt to evict.
        attempt: Attempt,
        /// Why.
        reason: Reason,
        /// The preemptor, if the job is preempted or reclaimed.
        for_job: Option<JobKey>,
        /// In words, with names and numbers.
        message: String,
    },
}

impl Decision {
    /// Returns the job that is released, resized or evicted.
    pub fn key(&self) -> &JobKey {
        match self {
            Self::Release { key, .. } | Self::Resize { key, .. } | Self::Evict { key, .. } => key,
        }
    }
}

/// The result of one call of `decide`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Decisions {
    /// The decisions, to be carried out in this order.
    pub decisions: Vec<Decision>,
    /// True if the caller must call again at once: the budget of decisions or of evaluations ran out, the last decision
    /// freed capacity, or what a call begins with has news by what was decided.
    pub more: bool,
    /// True if the call stopped because jobs have each other evaluated in a circle. That is a defect of the engine,
    /// and must not block other work.
    pub cut: bool,
    /// Jobs that lost their reservation because they could not start although the reserved nodes are free.
    /// That is a defect of the engine: the nodes would have been kept free for ever.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fruitless_reservations: Vec<JobKey>,
    /// When to call again if no event comes before (back-offs and deadlines).
    pub wake_at: Option<Time>,
}

/// The state of a job in words, computed by the functions that decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Its state in one word.
    pub reason: Reason,
    /// Its state in a sentence, with names and numbers: which limit binds, by how much.
    pub message: String,
    /// Position among the pending jobs of its queue, 1 for the head; `None` if it is not pending.
    pub position: Option<usize>,
    /// The constraint that blocks it, if that is quota or capacity.
    pub blocker: Option<Blocker>,
    /// The facts that the verdict rests on, one per line, the most important first.
    pub evidence: Vec<String>,
    /// The smallest changes with which it would start now. Each was found by evaluating the job
    /// with the change made.
    pub helps: Vec<Help>,
    /// The jobs ahead of it in its queue; `None` if it is not pending.
    pub ahead: Option<Ahead>,
    /// An estimate of its start; `None` if it is not pending, or could not start before something is changed.
    pub start: Option<StartEstimate>,
}

impl Explanation {
    /// An explanation with a reason and a message only.
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

/// A change with which a job would start now, or without which it never starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Help {
    /// Request fewer pods of a role.
    FewerPods {
        /// The role.
        role: String,
        /// The number of pods with which the job would start.
        count: u32,
    },
    /// Submit the job to another queue.
    OtherQueue(QueueName),
    /// Raise a capability.
    RaiseCapability {
        /// The queue that has the capability.
        queue: QueueName,
        /// The class of pools that it bounds; `None` for the queue's overall capability.
        class: Option<PoolClass>,
        /// The resource.
        resource: String,
        /// The capability with which the job would start, in the resource's base unit.
        to: i64,
    },
    /// Add nodes of a class to a cluster.
    MoreNodes {
        /// The cluster.
        cluster: ClusterName,
        /// The class.
        class: PoolClass,
        /// The number of additional nodes.
        count: u32,
    },
    /// Give nodes the label by which the job selects nodes, or select others: no node has it.
    NodeLabel {
        /// The cluster; `None` if it is so in all clusters that the job may use.
        cluster: Option<ClusterName>,
        /// The label and its value, as in a selector.
        label: String,
    },
}

impl fmt::Display for Help {
    /// The advice, in the imperative.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewerPods { role, count } => {
                write!(f, "ask for {}", counted(*count, &format!("{role} pod")))
            }
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
            } => {
                let nodes = counted(*count, "node");
                write!(f, "add {nodes} of class {class} to cluster {cluster}")
            }
            Self::NodeLabel { cluster, label } => {
                write!(f, "select other nodes: no node of ")?;
                match cluster {
                    Some(cluster) => write!(f, "{cluster} has {label}"),
                    None => write!(f, "any cluster has {label}"),
                }
            }
        }
    }
}

/// The jobs ahead of a job in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ahead {
    /// The number of jobs.
    pub jobs: u32,
    /// The devices that they request together.
    pub devices: i64,
    /// The device-seconds that those with a known run time are expected to use.
    pub device_seconds: i64,
}

/// An estimate of the start of a pending job. Alone it is no forecast: [`crate::StartForecasts`] compares
/// estimates with starts, and makes a range of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartEstimate {
    /// Its queue.
    pub queue: QueueName,
    /// What it requests of the resource that it is best known by.
    pub amount: i64,
    /// For how many milliseconds it has waited since it was queued.
    pub waited_ms: i64,
    /// What the estimate comes from.
    pub source: EstimateSource,
    /// After how many milliseconds it would start; `None` if that depends on ends that are not known.
    pub wait_ms: Option<i64>,
    /// The basis of the estimate, in words.
    pub basis: String,
}

/// What an estimate comes from. Those of one source err alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EstimateSource {
    /// The start of its reservation.
    Reservation,
    /// The run times of running jobs and of those ahead.
    Work,
    /// Nothing: too few run times are known.
    Unknown,
}

/// When a job is expected to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRange {
    /// The earliest start that is likely.
    pub earliest: Time,
    /// The latest start that is likely; `None` if nothing is known of it.
    pub latest: Option<Time>,
    /// The basis of the estimate, in words.
    pub basis: String,
    /// How past ranges for jobs like it have fared, if there were any.
    pub past: Option<PastRanges>,
}

/// How many of the latest ranges have held the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastRanges {
    /// Starts that came within the range.
    pub within: usize,
    /// All starts that a range was given for.
    pub of: usize,
}

/// The constraint that blocks a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Blocker {
    /// `queue/<name>`, `cluster/<name>`, `reservation/<job>`.
    pub scope: String,
    /// The resource that is short, if one is.
    pub resource: Option<String>,
    /// The amount that the job needs of it.
    pub needs: Option<i64>,
    /// The amount of it that is free.
    pub free: Option<i64>,
}

/// Usage, bounds and demand of a queue, for its status.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueUsage {
    /// The charge now in all clusters, with that of its children.
    pub allocated: Resources,
    /// Its effective deserved amounts: its own within those of its ancestors, at least its
    /// guarantee. Only resources that it names.
    pub deserved: Resources,
    /// Its effective capability: the least along its path, less the guarantees of others. Only
    /// resources that are bounded.
    pub real_capability: Resources,
    /// The part of `allocated` above `deserved`.
    pub borrowed: Resources,
    /// The part of `deserved` that other queues use.
    pub lent: Resources,
    /// The usage of each bound of its policy, in the policy's order.
    pub pools: Vec<PoolUsage>,
    /// Past usage in thousandths of a device-hour, decayed by its half-life, if it has one.
    pub decayed_usage: Option<Resources>,
    /// The requests of pending jobs, with those of its children.
    pub pending: Resources,
    /// The charge of its own jobs by cluster and class of pool, in order of their names.
    pub placed: Vec<PlacedUsage>,
    /// What pods of its own use beyond what was admitted, in order of job and cluster. It is part of `allocated`.
    pub unadmitted: Vec<UnadmittedUsage>,
    /// The number of pending jobs.
    pub pending_jobs: u32,
    /// The number of jobs that are admitted and not observed running yet.
    pub admitted_jobs: u32,
    /// The number of jobs that run.
    pub running_jobs: u32,
    /// The number of jobs that are being evicted or deleted and still charged.
    pub ending_jobs: u32,
    /// The number of jobs that have ended and whose objects still exist.
    pub finished_jobs: u32,
    /// The first pending job, with its explanation.
    pub head: Option<(JobKey, Explanation)>,
    /// Why the queue takes no jobs, if it does not.
    pub closed: Option<(Reason, String)>,
}

/// What pods use in a cluster beyond what was admitted for their job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnadmittedUsage {
    /// The job of the pods, or [`JobKey::of_namespace`] if they belong to none.
    pub pods_of: JobKey,
    /// The cluster.
    pub cluster: ClusterName,
    /// The amounts.
    pub resources: Resources,
}

/// The number of a queue's pending jobs that have a reservation, by what is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reserved {
    /// Nodes, chosen so that the least has to become free.
    pub nodes: u32,
    /// Headroom of queues only.
    pub headroom: u32,
    /// The quota and capacity of jobs that are being evicted.
    pub evictions: u32,
}

/// A pull of images ahead of a job's start, on the nodes that are reserved for it in one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrePull {
    /// The job.
    pub job: JobKey,
    /// UID of its template.
    pub uid: Uid,
    /// Its largest role, whose images are pulled.
    pub role: String,
    /// The cluster.
    pub cluster: ClusterName,
    /// The nodes that lack one of the images, in no order that means anything.
    pub nodes: Vec<NodeName>,
    /// When the job is expected to start, if that is known.
    pub start: Option<Time>,
}

/// A queue's usage of the pools that one bound of its policy counts together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUsage {
    /// The class.
    pub class: PoolClass,
    /// The clusters counted together, in order; empty for all.
    pub clusters: Vec<ClusterName>,
    /// The charge now.
    pub allocated: Resources,
    /// As [`QueueUsage::deserved`].
    pub deserved: Resources,
    /// As [`QueueUsage::real_capability`].
    pub real_capability: Resources,
}

/// A queue's usage of one class in one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedUsage {
    /// The cluster.
    pub cluster: ClusterName,
    /// The class.
    pub class: PoolClass,
    /// The charge there.
    pub allocated: Resources,
}

/// A queue and its capability, for checks outside the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueBound {
    /// The queue.
    pub queue: QueueName,
    /// Its capability.
    pub capability: Resources,
}

/// `shares` without the nodes that the plan assumed.
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
