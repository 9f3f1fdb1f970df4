//! Why a job is where it is: one flat, closed list for the whole product.
//!
//! A reason is a stable CamelCase word that users filter and alert on; what is particular to
//! a job stands in the message beside it. A new reason is added here and in
//! `docs/reference/reasons.md`, which a test keeps equal to this list.

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

            /// The word as it stands in conditions, events, logs and metrics.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name),)+ }
            }
        }
    };
}

reasons! {
    // What the job or its surroundings must change before it can be considered.
    /// Its owner has suspended it.
    Suspended,
    /// Its size cannot be computed from its template or binding.
    SizeUnknown,
    /// A value in its template is not usable; the message names field and value.
    InvalidTemplate,
    /// Two workloads of this namespace want the same ResourceBinding; the message names both.
    BindingNameCollision,
    /// No propagation policy claims it; it stays where it is, charged, and is not released.
    PolicyNotFound,
    /// Its propagation policy has members keep what it started when it is deleted or evicted
    /// (preserveResourcesOnDeletion), so that its quota could not be given back.
    ResourcesPreserved,
    /// Its propagation policy names another scheduler.
    WrongScheduler,
    /// The queue that it names does not exist.
    QueueNotFound,
    /// Its queue takes no jobs: it is closed or closing.
    QueueClosed,
    /// Its queue has children, and only leaf queues take jobs.
    QueueNotLeaf,
    /// Its queue or CapacityPolicy has a value that cannot be used, or a broken parent chain.
    QueueInvalid,
    /// Neither its namespace nor who submitted it may use its queue.
    QueueNotPermitted,
    /// The PriorityClass that it names does not exist.
    PriorityClassNotFound,
    /// Its queue takes no jobs of its PriorityClass.
    PriorityClassNotPermitted,
    // What could not be even on an empty fleet.
    /// It asks for more than its queue, or an ancestor, may ever have.
    ExceedsCapability,
    /// No member cluster is eligible for it: affinity, taints, API enablement or health.
    NoEligibleCluster,
    /// It is larger than any cluster it may run in, even empty.
    ExceedsFleet,
    // What it waits for.
    /// Its queue, or an ancestor, has too little capability free.
    WaitingForQuota,
    /// No cluster has room for the whole gang on its nodes now.
    WaitingForRoom,
    /// What it needs is reserved for a job ahead of it.
    ReservedForAnother,
    /// It is next: what frees is kept for it.
    Reserved,
    /// A job ahead of it in a strictly ordered queue has to start first.
    BehindHead,
    /// Its queue, or an ancestor, has as many jobs released as it may.
    JobLimitReached,
    /// Its user has as many jobs released in this queue as one user may.
    UserJobLimitReached,
    /// Its queue has as many jobs competing as it may; it waits outside.
    PendingLimitReached,
    /// It is next: jobs are being evicted for it, and what frees is kept for it.
    AwaitingEviction,
    /// It was evicted and waits for its back-off to pass.
    BackingOff,
    /// It has not been looked at yet.
    NotEvaluated,
    // What happened to it.
    /// It was released: quota is charged and a plan is made.
    Admitted,
    /// Its placement was written.
    Placed,
    /// It ran before Muster managed it, and is charged as it is.
    Adopted,
    /// Enough of its pods run.
    Running,
    /// It ended; how, its outcome says.
    Finished,
    /// It ended well.
    Succeeded,
    /// It failed.
    Failed,
    /// It is being deleted; its charge stays until its Works are gone.
    Deleting,
    /// It was evicted; its charge stays until its Works are gone.
    Evicted,
    /// It was evicted, or shrunk, for a queue that had less than it deserves.
    Reclaimed,
    /// It was evicted, or shrunk, for a job of higher priority in its queue.
    Preempted,
    /// It ran longer than its queue allows and was stopped; it does not compete again.
    RuntimeLimitExceeded,
    /// It was evicted because its pods did not start in time.
    StartDeadlineExceeded,
    /// It was evicted because the room it was given is gone.
    RoomLost,
    /// It lost pods while it ran and is below its minimum: it is evicted and queued again unless they are
    /// replaced in time.
    PodsLost,
    /// It was evicted because a cluster that it was in is being emptied.
    ClusterDrained,
    /// The scheduler could not carry its plan out.
    PlanRefused,
    /// A member cluster refused it; the message is the member's.
    MemberRefused,
    /// A part of its gang failed in one cluster; the other parts were stopped.
    PartFailed,
    /// What goes to a cluster is not the part of the gang that was planned for it.
    PartsLost,
    /// Its pods cannot find each other from different clusters: Karmada does not carry the Services
    /// by which they would.
    PodsApart,
    /// It asks for more than it was admitted with; the surplus is held.
    GrowthHeld,
    /// An override has its Works ask for more than it was admitted with; the message names the policy. The
    /// excess is charged, and the job is evicted unless the override goes.
    OverrideExceeds,
    /// Its admission record cannot be read by this version of Muster: it is charged for what runs,
    /// and nothing of it is changed.
    RecordUnreadable,
    /// Its admission record or finalizer was changed by somebody else than Muster and put back.
    RecordChanged,
    /// It was opened by hand, without admission, and was closed again.
    OpenedByHand,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
