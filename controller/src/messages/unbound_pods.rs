//! What a member shows of the pods of a job that have no node.

use engine::faults::Symptom;

/// The pods of a job in a cluster that have no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnboundPods {
    /// There are none.
    Absent,
    /// There are none, because Volcano in the member has not admitted the PodGroup of the job; its message.
    Waits(Symptom),
    /// There are none, because they cannot be created; the message of the member.
    NotMade(Symptom),
    /// Their scheduler says nothing of them; what is known of the first one.
    Silent(String),
    /// The message of their scheduler about one of them, the first in the order of texts.
    Said(Symptom),
}
