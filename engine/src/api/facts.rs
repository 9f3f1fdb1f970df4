//! What the engine observes of the world: plain data, by name.
//!
//! Facts are level-triggered: each carries the whole of what is known about its object, and
//! telling the same fact twice changes nothing.

use crate::amounts::resources::Resources;
pub use crate::api::demand::{ClusterPlacement, Demand, Held, Hold, Role, Split, Topology};
use crate::api::ids::{Attempt, ClusterName, JobKey, NodeName, PoolClass, QueueName, Time, Uid};
use crate::api::matching::Taint;
pub use crate::plugins::{Filters, PlacementWeights};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a queue takes jobs (Volcano `Queue.status.state`; absent means open).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum QueueState {
    /// Takes jobs.
    #[default]
    Open,
    /// Takes none; has some.
    Closing,
    /// Takes none.
    Closed,
    /// Takes none. Its object is deleted, and it keeps its place and its bounds while something is
    /// charged to it or below.
    Deleting,
}

/// A queue as its `Queue` object states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueFact {
    /// Its name.
    pub name: QueueName,
    /// The parent; `None` for a queue directly below the root.
    pub parent: Option<QueueName>,
    /// Higher goes first among queues (Volcano `spec.priority`).
    pub priority: i32,
    /// Share of what is free, relative to its siblings (Volcano `spec.weight`), at least 1.
    pub weight: u32,
    /// Kept for it over the whole federation even while it is idle, per resource named.
    pub guarantee: Resources,
    /// What it gets back when it needs it, per resource named. An explicit zero is none; what
    /// is absent is not shared by `deserved`.
    pub deserved: Resources,
    /// Hard upper bound over the whole federation, per resource named.
    pub capability: Resources,
    /// Whether other queues may reclaim what it borrowed (Volcano `spec.reclaimable`).
    pub reclaimable: bool,
    /// Whether it takes jobs.
    pub state: QueueState,
    /// Set where the object holds a value that cannot be used: what is wrong, field and value.
    pub invalid: Option<String>,
}

/// Who may pass whom inside a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum QueueOrdering {
    /// Nobody passes the head.
    StrictFifo,
    /// Every job that fits is admitted; the head gets no reservation.
    BestEffort,
    /// Others may pass the head where that does not delay it.
    #[default]
    Backfill,
    /// As `Backfill`, in the order of when each was queued plus a multiple of its predicted run
    /// time, so that short jobs go early and nobody is passed for ever.
    ShortestPredicted,
}

/// How a queue's share is weighed against its siblings'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FairShare {
    /// Instead of the queue's own weight, at least 1.
    pub weight: Option<u32>,
    /// Milliseconds after which past use counts half, at least 1; `None`: only what is held now
    /// counts.
    pub usage_half_life_ms: Option<i64>,
}

/// Who may be evicted for the jobs of a queue, and when its own may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// Whether a job may take from jobs of lower priority in its own queue.
    pub within_queue: bool,
    /// Whether its jobs may reclaim from other queues what those borrowed, up to `deserved`.
    pub reclaim: bool,
    /// Milliseconds that a job of this queue runs before it may be evicted.
    pub min_runtime_ms: i64,
    /// Whether its jobs may say that they are never evicted.
    pub allow_non_preemptible: bool,
    /// Whether its jobs may be evicted once they run longer than they declared: whatever they say, and
    /// for jobs of the same priority in this queue as well, even where `within_queue` is not set.
    pub evict_overdue: bool,
}

impl Default for Preemption {
    /// Volcano's capacity rules reclaim by default; preemption inside a queue is asked for.
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

/// Bounds on numbers of jobs and on their length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Jobs of the queue and of all below it that may be released at once.
    pub jobs: Option<u32>,
    /// The same for the jobs of one user.
    pub jobs_per_user: Option<u32>,
    /// Jobs that may compete in the queue; those behind wait outside.
    pub pending: Option<u32>,
    /// Milliseconds that a job may run.
    pub runtime_ms: Option<i64>,
}

