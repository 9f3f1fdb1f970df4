//! Reasons for the state of a job: one closed list for all of Muster.
//!
//! A reason is a stable CamelCase word that users filter and alert on; the message beside it has
//! the details of the job. A new reason is added here and in `docs/reference/reasons.md`; a test
//! compares the two.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The reason of a job's state, of a condition, or of a decision.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason { $($(#[doc = $doc])+ $name,)+ }

        impl Reason {
            /// Every reason, with what it means.
            pub const ALL: &'static [(Reason, &'static str)] =
                &[$((Reason::$name, concat!($($doc),+)),)+];

            /// The word, as in conditions, events, logs and metrics.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name),)+ }
            }
        }
    };
}

reasons! {
    // The job or its configuration must change before it can be evaluated.
    /// Its owner has suspended it.
    Suspended,
    /// Its template asks for no pods: it holds nothing, and is queued at its size once it asks for some.
    ScaledToZero,
    /// It is on hold by its label muster.io/hold, and is not admitted until the label is removed.
    OnHold,
    /// Its size cannot be computed from its template or binding.
    SizeUnknown,
    /// A value in its template is invalid; the message names field and value.
    InvalidTemplate,
    /// Two workloads of this namespace need the same ResourceBinding; the message names both.
    BindingNameCollision,
    /// No propagation policy claims it. It stays where it is, is charged, and is not admitted.
    PolicyNotFound,
    /// No propagation policy selects an object of its kind: it is neither queued nor started. The message says
    /// what to do.
    KindNotSelected,
    /// Its propagation policy keeps resources in the members when they are deleted
    /// (preserveResourcesOnDeletion), so that its quota could not be freed.
    ResourcesPreserved,
    /// Its propagation policy names another scheduler.
    WrongScheduler,
    /// Its propagation policy asks for something that is not done for a job. The message names the field and what to
    /// do instead.
    PolicyNotFollowed,
    /// The placement of its propagation policy is too large, or the API server has refused it or an OverridePolicy or
    /// Service that it needs. The message says why.
    /// It waits until its template or that placement changes.
    PlacementRefused,
    /// The queue that it names does not exist.
    QueueNotFound,
    /// Its queue takes no jobs: it is closed or closing.
    QueueClosed,
    /// Its queue is stopped by its stopPolicy: it admits no jobs, and if it is drained, has evicted this one.
    QueueStopped,
    /// Its queue has children, and only leaf queues take jobs.
    QueueNotLeaf,
    /// Its queue or CapacityPolicy has an invalid value, or a broken chain of parents.
    QueueInvalid,
    /// Neither its namespace nor its user may use its queue.
    QueueNotPermitted,
    /// The PriorityClass that it names does not exist.
    PriorityClassNotFound,
    /// Its queue takes no jobs of its PriorityClass.
    PriorityClassNotPermitted,
    // The job could not start even on an empty fleet.
    /// It requests more than the capability of its queue or of an ancestor.
    ExceedsCapability,
    /// It requests more than one user or one namespace may use in its queue or an ancestor.
    ExceedsLimit,
    /// No member cluster is eligible for it: affinity, taints, API enablement or health.
    NoEligibleCluster,
    /// It is larger than any cluster it may run in, even empty.
    ExceedsFleet,
    // The job waits.
    /// Its queue, or an ancestor, has too little quota free.
    WaitingForQuota,
    /// No cluster has free capacity for the whole gang now.
    WaitingForRoom,
    /// What it needs is reserved for a job ahead of it.
    ReservedForAnother,
    /// It is next: what becomes free is reserved for it.
    NextInLine,
    /// A job ahead of it in a strictly ordered queue has to start first.
    BehindHead,
    /// Its queue, or an ancestor, has reached its limit of admitted jobs.
    JobLimitReached,
    /// Its user has reached the limit of admitted jobs in this queue.
    UserJobLimitReached,
    /// With it, its user would use more of a resource than a user may use in its queue or an ancestor.
    UserResourceLimitReached,
    /// With it, its namespace would use more of a resource than a namespace may use in its queue or an ancestor.
    NamespaceResourceLimitReached,
    /// Its queue has reached its limit of jobs that compete; it does not compete yet.
    PendingLimitReached,
    /// It is next: jobs are being evicted for it, and what becomes free is reserved for it.
    AwaitingEviction,
    /// It was evicted and waits for the end of its back-off.
    BackingOff,
    /// Every cluster that could take it is paused: many jobs failed there within a short time, and it takes no
    /// new ones for a while.
    ClusterPaused,
    /// It has not been evaluated yet.
    NotEvaluated,
    // What has happened to the job.
    /// It was admitted: quota is charged and a plan is made.
    Admitted,
    /// Its placement was written.
    Placed,
    /// Its placement was written: the event of Karmada's scheduler, for tools that wait for it.
    ScheduleBindingSucceed,
    /// It ran before Muster managed it, and is charged as it is.
    Adopted,
    /// Enough of its pods run.
    Running,
    /// It has ended; its outcome says how.
    Finished,
    /// It ended well.
    Succeeded,
    /// It failed.
    Failed,
    /// It is being deleted: a pending job is not started, and the charge of another one stays until its Works are gone.
    Deleting,
    /// It was evicted; its charge stays until its Works are gone.
    Evicted,
    /// It was evicted, or shrunk, for a queue that had less than it deserves, or for a job whose spare node it used.
    Reclaimed,
    /// It was evicted, or shrunk, for a job of higher priority in its queue.
    Preempted,
    /// It ran longer than its queue allows and was stopped; it does not compete again.
    RuntimeLimitExceeded,
    /// It was evicted because its pods did not start in time.
    StartDeadlineExceeded,
    /// Something keeps its pods from running on their nodes: an image, a volume, a container. The message says
    /// what.
    PodsNotStarting,
    /// Nodes refuse its pods, which a scheduler of their cluster has bound there. The message says why.
    PodsRefused,
    /// For more than a minute a scheduler of its cluster has not bound the pods that it needs.
    PodsNotScheduled,
    /// Its pods could not start through a fault of its own, such as an image that does not exist. It does not
    /// compete again until its template changes.
    PodsCannotStart,
    /// It was evicted because its nodes no longer have capacity for it.
    RoomLost,
    /// It lost pods while it ran and is below its minimum: it is evicted and queued again unless they are
    /// replaced in time.
    PodsLost,
    /// It failed because pods of it were lost through no fault of its own. It is queued again, and that costs it
    /// no retry.
    InfrastructureFailed,
    /// It failed by itself, and its queue lets it try again (spec.retries of its CapacityPolicy): it is queued
    /// again.
    FailureRetried,
    /// It was evicted because it made no progress: it had no heartbeat for longer than it says it may.
    NoProgress,
    /// It was evicted because one of its clusters is being emptied.
    ClusterDrained,
    /// It was evicted because a node that it ran on ends: spot capacity, or maintenance.
    NodeEnding,
    /// The scheduler could not carry out its plan.
    PlanRefused,
    /// A member cluster refused it; the message is the member's.
    MemberRefused,
    /// A part of its gang failed in one cluster; the other parts were stopped.
    PartFailed,
    /// A policy of its template restarts it: all of its parts were evicted, and it is queued again.
    GangRestarted,
    /// It was aborted by a policy of its template, or by a command in a member. It does not compete again before
    /// a user resumes it.
    Aborted,
    /// A cluster got something else than the part of the gang that was planned for it.
    PartsLost,
    /// Its pods cannot find each other across clusters: Karmada does not export the Services that they
    /// need.
    PodsApart,
    /// It requests more than it was admitted with; the surplus waits.
    GrowthHeld,
    /// An override makes its Works request more than was admitted; the message names the policy. The excess
    /// is charged, and the job is evicted unless the override goes.
    OverrideExceeds,
    /// Its admission record cannot be read by this version of Muster: it is charged for what runs,
    /// and nothing of it is changed.
    RecordUnreadable,
    /// Another client changed its admission record or finalizer, and Muster restored it.
    RecordChanged,
    /// It was opened by hand, without admission, and was closed again.
    OpenedByHand,
    /// The next attempts of it are not placed on nodes where its pods failed, as a FaultPolicy says; or its kind
    /// cannot avoid nodes.
    JobAvoidsNode,
    // What has happened to nodes and clusters: events of Clusters.
    /// A node of the cluster is avoided because of faults: no new pods start there.
    NodeAvoided,
    /// A node of the cluster is avoided no more.
    NodeReturned,
    /// An outside operator is asked to repair an avoided node of the cluster, or has failed to.
    NodeRemediation,
    /// The cluster takes new jobs again.
    ClusterResumed,
    /// A FaultPolicy in a dry run would have avoided a node or paused the cluster. Nothing was done.
    FaultPolicyDryRun,
}

impl Reason {
    /// True for a reason why a job is not admitted; the others say what has happened to it.
    #[must_use]
    pub fn is_of_waiting(self) -> bool {
        self < Self::Admitted
    }

    /// True if the queue of the job takes no jobs at all, whatever they request.
    #[must_use]
    pub fn is_of_queue(self) -> bool {
        use Reason::{QueueClosed, QueueInvalid, QueueNotFound, QueueNotLeaf, QueueStopped};
        matches!(
            self,
            QueueClosed | QueueInvalid | QueueNotFound | QueueNotLeaf | QueueStopped
        )
    }

    /// True if the job waits until a person changes it, its queue or the fleet, and none meant it to wait.
    #[must_use]
    pub fn needs_change(self) -> bool {
        let meant = matches!(
            self,
            Self::Suspended | Self::ScaledToZero | Self::OnHold | Self::QueueStopped
        );
        self < Self::WaitingForQuota && !meant
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
