//! What follows from a check of a job, and the one place that carries it out.

use crate::reconcile::JobPass;
use crate::reconcile::evict::{apply_ending, evict};
use binding_writer::Write;
use crds::record::AdmissionRecord;
use engine::{ClusterName, Reason};

/// What follows from a check of a job.
#[derive(Debug)]
pub(crate) enum CheckResult {
    /// The next check follows.
    Continue,
    /// The pass ends: what follows is under way, or waits.
    Done,
    /// The binding is written, which ends the pass.
    Write(Box<Write>),
    /// The job is evicted, which ends the pass.
    Evict(EvictionCause),
}

impl CheckResult {
    pub(crate) fn write(write: Write) -> Self {
        Self::Write(Box::new(write))
    }
}

/// Why a placed job is evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EvictionCause {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// A cluster to avoid in the next attempts.
    pub(crate) avoid: Option<ClusterName>,
    /// The record of the attempt, if it says more than the one on the binding.
    pub(crate) record: Option<Box<AdmissionRecord>>,
}

impl EvictionCause {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            avoid: None,
            record: None,
        }
    }

    /// Lets the next attempts avoid a cluster.
    pub(crate) fn avoiding(self, cluster: ClusterName) -> Self {
        Self {
            avoid: Some(cluster),
            ..self
        }
    }

    /// Writes this record of the attempt.
    pub(crate) fn with_record(self, record: AdmissionRecord) -> Self {
        Self {
            record: Some(Box::new(record)),
            ..self
        }
    }
}

impl From<EvictionCause> for CheckResult {
    fn from(cause: EvictionCause) -> Self {
        Self::Evict(cause)
    }
}

/// Carries out what follows from a check of a job, which is placed by `record`.
pub(crate) fn follow(pass: &mut JobPass<'_>, record: &AdmissionRecord, result: CheckResult) {
    match result {
        CheckResult::Continue | CheckResult::Done => {}
        CheckResult::Write(write) => pass.write(*write),
        CheckResult::Evict(cause) => {
            let EvictionCause {
                reason,
                message,
                avoid,
                record: own,
            } = cause;
            apply_ending(pass, reason, &message, avoid);
            evict(pass, own.as_deref().unwrap_or(record), reason, &message);
        }
    }
}
