//! Reasons for the state of a job: one closed list for all of Muster.
//!
//! A reason is a stable CamelCase word that users filter and alert on; the message beside it has
//! the details of the job. A new reason is added here, with who acts on it and how if anyone does.
//! `docs/reference/reasons.md` is generated from this list.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Who can end the state that a reason names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// No one has to: it ends by itself.
    NoOne,
    /// Who submitted the job, or may edit it.
    User,
    /// Who may change the queue (ClusterRole `muster-queue-admin`).
    QueueAdmin,
    /// Who runs Muster, Karmada and the members.
    Operator,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoOne => "no one",
            Self::User => "user",
            Self::QueueAdmin => "queue admin",
            Self::Operator => "operator",
        })
    }
}

/// What ends the state that a reason names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextStep {
    /// Who acts.
    pub who: Actor,
    /// What they do, or what is waited for: Markdown, with links relative to `docs/reference`.
    pub what: &'static str,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident $(: $who:ident $what:literal)?,)+) => {
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

            /// Returns what ends this state; `None` for a reason that reports what has happened.
            #[must_use]
            pub fn next_step(self) -> Option<NextStep> {
                match self {
                    $(Reason::$name => {
                        let step: &[NextStep] = &[$(NextStep { who: Actor::$who, what: $what })?];
                        step.first().copied()
                    })+
                }
            }
        }
    };
}

