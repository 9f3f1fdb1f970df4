//! Facts: observed objects as plain data, by name.
//!
//! Facts are level-triggered: each contains all that is known of its object, and the same fact a
//! second time changes nothing.

use crate::demand::{Demand, Hold};
use crate::faults::Symptom;
use crate::ids::{Attempt, ClusterName, JobKey, NodeName, PoolClass, QueueName, Time, Uid};
use crate::images::RoleImages;
use crate::matching::Taint;
use crate::plugins::PlacementWeights;
use crate::resources::Resources;
use crate::shares::{FairShare, Limits};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a queue takes jobs (Volcano `Queue.status.state`; absent means open).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum QueueState {
    /// Takes jobs.
    #[default]
    Open,
    /// Takes none, and still has some.
    Closing,
    /// Takes none.
    Closed,
    /// Takes none. Its object is deleted; it keeps its parent and its bounds while it or a queue
    /// below it is charged.
    Deleting,
}

/// The spec of a `Queue` object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueFact {
    /// Its name.
    pub name: QueueName,
    /// The parent; `None` for a queue directly below the root.
    pub parent: Option<QueueName>,
    /// Higher goes first among queues (Volcano `spec.priority`).
    pub priority: i32,
    /// Its weight relative to its siblings (Volcano `spec.weight`), at least 1.
    pub weight: u32,
    /// The amounts reserved for it in all clusters together, even while it is idle.
    pub guarantee: Resources,
    /// The amounts that it can reclaim when it needs them. An explicit zero means none; a resource
    /// that is absent is not shared by `deserved`.
    pub deserved: Resources,
    /// The hard upper bounds in all clusters together.
    pub capability: Resources,
    /// True if other queues may reclaim what it borrows (Volcano `spec.reclaimable`).
    pub reclaimable: bool,
    /// Whether it takes jobs.
    pub state: QueueState,
    /// Field and value that are invalid, and why, if any are.
    pub invalid: Option<String>,
}

/// The order of a queue's jobs, and which of them may pass others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum QueueOrdering {
    /// No job passes the head.
    StrictFifo,
    /// Every job that fits is admitted; the head gets no reservation.
    BestEffort,
    /// A job may pass the head if that does not delay the head.
    #[default]
    Backfill,
    /// As `Backfill`, ordered by the time of queueing plus a multiple of the predicted run time:
    /// short jobs start early, and no job waits for ever.
    ShortestPredicted,
}

/// How far a queue is stopped (Kueue `ClusterQueue.spec.stopPolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopPolicy {
    /// It admits no jobs; admitted jobs continue.
    Hold,
    /// It admits no jobs, and its admitted jobs are evicted and queued again.
    HoldAndDrain,
}

/// How the priority of a pending job rises while it waits, so that none waits for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ageing {
    /// Milliseconds of one step, at least 1.
    pub every_ms: i64,
    /// By how much the priority rises with each step.
    pub raise: u32,
    /// The classes of which the highest is the most that it rises to; `None` for all but those of Kubernetes.
    pub classes: Option<Vec<String>>,
}

/// Which jobs may be evicted for the jobs of a queue, and when its own may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// True if a job may preempt jobs of lower priority in its own queue.
    pub within_queue: bool,
    /// True if its jobs may reclaim what other queues borrow, up to its `deserved`.
    pub reclaim: bool,
    /// Milliseconds that a job of this queue runs before it may be evicted.
    pub min_runtime_ms: i64,
    /// True if its jobs may declare that they are never evicted.
    pub allow_non_preemptible: bool,
    /// True if its jobs may be evicted once they run longer than they declared: even those that
    /// are not preemptible, and even for jobs of the same priority in this queue without
    /// `within_queue`.
    pub evict_overdue: bool,
}

impl Default for Preemption {
    /// As in Volcano's capacity plugin: reclaim is on, preemption within a queue is off.
    fn default() -> Self {
        Self {
            within_queue: false,
            reclaim: true,
            min_runtime_ms: 0,
            allow_non_preemptible: true,
            evict_overdue: false,
        }
    }
}

/// The rules of a queue for reservations and backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Backfill {
    /// True if a job may pass only if it delays none of the jobs ahead of it in its queue
    /// (conservative backfill), and not only the first (EASY).
    pub conservative: bool,
    /// The most reservations of this queue's jobs at once; `None` for the engine's default.
    pub reservations: Option<u32>,
}

/// A queue's bounds on a class of pools, in all clusters or in some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolBound {
    /// The class it bounds.
    pub class: PoolClass,
    /// The clusters whose pools are counted together; `None` for all.
    pub clusters: Option<BTreeSet<ClusterName>>,
    /// The amounts reserved for the queue even while it is idle.
    pub guarantee: Resources,
    /// The amounts that the queue can reclaim when it needs them.
    pub deserved: Resources,
    /// The hard upper bounds.
    pub capability: Resources,
}

