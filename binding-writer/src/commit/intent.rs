//! The writes that the committer accepts, and its answers.

use crds::karmada::{ResourceBinding, TargetCluster};
use crds::record::AdmissionRecord;
use facts::{Attempt, JobKey};
use prometheus_client::encoding::EncodeLabelValue;
use std::fmt;
use std::sync::Arc;

/// One write to one binding, with the state that it was decided on.
#[derive(Debug, Clone)]
pub struct Intent {
    /// The binding when the write was decided. If what the decision depends on has changed since, nothing is
    /// written and the answer is [`WriteFailure::Conflict`].
    pub binding: Arc<ResourceBinding>,
    /// What to write.
    pub write: Write,
}

impl Intent {
    /// Returns the job whose binding it is.
    #[must_use]
    pub fn key(&self) -> JobKey {
        self.binding.job_key()
    }
}

/// A write to a binding. Each is one merge patch of Muster's own fields, guarded by the resourceVersion
/// that it was decided on.
#[derive(Debug, Clone)]
pub enum Write {
    /// Gate a managed binding that was found open without an admission: suspend scheduling, empty
    /// `spec.clusters`, add the finalizer. Without a record here, an existing one is removed, because it
    /// admits nothing.
    Gate {
        /// What is known of the job, if anything.
        record: Option<AdmissionRecord>,
    },
    /// Do what the webhook does: suspend scheduling and add the finalizer, if either is missing. The clusters
    /// do not change.
    Hold,
    /// Hand a plan over to a scheduler in another process: the record only, state Planned.
    Plan {
        /// The record.
        record: AdmissionRecord,
    },
    /// Refuse such a plan: the record only, state Refused.
    Refuse {
        /// The record.
        record: AdmissionRecord,
    },
    /// Admit and place in one patch: record, `suspension.scheduling: false`, clusters and the applied
    /// placement. The status that Karmada's components need follows later.
    Place {
        /// The record, state Admitted.
        record: AdmissionRecord,
        /// The clusters of the placement.
        clusters: Vec<TargetCluster>,
        /// The cluster affinity term that was used, if the placement has terms.
        affinity_name: Option<String>,
    },
    /// Resume dispatching that Muster suspended: every Work shows its own part, or requests no more than was
    /// admitted.
    Dispatch {
        /// The record, with its parts Dispatched, that mentions no excess.
        record: AdmissionRecord,
    },
    /// Suspend dispatching to all members: the Works request more than was admitted, or are about to.
    Suspend {
        /// The record, which says since when, or that its parts are suspended.
        record: AdmissionRecord,
    },
    /// Evict: suspend scheduling, empty the clusters, record (state Ending), in one patch.
    Evict {
        /// The record.
        record: AdmissionRecord,
    },
    /// Write the record only.
    Record {
        /// The record.
        record: AdmissionRecord,
    },
    /// Charge a job that ran before Muster managed it: record and finalizer, no gate.
    Adopt {
        /// The record.
        record: AdmissionRecord,
    },
    /// Remove the finalizer: no Work of a deleted binding is left.
    Finalize,
    /// Make members delete what a Work applied when the Work is deleted, whatever the policy says.
    RemoveWithWorks,
    /// Stop managing: remove gate, record and finalizer; other suspensions stay.
    StopManaging,
    /// Place a binding that is no workload (a ConfigMap under a policy that names Muster). Nothing of it is
    /// queued or charged, and no other scheduler would place it.
    Spread {
        /// Every cluster that its placement selects.
        clusters: Vec<TargetCluster>,
    },
    /// Confirm that the scheduler has seen the binding's generation (status only).
    Ack {
        /// True if a request to reschedule was answered; `lastScheduledTime` then says so.
        reschedule: bool,
    },
}

