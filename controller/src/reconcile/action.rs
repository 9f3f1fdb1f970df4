//! What a reconcile asks for outside the process: values, which [`crate::effects`] carries out in the
//! order in which they were pushed.

use crate::mirror::template::TemplateKind;
use crate::status::events::JobEvent;
use binding_writer::Intent;
use crds::karmada::{ObjectReference, ResourceBinding};
use crds::queue::Queue;
use engine::facts::Share;
use engine::{Attempt, ClusterName, JobKey, QueueName};
use scheduler::PlacementRequest;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use workload::{AdmittedRequests, Reach};

/// A job and its binding as they were when an action was asked for.
#[derive(Debug, Clone)]
pub(crate) struct BoundJob {
    pub(crate) key: JobKey,
    pub(crate) binding: Arc<ResourceBinding>,
}

/// The part of each cluster in an attempt, and how its pods reach those of the others.
#[derive(Debug, Clone)]
pub(crate) struct PlacedParts {
    pub(crate) attempt: Attempt,
    pub(crate) shares: Vec<Share>,
    pub(crate) reach: Reach,
}

/// One effect of a reconcile.
#[derive(Debug)]
pub(crate) enum ReconcileAction {
    /// Write a binding. The writes of a pass are submitted at its end, together.
    WriteBinding(Box<Intent>),
    /// Record an event on a user's object.
    RecordEvent {
        object: ObjectReference,
        event: JobEvent,
    },
    /// Publish what a job shows.
    PublishJob(JobKey),
    /// Publish what a queue shows.
    PublishQueue(QueueName),
    /// Forget what was published of a job: it is gone.
    ForgetJob(JobKey),
    /// Watch a kind of templates, unless it is watched.
    WatchTemplates(TemplateKind),
    /// Ask whether a namespace may use a queue, unless that was asked.
    AskRight { namespace: String, queue: QueueName },
    /// Have the scheduler of this process check a placement and prepare its members.
    PreparePlacement {
        key: JobKey,
        request: Box<PlacementRequest>,
    },
    /// Have the scheduler of this process forget what it assumes of a job's placement.
    ForgetPlacement(JobKey),
    /// Look for what a placed job needs in its members, and make what is not there.
    RenewMembers {
        key: JobKey,
        clusters: Vec<ClusterName>,
        api: String,
        queue: QueueName,
        priority_classes: BTreeSet<String>,
    },
    /// Ask the API server whether Works of a job are left: not those that are being deleted in
    /// clusters out of service, and pods that a member preserves as well.
    CheckWorks {
        job: BoundJob,
        out_of_service: BTreeSet<String>,
        preserving: BTreeSet<ClusterName>,
    },
    /// Remove the Works that Karmada has left behind.
    RemoveWorks(BoundJob),
    /// Ask a member whether it has taken up that a job is smaller.
    ConfirmSize {
        job: BoundJob,
        attempt: Attempt,
        cluster: ClusterName,
        /// The pods that its override makes it have, where one does.
        held: Option<u32>,
    },
    /// Write the override of a job in parts again; only its numbers of pods where it is `resizable`.
    WriteOverride {
        job: BoundJob,
        parts: PlacedParts,
        resizable: bool,
    },
    /// Remove the override of an attempt that is over.
    ClearOverride { job: BoundJob, attempt: Attempt },
    /// Pin a job to what was admitted, by an override made from its template as it is now.
    PinJob {
        job: BoundJob,
        pods: BTreeMap<String, u32>,
        requests: AdmittedRequests,
    },
    /// Remove the pin of a job.
    UnpinJob(JobKey),
    /// Keep members from deleting a job that has ended; `path` is the field that would have them do so.
    KeepInMembers { job: BoundJob, path: &'static str },
    /// Delete the template of a job in this version.
    DeleteTemplate {
        job: BoundJob,
        resource_version: String,
    },
    /// See to the Services by which the pods of a job find each other.
    CheckServices { job: BoundJob, parts: PlacedParts },
    /// Remove what Karmada may leave of Services in a namespace.
    SweepServices { namespace: String },
    /// Give a queue our finalizer, or take it off.
    WriteQueueFinalizer { queue: Box<Queue>, keep: bool },
    /// Mark a namespace in which all that ran is adopted, or take the mark off.
    MarkNamespace {
        namespace: String,
        version: Option<String>,
        adopted_at: Option<String>,
    },
}
