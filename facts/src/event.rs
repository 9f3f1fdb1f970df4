//! Events: the inputs of the engine. Each is idempotent and carries its own time.

use crate::faults::FaultRuleSet;
use crate::ids::{Attempt, ClusterName, JobKey, NodeName, QueueName, Time, Uid};
use crate::images::NodeImages;
use crate::objects::{
    Admission, ClusterFact, JobFact, Leaving, NodeFact, PodFact, PolicyFact, PriorityClassFact,
    QueueFact,
};
use crate::reason::Reason;
use crate::resources::Resources;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An observed change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A queue exists or has changed.
    QueueUpserted(QueueFact),
    /// A queue is gone. Its admitted jobs stay charged to its name.
    QueueGone(QueueName),
    /// A queue's policy exists or has changed.
    PolicyUpserted(PolicyFact),
    /// A queue's policy is gone; the defaults apply.
    PolicyGone(QueueName),
    /// A priority class exists or has changed. Admitted jobs keep their priority.
    PriorityClassUpserted(PriorityClassFact),
    /// A priority class is gone; queued jobs that name it wait.
    PriorityClassGone(String),
    /// A member cluster exists or has changed.
    ClusterUpserted(ClusterFact),
    /// A member cluster is gone, with its nodes and pods.
    ClusterGone(ClusterName),
    /// A node exists or has changed.
    NodeUpserted(NodeFact),
    /// A node is gone.
    NodeGone(ClusterName, NodeName),
    /// A node has other large images than before. A node has none until this says otherwise, and after it is gone.
    NodeImages(NodeImages),
    /// A pod exists or has changed.
    PodUpserted(PodFact),
    /// A pod is gone.
    PodGone(ClusterName, Uid),
    /// Muster manages a namespace from now on, or not any more. Pods there that belong to no known job are charged
    /// to `queue`, which the namespace's jobs use by default; `None` for a namespace that is not managed.
    Namespace {
        /// Its name.
        name: Arc<str>,
        /// The queue.
        queue: Option<QueueName>,
    },
    /// An object has so many pods which ended by themselves that no more of them are reported one by one. This
    /// many others are there.
    PodsEnded {
        /// The cluster.
        cluster: ClusterName,
        /// The object that controls them.
        owner: Uid,
        /// The job that they belong to.
        job: Option<JobKey>,
        /// Their number; 0 once there are none.
        pods: u32,
    },
    /// The rules that classify faults have changed. Without this event every fault is `Unknown`.
    FaultRulesChanged(FaultRuleSet),
    /// A job exists, or its template, binding or hold has changed.
    JobUpserted(JobFact),
    /// A job has an admission record, or ran before Muster managed it. It is charged as the
    /// admission says. Every such job is reported once at start, before the first decision, and
    /// whenever a record is found that the engine did not write.
    JobAdmitted {
        /// The job.
        key: JobKey,
        /// The admission.
        admission: Admission,
        /// Its progress.
        progress: Progress,
    },
    /// An admitted job has made progress.
    JobProgressed {
        /// The job.
        key: JobKey,
        /// The attempt; an older one is ignored.
        attempt: Attempt,
        /// Its progress.
        progress: Progress,
        /// When.
        at: Time,
    },
    /// An admitted job's plan could not be carried out, and nothing of it was written. Quota and
    /// capacity are free again at once, and the job is queued at its old position. Ignored once
    /// the job is observed placed: then something was written.
    JobRefused {
        /// The job.
        key: JobKey,
        /// The attempt that was refused.
        attempt: Attempt,
        /// Why.
        reason: Reason,
        /// Why in words, with names and numbers.
        message: String,
        /// The cluster that failed, if one did: it is avoided until the back-off has passed.
        avoid: Option<ClusterName>,
        /// When.
        at: Time,
    },
    /// An admitted job's plan was not handed over at all, since a write of its binding is open. The attempt did
    /// not happen: its number is used again, and the job competes again shortly. Ignored once the job is
    /// observed placed.
    JobWithdrawn {
        /// The job.
        key: JobKey,
        /// The attempt that was withdrawn.
        attempt: Attempt,
        /// When.
        at: Time,
    },
    /// The controller has begun to evict an admitted job for a reason of its own (suspended by its
    /// owner, refused by a member, template deleted). It stays charged until
    /// [`Event::JobWorksGone`] or [`Event::JobGone`].
    JobEnding {
        /// The job.
        key: JobKey,
        /// Why.
        reason: Reason,
        /// Why in words.
        message: String,
        /// The cluster that failed, if one did: it is avoided until the back-off has passed.
        avoid: Option<ClusterName>,
        /// When.
        at: Time,
    },
    /// Pods of an admitted job are terminating since a shrink by an earlier process. Reported once
    /// at start, after the job's admission; the engine remembers the shrinks that it decided.
    JobLeaving {
        /// The job.
        key: JobKey,
        /// The attempt that was resized; any other is ignored.
        attempt: Attempt,
        /// The terminating pods.
        leaving: Vec<Leaving>,
    },
    /// A shrink is complete in a member: at most `pods` pods of the job are in this cluster or
    /// can still be started. Reported only once the member has observed the size that was written
    /// last (its object's generation) and the pods beyond it are gone. Their charge and capacity
    /// are free from then on; without this event they stay charged until the job ends.
    JobResized {
        /// The job.
        key: JobKey,
        /// The attempt that was resized; an older one is ignored.
        attempt: Attempt,
        /// The cluster.
        cluster: ClusterName,
        /// The most pods of the job in the cluster from now on.
        pods: u32,
        /// When.
        at: Time,
    },
    /// The members run more of an admitted job than was admitted: an override was applied after
    /// the admission. The excess is charged beside the admission, even beyond capability. The last
    /// event replaces earlier ones, and an empty one ends the excess. It must not contain what is
    /// charged already: the admission, terminating pods ([`Event::JobLeaving`]) and the current
    /// template ([`Event::JobUpserted`]).
    JobExceeds {
        /// The job.
        key: JobKey,
        /// The attempt; any other is ignored.
        attempt: Attempt,
        /// The resources beyond the admission, by cluster.
        excess: BTreeMap<ClusterName, Resources>,
    },
    /// A job's record says that it was stopped at its queue's limit of run time. It does not
    /// compete until it is re-created or the limit is raised above its run time. Reported once at
    /// start for every such job; the engine remembers those that it stopped.
    JobStopped {
        /// The job.
        key: JobKey,
        /// UID of the template that was stopped.
        uid: Uid,
        /// Its run time in milliseconds.
        ran_ms: i64,
    },
    /// No Work of an ending job is left in any member. Its charge ends, and it is queued again
    /// (unless held) with the back-off for its number of attempts.
    JobWorksGone {
        /// The job.
        key: JobKey,
        /// When.
        at: Time,
    },
    /// The binding and all its Works are gone. The job is forgotten and its charge ends.
    JobGone(JobKey),
}

/// The progress of an admitted job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// The admission is decided and is being written.
    Assumed,
    /// The watch shows the placement.
    Placed,
    /// Members report that it runs.
    Running,
    /// It has ended, and its charge with it. If it comes back to life, it is Running again.
    Finished,
    /// It is being evicted or deleted, and some of its Works are left.
    Ending,
}