impl Write {
    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> WriteKind {
        match self {
            Self::Gate { .. } => WriteKind::Gate,
            Self::Hold => WriteKind::Hold,
            Self::Plan { .. } => WriteKind::Plan,
            Self::Refuse { .. } => WriteKind::Refuse,
            Self::Place { .. } => WriteKind::Place,
            Self::Dispatch { .. } => WriteKind::Dispatch,
            Self::Suspend { .. } => WriteKind::Suspend,
            Self::Evict { .. } => WriteKind::Evict,
            Self::Record { .. } => WriteKind::Record,
            Self::Adopt { .. } => WriteKind::Adopt,
            Self::Finalize => WriteKind::Finalize,
            Self::RemoveWithWorks => WriteKind::RemoveWithWorks,
            Self::StopManaging => WriteKind::StopManaging,
            Self::Spread { .. } => WriteKind::Spread,
            Self::Ack { .. } => WriteKind::Ack,
        }
    }

    /// Returns the record that it leaves on the binding, to be completed.
    pub fn record_mut(&mut self) -> Option<&mut AdmissionRecord> {
        match self {
            Self::Gate { record } => record.as_mut(),
            Self::Plan { record }
            | Self::Refuse { record }
            | Self::Place { record, .. }
            | Self::Dispatch { record }
            | Self::Suspend { record }
            | Self::Evict { record }
            | Self::Record { record }
            | Self::Adopt { record } => Some(record),
            Self::Hold
            | Self::Finalize
            | Self::RemoveWithWorks
            | Self::StopManaging
            | Self::Spread { .. }
            | Self::Ack { .. } => None,
        }
    }

    /// Returns the record that it leaves on the binding.
    #[must_use]
    pub fn record(&self) -> Option<&AdmissionRecord> {
        match self {
            Self::Gate { record } => record.as_ref(),
            Self::Plan { record }
            | Self::Refuse { record }
            | Self::Place { record, .. }
            | Self::Dispatch { record }
            | Self::Suspend { record }
            | Self::Evict { record }
            | Self::Record { record }
            | Self::Adopt { record } => Some(record),
            Self::Hold
            | Self::Finalize
            | Self::RemoveWithWorks
            | Self::StopManaging
            | Self::Spread { .. }
            | Self::Ack { .. } => None,
        }
    }
}

/// The kinds of [`Write`], without their contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelValue)]
pub enum WriteKind {
    /// [`Write::Gate`]
    Gate,
    /// [`Write::Hold`]
    Hold,
    /// [`Write::Plan`]
    Plan,
    /// [`Write::Refuse`]
    Refuse,
    /// [`Write::Place`]
    Place,
    /// [`Write::Dispatch`]
    Dispatch,
    /// [`Write::Suspend`]
    Suspend,
    /// [`Write::Evict`]
    Evict,
    /// [`Write::Record`]
    Record,
    /// [`Write::Adopt`]
    Adopt,
    /// [`Write::Finalize`]
    Finalize,
    /// [`Write::RemoveWithWorks`]
    RemoveWithWorks,
    /// [`Write::StopManaging`]
    StopManaging,
    /// [`Write::Spread`]
    Spread,
    /// [`Write::Ack`]
    Ack,
}

impl fmt::Display for WriteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The result of an [`Intent`]: exactly one for each, once it is certain.
#[derive(Debug, Clone)]
pub struct CommitOutcome {
    /// The job.
    pub key: JobKey,
    /// UID of the binding of the intent.
    pub uid: String,
    /// The kind of the write.
    pub write: WriteKind,
    /// The attempt in its record, if it has one.
    pub attempt: Option<Attempt>,
    /// The result.
    pub result: Result<WrittenBinding, WriteFailure>,
}

/// The binding right after the write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenBinding {
    /// Its resourceVersion: from this version on, the watch shows the write.
    pub resource_version: String,
    /// Its generation.
    pub generation: i64,
}

/// Why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteFailure {
    /// What the decision depends on has changed: decide again.
    #[error("the binding changed since this was decided")]
    Conflict,
    /// The binding does not exist any more. For [`Write::Finalize`] that is success.
    #[error("the binding is gone")]
    Gone,
    /// The API server or an admission webhook refused the write; a retry would not help.
    #[error("refused with {code}: {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// This process does not lead.
    #[error("this process does not lead")]
    NotLeading,
    /// The deadline passed, and reading back shows that nothing was written.
    #[error("not written within the deadline: {message}")]
    Unavailable {
        /// The last error.
        message: String,
    },
}