/// How reservations and backfill are done in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Backfill {
    /// Whether a job may pass only where it delays none of those ahead of it in its queue, not
    /// only the first (conservative backfill; else EASY).
    pub conservative: bool,
    /// Most reservations that jobs of this queue hold at once; `None`: as the engine is set.
    pub reservations: Option<u32>,
}

/// A bound on what a queue may use of a class of pools, in all clusters or in some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolBound {
    /// The class it bounds.
    pub class: PoolClass,
    /// The clusters whose pools are counted together; `None` means all.
    pub clusters: Option<BTreeSet<ClusterName>>,
    /// Kept for the queue even while it is idle, per resource named.
    pub guarantee: Resources,
    /// What the queue gets back when it needs it, per resource named.
    pub deserved: Resources,
    /// Hard upper bound, per resource named.
    pub capability: Resources,
}

/// How a queue is run, as its `CapacityPolicy` states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFact {
    /// The queue it belongs to.
    pub queue: QueueName,
    /// Bounds per class of pool, besides the queue's own.
    pub pools: Vec<PoolBound>,
    /// Who may pass whom.
    pub ordering: QueueOrdering,
    /// How reservations and backfill are done.
    pub backfill: Backfill,
    /// How its share is weighed.
    pub fair_share: FairShare,
    /// Who may be evicted for whom.
    pub preemption: Preemption,
    /// Bounds on numbers of jobs and on their length.
    pub limits: Limits,
    /// Clusters that one job may be spread over at most; `None`: as its own placement says.
    pub max_clusters: Option<u32>,
    /// What counts where several placements would do.
    pub weights: PlacementWeights,
    /// Clusters taken first, in this order, where several would do.
    pub preferred_clusters: Vec<ClusterName>,
    /// Milliseconds in which a released gang must have its minimum of pods bound, else it is
    /// evicted.
    pub start_deadline_ms: i64,
    /// Milliseconds in which a running gang that fell below its minimum of pods must have it again, else
    /// it is evicted and queued again; `None`: as the config says.
    pub recovery_deadline_ms: Option<i64>,
    /// Set where the object holds a value that cannot be used: what is wrong, field and value.
    pub invalid: Option<String>,
}

/// A `PriorityClass`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityClassFact {
    /// Its name.
    pub name: String,
    /// Higher goes first.
    pub value: i32,
    /// Whether jobs that name no class get this one.
    pub global_default: bool,
    /// Whether its jobs may have others evicted (`preemptionPolicy` other than `Never`).
    pub preempts: bool,
}

/// A member cluster as Karmada sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFact {
    /// Its name.
    pub name: ClusterName,
    /// Labels of the Cluster object.
    pub labels: BTreeMap<String, String>,
    /// `spec.provider`, `spec.region`, `spec.zones`, for field selectors and spread.
    pub provider: String,
    /// `spec.region`.
    pub region: String,
    /// `spec.zones`.
    pub zones: Vec<String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// Price of one device for one hour, in thousandths of whatever the operator counts in;
    /// `None` where it is not told.
    pub price_milli: Option<u64>,
    /// Time to other clusters and back in microseconds, where it is known.
    pub network: BTreeMap<ClusterName, u64>,
    /// `apiVersion/Kind` of what it serves (`batch/v1/Job`); `None` while unknown.
    pub apis: Option<BTreeSet<String>>,
    /// Whether it is Ready, not being deleted, and its live view is fresh enough to decide on.
    pub usable: bool,
    /// Why it is not usable; empty where it is.
    pub unusable_because: String,
}

impl ClusterFact {
    /// Whether it has a taint with this key.
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
    /// Its taints, cordoning aside.
    pub taints: Vec<Taint>,
    /// The topology domains that it is in, outermost first (zone, rack; or the path of its
    /// HyperNodes); empty where nothing is known.
    pub domains: Vec<String>,
    /// What pods may request of it, `pods` included.
    pub allocatable: Resources,
    /// Ready, uncordoned, and not being deleted.
    pub usable: bool,
    /// Not Ready, or being deleted: the pods on it do not count as running.
    #[serde(default)]
    pub lost: bool,
}