/// Whole nodes that a queue keeps for its large gangs, in each cluster where such a gang runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareRule {
    /// How many nodes, at least 1.
    pub nodes: u32,
    /// Their class; `None` for the classes of nodes that the gang uses there.
    pub class: Option<PoolClass>,
    /// The number of pods from which on a gang is large.
    pub for_gangs_of: u32,
}

/// The spec of a `CapacityPolicy` object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFact {
    /// The queue it belongs to.
    pub queue: QueueName,
    /// Bounds on classes of pools, besides the queue's own.
    pub pools: Vec<PoolBound>,
    /// The order of its jobs.
    pub ordering: QueueOrdering,
    /// How the priority of its pending jobs rises; `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ageing: Option<Ageing>,
    /// The rules for reservations and backfill.
    pub backfill: Backfill,
    /// How its usage is compared with that of its siblings.
    pub fair_share: FairShare,
    /// The rules for eviction.
    pub preemption: Preemption,
    /// Bounds on numbers of jobs and on their length.
    pub limits: Limits,
    /// The most clusters of one job; `None` if only its own placement limits them.
    pub max_clusters: Option<u32>,
    /// The weights of the scores that choose between possible placements.
    pub weights: PlacementWeights,
    /// The clusters that are preferred over others, in this order.
    pub preferred_clusters: Vec<ClusterName>,
    /// Milliseconds after admission by which the gang's minimum of pods must be bound; after them
    /// the job is evicted.
    pub start_deadline_ms: i64,
    /// Milliseconds in which a running gang that fell below its minimum of pods must have it again, else
    /// it is evicted and queued again; `None`: as the config says.
    pub recovery_deadline_ms: Option<i64>,
    /// The nodes that it keeps for its large gangs, if it keeps any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<SpareRule>,
    /// How far the queue is stopped, if it is. It concerns its own jobs, not those of queues below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopPolicy>,
    /// Field and value that are invalid, and why, if any are.
    pub invalid: Option<String>,
}

/// A `PriorityClass`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityClassFact {
    /// Its name.
    pub name: String,
    /// Higher goes first.
    pub value: i32,
    /// True if jobs that name no class get this one.
    pub global_default: bool,
    /// True if its jobs may preempt others (`preemptionPolicy` other than `Never`).
    pub preempts: bool,
}

/// A member cluster, from its `Cluster` object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFact {
    /// Its name.
    pub name: ClusterName,
    /// Labels of the Cluster object.
    pub labels: BTreeMap<String, String>,
    /// `spec.provider`.
    pub provider: String,
    /// `spec.region`.
    pub region: String,
    /// `spec.zones`.
    pub zones: Vec<String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// Price of a device-hour in thousandths of the operator's currency, if it is known.
    pub price_milli: Option<u64>,
    /// Round-trip times to other clusters in microseconds, as far as they are known.
    pub network: BTreeMap<ClusterName, u64>,
    /// The `apiVersion/Kind`s that it serves (`batch/v1/Job`); `None` while they are not known.
    pub apis: Option<BTreeSet<String>>,
    /// True if it is Ready, is not being deleted, and its live view is fresh enough to decide on.
    pub usable: bool,
    /// Why it is not usable; empty if it is.
    pub unusable_because: String,
    /// Set while it takes no new jobs because many failed there. Admitted jobs stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<ClusterPause>,
}

/// Why a cluster takes no new jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPause {
    /// Why, in words that follow the cluster's name.
    pub because: String,
    /// True if one job may be admitted there, to see whether it runs. Its admission makes this false.
    pub trial: bool,
}

impl ClusterFact {
    /// Returns true if it has a taint with this key.
    #[inline]
    #[must_use]
    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| taint.key == key)
    }
}

/// A node of a member cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFact {
    /// The cluster it belongs to.
    pub cluster: ClusterName,
    /// Its name.
    pub name: NodeName,
    /// The class of its pool.
    pub class: PoolClass,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints, without that of cordoning.
    pub taints: Vec<Taint>,
    /// Its topology domains, outermost first (zone, rack; or the path of its HyperNodes); empty if
    /// none are known.
    pub domains: Vec<String>,
    /// Its allocatable resources, `pods` included.
    pub allocatable: Resources,
    /// True if it is Ready, not cordoned and not being deleted.
    pub usable: bool,
    /// Not Ready, or being deleted: the pods on it do not count as running.
    #[serde(default)]
    pub lost: bool,
}

