//! Answers about one job: how a write ended, what members and their schedulers say, what is left.

use crate::messages::unbound_pods::UnboundPods;
use binding_writer::overrides::OverrideError;
use binding_writer::{CommitOutcome, Write};
use engine::{Attempt, ClusterName};
use scheduler::Refusal;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) enum JobAnswer {
    /// A write of its binding has ended.
    Written(CommitOutcome),
    /// The scheduler checked a plan and prepared its members.
    Prepared {
        attempt: Attempt,
        result: Box<Result<Write, Refusal>>,
    },
    /// A fresh read has shown whether Works are left.
    WorksChecked {
        /// UID of the binding that the read was for.
        uid: Option<String>,
        gone: Result<bool, String>,
    },
    /// Its parts were written again, or cannot be.
    PartsWritten {
        attempt: Attempt,
        result: Result<(), OverrideError>,
    },
    /// The Services by which its pods find each other were checked; says why Karmada does not propagate them, if so.
    ServicesSeen {
        attempt: Attempt,
        result: Result<Option<String>, OverrideError>,
    },
    /// A member has shown its pods that have no node.
    SchedulerSaid {
        attempt: Attempt,
        cluster: ClusterName,
        pods: UnboundPods,
    },
    /// A member has said whether it has applied its smaller size.
    SizeChecked {
        attempt: Attempt,
        cluster: ClusterName,
        small: Result<bool, String>,
    },
}
