//! Hands each answer about a job to the subject that asked.

use crate::messages::job_answer::JobAnswer;
use crate::reconcile::placed::{not_running, parts, rendezvous, shrink};
use crate::reconcile::{JobPass, decisions, outcomes};

/// Takes an answer about the job of this pass.
pub(crate) fn take(pass: &mut JobPass<'_>, answer: JobAnswer) {
    match answer {
        JobAnswer::Written(outcome) => outcomes::written(pass, outcome),
        JobAnswer::Prepared { attempt, result } => decisions::prepared(pass, attempt, *result),
        JobAnswer::WorksChecked { uid, gone } => {
            outcomes::works_checked(pass, uid.as_deref(), gone);
        }
        JobAnswer::PartsWritten { attempt, result } => parts::parts_written(pass, attempt, result),
        JobAnswer::ServicesSeen { attempt, result } => {
            rendezvous::services_seen(pass, attempt, result);
        }
        JobAnswer::SchedulerSaid {
            attempt,
            cluster,
            pods,
        } => not_running::scheduler_said(pass, attempt, cluster, pods),
        JobAnswer::SizeChecked {
            attempt,
            cluster,
            small,
        } => shrink::size_checked(pass, attempt, cluster, small),
    }
}