/// A pod of a member cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFact {
    /// The cluster it is in.
    pub cluster: ClusterName,
    /// Its UID.
    pub uid: Uid,
    /// The node it is bound to, if any.
    pub node: Option<NodeName>,
    /// Its request, with init containers, overhead and one `pods`.
    pub request: Resources,
    /// The job it belongs to, or [`JobKey::of_namespace`] for a pod of no job, which is charged for its namespace if
    /// Muster manages that. `None` for a pod that is never charged.
    pub job: Option<JobKey>,
    /// How far it is.
    pub phase: PodPhase,
    /// What keeps it from running, or has ended it, if its node says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symptom: Option<Box<Symptom>>,
    /// The seconds that it may take to end once it is deleted; 0 if that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grace_s: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl PodFact {
    /// Returns true if it has ended and so uses nothing of its node.
    #[inline]
    #[must_use]
    pub fn ended(&self) -> bool {
        matches!(self.phase, PodPhase::Ended | PodPhase::Disrupted)
    }

    /// The job that it belongs to, if it belongs to one.
    #[inline]
    #[must_use]
    pub fn job(&self) -> Option<&JobKey> {
        self.job.as_ref().filter(|key| key.is_job())
    }
}

/// How far a pod is, as far as capacity and recovery are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PodPhase {
    /// It is not bound, or has yet to run on its node: an image, a volume or a container is not ready, or
    /// its containers end as soon as they start.
    Starting,
    /// It runs.
    Running,
    /// It may still run, and the control plane is ending it (condition `DisruptionTarget`): its node is emptied
    /// or gone, or it is evicted or preempted.
    Evicting,
    /// It ended by itself, with or without success: what follows is its controller's decision.
    Ended,
    /// Its node or the control plane ended it: the kubelet refused it, or it was evicted, preempted or
    /// on a node that was shut down (condition `DisruptionTarget`).
    Disrupted,
}

/// A job, from its template and binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFact {
    /// The job.
    pub key: JobKey,
    /// UID of the template: a re-created job has a new one.
    pub uid: Uid,
    /// The queue that it names.
    pub queue: QueueName,
    /// The PriorityClass that it names, if any.
    pub priority_class: Option<String>,
    /// When it was queued: the creation of its template, also for later attempts.
    pub queued_at: Time,
    /// Its request. Ignored while `hold` says that it is not known.
    pub demand: Demand,
    /// Why it may not be evaluated, if so.
    pub hold: Option<Hold>,
    /// Declared run time in milliseconds (`muster.io/expected-duration`,
    /// activeDeadlineSeconds), if any.
    pub expected_duration_ms: Option<i64>,
    /// The user who submitted it; if empty, its namespace counts as the user.
    pub user: String,
    /// True if it may be evicted for another (`volcano.sh/preemptable`, by default yes).
    pub preemptible: bool,
    /// When it last saved its work (`muster.io/checkpointed-at`), if it reports that.
    pub checkpointed_at: Option<Time>,
    /// The images of its pods, as far as its template tells. They never decide whether it fits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<RoleImages>,
}

/// Terminating pods of one role in one cluster. They are charged until they are observed gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// The cluster.
    pub cluster: ClusterName,
    /// Their role.
    pub role: String,
    /// How many.
    pub count: u32,
    /// The request of each.
    pub request: Resources,
    /// Their remaining charge, by class of pool.
    pub charge: BTreeMap<PoolClass, Resources>,
}

/// The part of a job in one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The cluster.
    pub cluster: ClusterName,
    /// Its pods by role, in the demand's order.
    pub pods: Vec<RolePods>,
    /// Its charge by class of pool.
    pub charge: BTreeMap<PoolClass, Resources>,
    /// The nodes that the plan assumed; the member's scheduler may choose others. Empty in
    /// admissions that were read from records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<Slot>,
}

impl Share {
    /// The number of pods of this part.
    #[inline]
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.pods.iter().map(|role| role.count).sum()
    }

    /// The number of pods of `role` in this part.
    #[must_use]
    pub fn pods_of(&self, role: &str) -> u32 {
        let pods = self.pods.iter().filter(|pods| pods.role == role);
        pods.map(|pods| pods.count).sum()
    }
}

/// Pods of one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolePods {
    /// The role's name.
    pub role: String,
    /// How many.
    pub count: u32,
}

/// Assumed pods of one role on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The node.
    pub node: NodeName,
    /// The role's name.
    pub role: String,
    /// The number of pods.
    pub count: u32,
}

/// The admission of a job, from its admission record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// UID of the template that was admitted.
    pub uid: Uid,
    /// The attempt.
    pub attempt: Attempt,
    /// The queue that is charged.
    pub queue: QueueName,
    /// When it was admitted.
    pub admitted_at: Time,
    /// The run time that it had declared then, in milliseconds. It applies to this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_ms: Option<i64>,
    /// Its parts, with their charges.
    pub shares: Vec<Share>,
}

impl Admission {
    /// The charge of all parts together, or `None` if the sum overflows.
    #[must_use]
    pub fn charge(&self) -> Option<Resources> {
        self.shares
            .iter()
            .flat_map(|share| share.charge.values())
            .try_fold(Resources::new(), |sum, part| sum.checked_add(part))
    }
}
