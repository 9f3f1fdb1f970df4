//! Jobs that failed because pods of theirs were lost, and not by themselves: they are queued again, which costs
//! them no retry of their own.
//!
//! A member's controller may count a pod that its node lost as a failure of the job: a batch/v1 Job with
//! `backoffLimit: 0` fails as soon as a node is emptied.

use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::record::AdmissionRecord;
use engine::{JobState, Progress, Reason};
use workload::Outcome;

/// The most failures of this kind that a job may have: after them it has failed, whatever the cause.
const MOST: u32 = 10;

impl Reconciler {
    /// Evicts a job that has failed, if pods of it were lost through no fault of its own. Returns true if it
    /// did. Only a failure that this process has seen coming counts: one that is found at the start may be days
    /// old.
    pub(crate) fn failed_with_its_nodes(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        record: &AdmissionRecord,
        outcome: &Outcome,
    ) -> bool {
        let Outcome::Failed { message: failed } = outcome else {
            return false;
        };
        let job = self.engine.job(ctx.key);
        let ran = job.is_some_and(|job| {
            let current = job.admission.map(|admission| admission.attempt);
            matches!(job.state, JobState::Placed | JobState::Running)
                && current == Some(record.attempt)
        });
        let number = record.infrastructure_failures.saturating_add(1);
        if !ran || record.adopted || number > MOST {
            return false;
        }
        let Some((pod, class)) = self.infrastructure_fault(ctx.key) else {
            return false;
        };
        let (cluster, symptom) = (pod.cluster.clone(), &pod.symptom);
        let message = format!(
            "it failed ({failed}) after a fault of class {class} on {cluster}: {symptom}; it is queued again, which \
             costs it no retry of its own (failure {number} of {MOST} of this kind)"
        );
        let reason = Reason::InfrastructureFailed;
        self.apply_admission(ctx, record, Progress::Running);
        self.apply_ending_avoiding(ctx, reason, &message, Some(cluster));
        let record = AdmissionRecord {
            infrastructure_failures: number,
            ..record.clone()
        };
        self.evict(ctx, &record, reason, &message);
        true
    }

    /// Returns true if the end of a job does not count in an eviction for `reason`, because its nodes caused
    /// both.
    pub(crate) fn is_excused(&self, ctx: &ReconcileCtx<'_>, reason: Reason) -> bool {
        match reason {
            Reason::InfrastructureFailed => true,
            Reason::PodsLost => self.infrastructure_fault(ctx.key).is_some(),
            _ => false,
        }
    }
}
