//! What is asked of the committer, and what it answers.

use crds::karmada::{ResourceBinding, TargetCluster};
use crds::record::AdmissionRecord;
use engine::{Attempt, JobKey};
use prometheus_client::encoding::EncodeLabelValue;
use std::fmt;
use std::sync::Arc;

/// One write to one binding, with what it was decided on.
#[derive(Debug, Clone)]
pub struct Intent {
    /// The binding as it was when the write was decided. If what the decision depended on has
    /// changed since, nothing is written and the answer is [`WriteFailure::Conflict`].
    pub binding: Arc<ResourceBinding>,
    /// What to write.
    pub write: Write,
}

impl Intent {
    /// The job whose binding it is.
    #[must_use]
    pub fn key(&self) -> JobKey {
        self.binding.job_key()
    }
}

/// A write to a binding. Each is one merge patch of our own fields, guarded by the
/// resourceVersion it was decided on.
#[derive(Debug, Clone)]
pub enum Write {
    /// Close a managed binding that was found open without an admission: suspend scheduling,
    /// empty `spec.clusters`, add the finalizer. Without a record, one that is there is
    /// removed: it admits nothing.
    Gate {
        /// What is known of the job, if anything.
        record: Option<AdmissionRecord>,
    },
    /// What the webhook would have done, had it been there: suspend scheduling and add the
    /// finalizer where either is missing. Clusters stay as they are.
    Hold,
    /// Hand a plan over to a scheduler in another process: the record only, state Planned.
    Plan {
        /// The record.
        record: AdmissionRecord,
    },
    /// That scheduler's refusal: the record only, state Refused.
    Refuse {
        /// The record.
        record: AdmissionRecord,
    },
    /// Release and place, in one patch: record, `suspension.scheduling: false`, clusters and
    /// the applied placement. The status that Karmada's parts need follows behind.
    Place {
        /// The record, state Admitted.
        record: AdmissionRecord,
        /// Where to.
        clusters: Vec<TargetCluster>,
        /// The cluster affinity term that was used, where the placement has terms.
        affinity_name: Option<String>,
    },
    /// Have dispatched what was suspended by us: every Work shows its own part, or asks for no more
    /// than was admitted.
    Dispatch {
        /// The record, its parts Dispatched, that says of no excess.
        record: AdmissionRecord,
    },
    /// Have nothing more dispatched to any member: its Works ask for more than was admitted, or are
    /// about to.
    Suspend {
        /// The record, which says since when, or that its parts are held.
        record: AdmissionRecord,
    },
    /// Evict: suspend scheduling, empty the clusters, record (state Ending), in one patch.
    Evict {
        /// The record.
        record: AdmissionRecord,
    },
    /// The record only.
    Record {
        /// The record.
        record: AdmissionRecord,
    },
    /// Charge what ran before Muster managed it: record and finalizer, nothing gated.
    Adopt {
        /// The record.
        record: AdmissionRecord,
    },
    /// Remove our finalizer: no Work of a deleted binding is left.
    Finalize,
    /// Have members remove what a Work applied when the Work is deleted, whatever the policy says.
    RemoveWithWorks,
    /// Stop managing: remove gate, record and finalizer; the rest of the suspension stays.
    StopManaging,
    /// Spreads a binding that is no workload (a ConfigMap under a policy that names Muster):
    /// nothing of it is queued or charged, and no other scheduler would place it.
    Spread {
        /// Every cluster that its placement selects.
        clusters: Vec<TargetCluster>,
    },
    /// Say that the scheduler has seen the binding's generation (status only).
    Ack {
        /// Whether a wish to be placed again was honoured, which `lastScheduledTime` then says.
        reschedule: bool,
    },
}

impl Write {
    /// Its kind.
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

    /// The record that it leaves on the binding, to be completed.
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

    /// The record that it leaves on the binding.
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

/// What became of an [`Intent`]: exactly one for each, once it is certain.
#[derive(Debug, Clone)]
pub struct CommitOutcome {
    /// The job.
    pub key: JobKey,
    /// UID of the binding that the intent was about.
    pub uid: String,
    /// What was to be written.
    pub write: WriteKind,
    /// The attempt in the record to be written, if there was one.
    pub attempt: Option<Attempt>,
    /// What became of it.
    pub result: Result<WrittenBinding, WriteFailure>,
}

/// The binding as it was right after the write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenBinding {
    /// Its resourceVersion: what the watch shows from this version on has the write in it.
    pub resource_version: String,
    /// Its generation.
    pub generation: i64,
}

/// Why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteFailure {
    /// The binding changed in what the decision depended on: decide again.
    #[error("the binding changed since this was decided")]
    Conflict,
    /// The binding is not there any more. For [`Write::Finalize`] that is what was wanted.
    #[error("the binding is gone")]
    Gone,
    /// The API server, or an admission webhook, said no; it would again.
    #[error("refused with {code}: {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// This process does not lead.
    #[error("this process does not lead")]
    NotLeading,
    /// It could not be written within the deadline, and reading back shows that it was not.
    #[error("not written within the deadline: {message}")]
    Unavailable {
        /// The last error.
        message: String,
    },
}
