//! What a reconcile wants done, as values. The core hands them on in the order in which they were pushed.

use crate::avoided_nodes::{ClusterEvent, RemediationChange, TaintChange};
use crate::messages::job_event::JobEvent;
use crate::mirror::template::TemplateKind;
use binding_writer::Intent;
use crds::karmada::{ObjectReference, ResourceBinding};
use crds::queue::Queue;
use crds::record::AvoidedByJob;
use engine::decision::PrePull;
use engine::facts::Share;
use engine::{Attempt, ClusterName, JobKey, QueueName, Uid};
use scheduler::PlacementRequest;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use workload::{AdmittedRequests, Reach};

/// A job and its binding at the time of a request.
#[derive(Debug, Clone)]
pub(crate) struct BoundJob {
    pub(crate) key: JobKey,
    pub(crate) binding: Arc<ResourceBinding>,
}

/// The part of each cluster in an attempt, and how its pods reach the other parts.
#[derive(Debug, Clone)]
pub(crate) struct PlacedParts {
    pub(crate) attempt: Attempt,
    pub(crate) shares: Vec<Share>,
    pub(crate) reach: Reach,
}

/// What kind of override the Works of an attempt show.
#[derive(Debug, Clone)]
pub(crate) struct OverrideShape {
    /// True if its parts can be resized.
    pub(crate) resizable: bool,
    /// True if it does not split the job.
    pub(crate) whole: bool,
    /// The nodes that the job avoids.
    pub(crate) avoided: Vec<AvoidedByJob>,
}

/// What a reconcile wants done.
#[derive(Debug)]
pub(crate) enum ReconcileAction {
    /// For the publisher.
    Publish(Publication),
    /// Watch a kind of templates, if it is not watched yet.
    WatchTemplates(TemplateKind),
    /// For [`crate::effects`].
    Effect(Effect),
}

impl From<Publication> for ReconcileAction {
    fn from(publication: Publication) -> Self {
        Self::Publish(publication)
    }
}

impl From<Effect> for ReconcileAction {
    fn from(effect: Effect) -> Self {
        Self::Effect(effect)
    }
}

/// Of what users are shown something else.
#[derive(Debug)]
pub(crate) enum Publication {
    /// A job.
    Job(JobKey),
    /// A queue.
    Queue(QueueName),
    /// A fault policy.
    FaultPolicy(String),
    /// A deleted job: what was published of it is dropped.
    Gone(JobKey),
}

/// What is done outside of the process: at the API server, in members, by the scheduler.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Write a binding. All writes of a pass are submitted together at its end.
    WriteBinding(Box<Intent>),
    /// Record an event on a user's object.
    RecordEvent {
        object: ObjectReference,
        event: JobEvent,
    },
    /// Post a notice to the operator's webhook.
    Notify(ClusterEvent),
    /// Ask whether a namespace may use a queue, if that was not asked yet.
    AskRight { namespace: String, queue: QueueName },
    /// Let the scheduler of this process check a placement and prepare its members.
    PreparePlacement {
        key: JobKey,
        request: Box<PlacementRequest>,
    },
    /// Let the scheduler of this process drop what it assumes of a job's placement.
    ForgetPlacement(JobKey),
    /// Check what a placed job needs in its members, and create what is missing.
    RenewMembers {
        key: JobKey,
        clusters: Vec<ClusterName>,
        api: String,
        queue: QueueName,
        priority_classes: BTreeSet<String>,
    },
    /// Ask the API server whether Works of a job are left. Works that are being deleted in clusters out of
    /// service do not count; pods that a member preserves do.
    CheckWorks {
        job: BoundJob,
        out_of_service: BTreeSet<String>,
        preserving: BTreeSet<ClusterName>,
    },
    /// Delete the Works that Karmada has left behind.
    RemoveWorks(BoundJob),
    /// Ask a member whether it has applied the smaller size of a job.
    ConfirmSize {
        job: BoundJob,
        attempt: Attempt,
        cluster: ClusterName,
        /// The number of pods that its override sets, if there is one.
        held: Option<u32>,
    },
    /// Ask a member what its scheduler says of the pods of a job that it has not bound.
    AskScheduler {
        key: JobKey,
        attempt: Attempt,
        cluster: ClusterName,
    },
    /// Write the override of a job again that its Works have to show; only its numbers of pods if it is `resizable`.
    WriteOverride {
        job: BoundJob,
        parts: PlacedParts,
        how: OverrideShape,
    },
    /// Delete the override of an attempt that is over.
    ClearOverride { job: BoundJob, attempt: Attempt },
    /// Pin a job to what was admitted, by an override rendered from its current template.
    PinJob {
        job: BoundJob,
        pods: BTreeMap<String, u32>,
        requests: AdmittedRequests,
    },
    /// Delete the pin of a job.
    UnpinJob(JobKey),
    /// Keep members from deleting a finished job; `path` is the field that would make them do so.
    KeepInMembers { job: BoundJob, path: &'static str },
    /// Delete the template of a job in this version.
    DeleteTemplate {
        job: BoundJob,
        resource_version: String,
    },
    /// Delete a binding that nothing owns any more, if its template is gone.
    DeleteOrphan(BoundJob),
    /// Check the Services by which the pods of a job find each other, and write them.
    CheckServices { job: BoundJob, parts: PlacedParts },
    /// Delete what Karmada may leave of Services in a namespace.
    SweepServices { namespace: String },
    /// Change the taint of a node in a member.
    TaintNode(TaintChange),
    /// Write or delete a NodeRemediation.
    WriteRemediation(RemediationChange),
    /// Pull the images of a job on reserved nodes, and give that up after so many seconds.
    PrePull {
        job: BoundJob,
        pull: Box<PrePull>,
        seconds: i64,
    },
    /// Delete what pulls the images of the template with this UID in a cluster.
    EndPrePull { cluster: ClusterName, uid: Uid },
    /// Remove the finalizer with which an earlier version kept a queue.
    FreeQueue(Box<Queue>),
    /// Mark a namespace whose earlier workloads are all adopted, or remove the mark.
    MarkNamespace {
        namespace: String,
        version: Option<String>,
        adopted_at: Option<String>,
    },
}