reasons! {
    // The job or its configuration must change before it can be evaluated.
    /// Its owner has suspended it.
    Suspended: User "Set the field that suspends it (`spec.suspend`, `spec.runPolicy.suspend`) to false.",
    /// Its template asks for no pods: it holds nothing, and is queued at its size once it asks for some.
    ScaledToZero: User "Scale it up when it is to run.",
    /// It is on hold by its label muster.io/hold, and is not admitted until the label is removed.
    OnHold: User "`kubectl muster release NAME` when it is to compete again.",
    /// Its size cannot be computed from its template or binding.
    SizeUnknown: User
        "Use a kind that is supported, or state the size as [described](jobs.md); the message says what is missing.",
    /// A value in its template is invalid; the message names field and value.
    InvalidTemplate: User "Correct the field that the message names.",
    /// Two workloads of this namespace need the same ResourceBinding; the message names both.
    BindingNameCollision: User "Rename one of the two workloads.",
    /// No propagation policy claims it. It stays where it is, is charged, and is not admitted.
    PolicyNotFound: User
        "Create a PropagationPolicy that selects it, or ask an operator to.",
    /// No propagation policy selects an object of its kind: it is neither queued nor started. The message says
    /// what to do.
    KindNotSelected: User "Do what the message says: use a selected kind, or have a policy select this one.",
    /// Its propagation policy keeps resources in the members when they are deleted
    /// (preserveResourcesOnDeletion), so that its quota could not be freed.
    ResourcesPreserved: User "Set `preserveResourcesOnDeletion` of its policy to false.",
    /// Its propagation policy names another scheduler.
    WrongScheduler: User "Delete its policy, and create it again with `schedulerName: muster`.",
    /// Its propagation policy asks for something that is not done for a job. The message names the field and what to
    /// do instead.
    PolicyNotFollowed: User "Change the field of the policy that the message names.",
    /// The placement of its propagation policy is too large, or the API server has refused it or an OverridePolicy or
    /// Service that it needs. The message says why.
    /// It waits until its template or that placement changes.
    PlacementRefused: User "Do what the message says, then edit the template or the placement; the job is tried again.",
    /// The queue that it names does not exist.
    QueueNotFound: User "Name a queue that exists; `kubectl get queues.scheduling.volcano.sh` lists them.",
    /// Its queue takes no jobs: it is closed or closing.
    QueueClosed: QueueAdmin "Open the queue; or the user names another one with `kubectl muster move`.",
    /// Its queue is stopped by its stopPolicy: it admits no jobs, and if it is drained, has evicted this one.
    QueueStopped: QueueAdmin "`kubectl muster queue resume NAME` when it is to admit jobs again.",
    /// Its queue has children, and only leaf queues take jobs.
    QueueNotLeaf: User "Name one of the queues below it.",
    /// Its queue or CapacityPolicy has an invalid value, or a broken chain of parents.
    QueueInvalid: QueueAdmin "Correct what the condition of the CapacityPolicy or Queue names.",
    /// Neither its namespace nor its user may use its queue.
    QueueNotPermitted: QueueAdmin
        "Add the namespace or user to the queue's CapacityPolicy; or the user names another queue.",
    /// The PriorityClass that it names does not exist.
    PriorityClassNotFound: User "Name a PriorityClass that exists, or none.",
    /// Its queue takes no jobs of its PriorityClass.
    PriorityClassNotPermitted: User "Name a PriorityClass that the queue takes; the message lists them.",
    // The job could not start even on an empty fleet.
    /// It requests more than the capability of its queue or of an ancestor.
    ExceedsCapability: User "Ask for less, or name a larger queue; a queue admin may raise the capability.",
    /// It requests more than one user or one namespace may use in its queue or an ancestor.
    ExceedsLimit: User "Ask for less; a queue admin may raise the limit.",
    /// No member cluster is eligible for it: affinity, taints, API enablement or health.
    NoEligibleCluster: User
        "Change what leaves out each cluster that the message names; an operator may have to make one healthy.",
    /// It is larger than any cluster it may run in, even empty.
    ExceedsFleet: User "Ask for fewer or smaller pods, or allow the job to be [split](../how-to/split.md).",
    // The job waits.
    /// Its queue, or an ancestor, has too little quota free.
    WaitingForQuota: NoOne "It starts when quota becomes free. [How to wait less](../how-to/wait-less.md).",
    /// No cluster has free capacity for the whole gang now.
    WaitingForRoom: NoOne "It starts when nodes become free. [How to wait less](../how-to/wait-less.md).",
    /// What it needs is reserved for a job ahead of it.
    ReservedForAnother: NoOne
        "It starts after the jobs that the message names, or before them if it says how long it runs and ends in time.",
    /// It is next: what becomes free is reserved for it.
    NextInLine: NoOne "It starts next.",
    /// A job ahead of it in a strictly ordered queue has to start first.
    BehindHead: NoOne "It starts after the first job of its queue.",
    /// Its queue, or an ancestor, has reached its limit of admitted jobs.
    JobLimitReached: NoOne "It starts when another job of the queue ends.",
    /// Its user has reached the limit of admitted jobs in this queue.
    UserJobLimitReached: NoOne "It starts when another job of its user ends.",
    /// With it, its user would use more of a resource than a user may use in its queue or an ancestor.
    UserResourceLimitReached: NoOne "It starts when other jobs of its user end.",
    /// With it, its namespace would use more of a resource than a namespace may use in its queue or an ancestor.
    NamespaceResourceLimitReached: NoOne "It starts when other jobs of its namespace end.",
    /// Its queue has reached its limit of jobs that compete; it does not compete yet.
    PendingLimitReached: NoOne "It competes when jobs before it have started.",
    /// It is next: jobs are being evicted for it, and what becomes free is reserved for it.
    AwaitingEviction: NoOne "It starts when the evicted jobs are gone.",
    /// It was evicted and waits for the end of its back-off.
    BackingOff: NoOne "It competes again after the time that the message names.",
    /// Every cluster that could take it is paused: many jobs failed there within a short time, and it takes no
    /// new ones for a while.
    ClusterPaused: Operator
        "Find the cause of the failures, then follow [MusterClusterPaused](../runbooks/MusterClusterPaused.md).",
    /// It has not been evaluated yet.
    NotEvaluated: NoOne "It is evaluated within seconds.",
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
    RuntimeLimitExceeded: User "Submit it again, from a checkpoint or to a queue that allows more; a queue admin may raise the limit.",
    /// It was evicted because its pods did not start in time.
    StartDeadlineExceeded: NoOne "It is queued again, and avoids the cluster for a while. The message says what kept its pods.",
    /// Something keeps its pods from running on their nodes: an image, a volume, a container. The message says
    /// what.
    PodsNotStarting: User "Correct what the message names: an image, a volume, a command.",
    /// Nodes refuse its pods, which a scheduler of their cluster has bound there. The message says why.
    PodsRefused: Operator "See [MusterPodsRefused](../runbooks/MusterPodsRefused.md).",
    /// For more than a minute a scheduler of its cluster has not bound the pods that it needs.
    PodsNotScheduled: Operator "See [MusterPodsNotScheduled](../runbooks/MusterPodsNotScheduled.md).",
    /// Its pods could not start through a fault of its own, such as an image that does not exist. It does not
    /// compete again until its template changes.
    PodsCannotStart: User "Correct the template as the message says.",
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
    FailureRetried: NoOne "It tries again; look at the output of the attempt that failed.",
    /// It was evicted because it made no progress: it had no heartbeat for longer than it says it may.
    NoProgress: NoOne "It is queued again. If it was not stuck, have it report progress, or allow it more time.",
    /// It was evicted because one of its clusters is being emptied.
    ClusterDrained,
    /// It was evicted because a node that it ran on ends (spot capacity, or maintenance), or was drained.
    NodeEnding,
    /// The scheduler could not carry out its plan.
    PlanRefused,
    /// A member cluster refused it; the message is the member's.
    MemberRefused: Operator "Change what the cluster's message names: a quota, an admission webhook, a missing kind.",
    /// A part of its gang failed in one cluster; the other parts were stopped.
    PartFailed,
    /// A policy of its template restarts it: all of its parts were evicted, and it is queued again.
    GangRestarted,
    /// It was aborted by a policy of its template, or by a command in a member. It does not compete again before
    /// a user resumes it.
    Aborted: User
        "[Resume](../how-to/volcano-job.md#policies-over-several-clusters) the attempt that the message names.",
    /// A cluster got something else than the part of the gang that was planned for it.
    PartsLost,
    /// Its pods cannot find each other across clusters: Karmada does not export the Services that they
    /// need.
    PodsApart: Operator "Let Karmada export the Services, as [described](../operators/members.md).",
    /// It requests more than it was admitted with; the surplus waits.
    GrowthHeld: NoOne "It keeps what it has, and grows when the surplus fits. Undo the edit to give it up.",
    /// An override makes its Works request more than was admitted; the message names the policy. The excess
    /// is charged, and the job is evicted unless the override goes.
    OverrideExceeds: Operator "Remove or change the override that the message names.",
    /// Its admission record cannot be read by this version of Muster: it is charged for what runs,
    /// and nothing of it is changed.
    RecordUnreadable: Operator "See [MusterRecordsUnreadable](../runbooks/MusterRecordsUnreadable.md).",
    /// Another client changed its admission record or finalizer, and Muster restored it.
    RecordChanged: Operator "Find the client in the API server's audit log; it may not write what is Muster's.",
    /// It was opened by hand, without admission, and was closed again.
    OpenedByHand: Operator "Find the client in the API server's audit log; it may not start jobs past the queue.",
    /// The next attempts of it are not placed on nodes where its pods failed, as a FaultPolicy says; or its kind
    /// cannot avoid nodes.
    JobAvoidsNode,
    // What has happened to nodes and clusters: events of Clusters.
    /// A node of the cluster is avoided because of faults: no new pods start there.
    NodeAvoided: Operator
        "Repair the node, then `kubectl muster nodes clear`; see [MusterNodesAvoided](../runbooks/MusterNodesAvoided.md).",
    /// A node of the cluster is avoided no more.
    NodeReturned,
    /// An outside operator is asked to repair an avoided node of the cluster, or has failed to.
    NodeRemediation: Operator
        "If it has failed, see [MusterNodeRemediationFailed](../runbooks/MusterNodeRemediationFailed.md).",
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
