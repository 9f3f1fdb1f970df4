//! Events: how facts come in. Each is idempotent; none reads a clock.

use crate::amounts::resources::Resources;
use crate::api::facts::{
    Admission, ClusterFact, JobFact, Leaving, NodeFact, PodFact, PolicyFact, PriorityClassFact,
    QueueFact,
};
use crate::api::ids::{Attempt, ClusterName, JobKey, NodeName, QueueName, Time, Uid};
use crate::api::reason::Reason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Something that became known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A queue exists, or changed.
    QueueUpserted(QueueFact),
    /// A queue is gone. What it holds stays charged to its name.
    QueueGone(QueueName),
    /// A queue's policy exists, or changed.
    PolicyUpserted(PolicyFact),
    /// A queue's policy is gone; defaults hold.
    PolicyGone(QueueName),
    /// A priority class exists, or changed. Jobs already released keep what they have.
    PriorityClassUpserted(PriorityClassFact),
    /// A priority class is gone; queued jobs that name it wait.
    PriorityClassGone(String),
    /// A member cluster exists, or changed.
    ClusterUpserted(ClusterFact),
    /// A member cluster is gone, with its nodes and pods.
    ClusterGone(ClusterName),
    /// A node exists, or changed.
    NodeUpserted(NodeFact),
    /// A node is gone.
    NodeGone(ClusterName, NodeName),
    /// A pod exists, or changed.
    PodUpserted(PodFact),
    /// A pod is gone.
    PodGone(ClusterName, Uid),
    /// A job is there, or its template, binding or hold changed.
    JobUpserted(JobFact),
    /// A job was found released, by its admission record, or running before Muster managed it.
    /// Told once at start for every such job before the first decision, and whenever a record
    /// is found that the engine did not write. Charged as it says.
    JobAdmitted {
        /// The job.
        key: JobKey,
        /// What was admitted.
        admission: Admission,
        /// How far it has come.
        progress: Progress,
    },
    /// A released job went on.
    JobProgressed {
        /// The job.
        key: JobKey,
        /// The attempt that went on; an older one is ignored.
        attempt: Attempt,
        /// How far it has come.
        progress: Progress,
        /// When.
        at: Time,
    },
    /// A released job's plan could not be carried out: nothing of it was written. Quota and
    /// room are given back at once and the job is queued again at its old place. Ignored once
    /// the job was told to be placed: then something was written.
    JobRefused {
        /// The job.
        key: JobKey,
        /// The attempt that was refused.
        attempt: Attempt,
        /// Why.
        reason: Reason,
        /// In words, with names and numbers.
        message: String,
        /// A cluster to leave out until the back-off has passed, if that is where it failed.
        avoid: Option<ClusterName>,
        /// When.
        at: Time,
    },
    /// The controller began to take a released job back for a reason of its own (suspended by
    /// its owner, refused by a member, template deleted). It stays charged until
    /// [`Event::JobWorksGone`] or [`Event::JobGone`].
    JobEnding {
        /// The job.
        key: JobKey,
        /// Why.
        reason: Reason,
        /// In words.
        message: String,
        /// A cluster to leave out until the back-off has passed, if that is where it failed.
        avoid: Option<ClusterName>,
        /// When.
        at: Time,
    },
    /// Pods of a released job were told to go by an earlier process, and have not been seen gone.
    /// Told once at start, after the job's admission; the engine remembers those it told itself.
    JobLeaving {
        /// The job.
        key: JobKey,
        /// The attempt that was resized; any other is ignored.
        attempt: Attempt,
        /// What leaves.
        leaving: Vec<Leaving>,
    },
    /// The member shows that a shrink has arrived: of the job's pods in this cluster no more
    /// than `pods` are there or can still be started. To be told only once the member has
    /// observed the size that was written last (its object's generation) and the pods beyond
    /// it are gone; what they were charged, and their room, comes free with it. A level: told
    /// again it changes nothing. Without it a shrunk job stays charged until it ends.
    JobResized {
        /// The job.
        key: JobKey,
        /// The attempt that was resized; an older one is ignored.
        attempt: Attempt,
        /// The cluster.
        cluster: ClusterName,
        /// Pods of the job that may be there at most from now on.
        pods: u32,
        /// When.
        at: Time,
    },
    /// The members of an admitted job run more than was admitted: an override was
    /// applied after the charge. It is charged beside the admission, even beyond capability. A level:
    /// the last one holds, and an empty one ends it. It must not contain what was admitted,
    /// what leaves ([`Event::JobLeaving`]), nor what the template asks for by now
    /// ([`Event::JobUpserted`]): these are charged already.
    JobExceeds {
        /// The job.
        key: JobKey,
        /// The attempt that it is about; any other is ignored.
        attempt: Attempt,
        /// What is beyond the admission, by cluster.
        excess: BTreeMap<ClusterName, Resources>,
    },
    /// A job was found stopped for its queue's limit of run time, by its record: it does not
    /// compete until it is made again or the limit is above what it ran. Told once at start for
    /// every such job; the engine remembers those it stopped itself.
    JobStopped {
        /// The job.
        key: JobKey,
        /// UID of the template that was stopped.
        uid: Uid,
        /// Milliseconds that it had run.
        ran_ms: i64,
    },
    /// Nothing of a job that was ending is left in any member: its charge ends, and it is
    /// queued again (unless held) with the back-off that its attempts call for.
    JobWorksGone {
        /// The job.
        key: JobKey,
        /// When.
        at: Time,
    },
    /// The binding and every Work of it are gone: the job is forgotten, its charge ends.
    JobGone(JobKey),
}

/// How far a released job has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// The release was decided and is being written.
    Assumed,
    /// The watch shows the placement.
    Placed,
    /// Members report that it runs.
    Running,
    /// It ended; its charge ends with it. Told again as Running if it comes back to life.
    Finished,
    /// It is being evicted or deleted and its Works are not all gone.
    Ending,
}
