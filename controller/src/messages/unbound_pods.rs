//! What a member shows of the pods of a job that have no node.

use engine::faults::Symptom;

/// The pods of a job in a cluster that have no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnboundPods {
    /// There are none.
    Absent,
    /// There are none, because the member's Volcano has not let the PodGroup of the job in: what it says of that.
    Waits(Symptom),
    /// There are none, because they cannot be made: what the member says of that.
    NotMade(Symptom),
    /// Their scheduler says nothing of them: what is known of the first of them.
    Silent(String),
    /// What it says of one of them: the first in the order of texts.
    Said(Symptom),
}