/// A pod that a member's API server shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFact {
    /// The cluster it is in.
    pub cluster: ClusterName,
    /// Its UID.
    pub uid: Uid,
    /// The node it is bound to, if any.
    pub node: Option<NodeName>,
    /// What it requests, init containers and overhead included, one `pods` included.
    pub request: Resources,
    /// The job it belongs to; `None` means that it is used by others.
    pub job: Option<JobKey>,
    /// How far it is.
    pub phase: PodPhase,
}

impl PodFact {
    /// Whether it has ended and so uses nothing of its node.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.phase != PodPhase::Active
    }
}

/// How far a pod is, as far as capacity and recovery are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PodPhase {
    /// It runs or may still start.
    Active,
    /// It ended by itself, with or without success: what follows is its controller's decision.
    Ended,
    /// Its node or the control plane ended it: the kubelet refused it, or it was evicted, preempted or
    /// on a node that was shut down (condition `DisruptionTarget`).
    Disrupted,
}

/// A job as its template and binding state it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFact {
    /// The job.
    pub key: JobKey,
    /// UID of the template: a re-created job is another.
    pub uid: Uid,
    /// The queue that it names.
    pub queue: QueueName,
    /// The PriorityClass that it names, if any.
    pub priority_class: Option<String>,
    /// When it was queued: the creation of its template. Kept over attempts.
    pub queued_at: Time,
    /// What it is made of. Ignored while `hold` says that it is not known.
    pub demand: Demand,
    /// Why it may not be considered, if so.
    pub hold: Option<Hold>,
    /// Declared run time in milliseconds (`muster.io/expected-duration`,
    /// activeDeadlineSeconds), if any.
    pub expected_duration_ms: Option<i64>,
    /// Who submitted it; empty where that is not known, then its namespace stands for it.
    pub user: String,
    /// Whether it may be evicted for another (`volcano.sh/preemptable`, by default yes).
    pub preemptible: bool,
    /// When it last saved its work (`muster.io/checkpointed-at`), if it tells.
    pub checkpointed_at: Option<Time>,
}

/// Pods of one role that leave one cluster: they were told to go, and are charged until they are
/// seen gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// The cluster.
    pub cluster: ClusterName,
    /// Their role.
    pub role: String,
    /// How many.
    pub count: u32,
    /// What each of them requests.
    pub request: Resources,
    /// What is still charged for them, by class of pool.
    pub charge: BTreeMap<PoolClass, Resources>,
}

/// The part of a job that one cluster gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The cluster.
    pub cluster: ClusterName,
    /// Pods in it, per role, in the demand's order.
    pub pods: Vec<RolePods>,
    /// What is charged for it, by class of pool.
    pub charge: BTreeMap<PoolClass, Resources>,
    /// The nodes the plan was checked on; the member's own scheduler may choose others. Empty
    /// in records read back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<Slot>,
}

impl Share {
    /// All pods of this part.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.pods.iter().map(|role| role.count).sum()
    }

    /// The pods of one role of this part.
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

/// Room assumed on one node for pods that are not bound yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The node.
    pub node: NodeName,
    /// The role's name.
    pub role: String,
    /// How many pods of it.
    pub count: u32,
}

/// What was admitted of a job: the content of an admission record, as the engine needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// UID of the template that was admitted.
    pub uid: Uid,
    /// Which attempt this is.
    pub attempt: Attempt,
    /// The queue that is charged.
    pub queue: QueueName,
    /// When it was admitted.
    pub admitted_at: Time,
    /// Run time in milliseconds that it had declared then, by which it is evaluated in this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_ms: Option<i64>,
    /// Its parts, with what each is charged.
    pub shares: Vec<Share>,
}

impl Admission {
    /// What the queue is charged in all, or `None` where that cannot be counted.
    #[must_use]
    pub fn charge(&self) -> Option<Resources> {
        self.shares
            .iter()
            .flat_map(|share| share.charge.values())
            .try_fold(Resources::new(), |sum, part| sum.checked_add(part))
    }
}
