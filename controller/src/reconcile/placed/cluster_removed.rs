//! Finished jobs in clusters that are being removed from the federation.
//!
//! Karmada removes all Works from such a cluster, drops what was reported of them, and removes the cluster
//! once no placement names it. A running job is evicted as from any cluster that is emptied
//! (`engine::matching::LEAVING`) and runs elsewhere. A finished job must not run again: Muster removes its
//! placement too, and its record keeps how it ended.

use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::placed::Placed;
use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::karmada::ResourceBinding;
use crds::record::AdmissionRecord;
use engine::facts::ClusterFact;
use engine::matching::LEAVING;
use engine::{ClusterName, Reason};
use workload::Outcome;

impl Reconciler {
    /// Removes the placement of a finished job in a cluster that is being removed.
    pub(crate) fn check_cluster_removed(&mut self, placed: &Placed<'_>) -> CheckResult {
        if self.ended(placed.ctx, &placed.record).is_none() {
            return CheckResult::Continue;
        }
        let Some(cluster) = self.leaving_cluster(&placed.ctx.binding) else {
            return CheckResult::Continue;
        };
        let message = format!("cluster {cluster}, where it was, is being removed");
        EvictionCause::new(Reason::ClusterDrained, message).into()
    }

    /// Returns how an attempt ended, if it is over; the report itself may be gone by now.
    fn ended(&self, ctx: &ReconcileCtx<'_>, record: &AdmissionRecord) -> Option<&Outcome> {
        let end = &self.in_flight.get(ctx.key)?.end;
        end.outcome_of(record.attempt)
    }

    /// Returns the same as the reason and message of a record.
    pub(crate) fn end_of(
        &self,
        ctx: &ReconcileCtx<'_>,
        record: &AdmissionRecord,
    ) -> Option<(Reason, String)> {
        Some(match self.ended(ctx, record)? {
            Outcome::Failed { message } => {
                (Reason::PartFailed, format!("it has failed: {message}"))
            }
            _ => (Reason::Succeeded, "it has succeeded".to_owned()),
        })
    }

    /// Returns a cluster of a placement that is being removed.
    fn leaving_cluster(&self, binding: &ResourceBinding) -> Option<ClusterName> {
        let clusters = binding.spec.clusters.iter();
        let mut names = clusters.map(|cluster| ClusterName::new(&cluster.name));
        names.find(|name| self.engine.fleet().cluster(name).is_some_and(is_leaving))
    }

    /// Marks all jobs in a cluster whose removal begins.
    pub(crate) fn note_leaving(&mut self, cluster: &ClusterFact) {
        let known = self.engine.fleet().cluster(&cluster.name);
        if !is_leaving(cluster) || known.is_some_and(is_leaving) {
            return;
        }
        let bindings = self.mirror.bindings().iter().filter(|(_, binding)| {
            let mut clusters = binding.spec.clusters.iter();
            clusters.any(|placed| placed.name == cluster.name.as_str())
        });
        self.work_queue.extend(bindings.map(|(key, _)| key.clone()));
    }
}

fn is_leaving(cluster: &ClusterFact) -> bool {
    cluster.has_taint(LEAVING)
}
