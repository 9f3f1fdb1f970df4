//! Clusters that are being removed from the federation, and what has ended there.
//!
//! Karmada takes all Works out of such a cluster, forgets what was reported of them, and lets the
//! cluster go once no placement names it. What runs there is evicted as from any cluster that
//! is emptied (`engine::matching::LEAVING`), and goes on elsewhere. What has ended must not run
//! again: its placement is taken away too, and its record says for good how it ended.

use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::karmada::ResourceBinding;
use crds::record::AdmissionRecord;
use engine::facts::ClusterFact;
use engine::matching::LEAVING;
use engine::{ClusterName, Reason};
use workload::Outcome;

impl Reconciler {
    /// Takes a job that has ended out of a cluster that is being removed, if it is in one.
    pub(crate) fn leaves_its_end(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        record: &AdmissionRecord,
    ) -> bool {
        if self.ended(ctx, record).is_none() {
            return false;
        }
        let Some(cluster) = self.leaving_cluster(&ctx.binding) else {
            return false;
        };
        let message = format!("cluster {cluster}, where it was, is being removed");
        self.apply_ending(ctx, Reason::ClusterDrained, &message);
        self.evict(ctx, record, Reason::ClusterDrained, &message);
        true
    }

    /// How an attempt ended, if it is over. What was reported may be forgotten by now.
    fn ended(&self, ctx: &ReconcileCtx<'_>, record: &AdmissionRecord) -> Option<&Outcome> {
        let (attempt, ended) = self.in_flight.get(ctx.key)?.ended.as_ref()?;
        (*attempt == record.attempt).then_some(ended)
    }

    /// The same in the words of a record.
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

    /// A cluster of a placement that is being removed.
    fn leaving_cluster(&self, binding: &ResourceBinding) -> Option<ClusterName> {
        let clusters = binding.spec.clusters.iter();
        let mut names = clusters.map(|cluster| ClusterName::new(&cluster.name));
        names.find(|name| self.engine.cluster(name).is_some_and(is_leaving))
    }

    /// Looks at all that is placed in a cluster that is being removed from now on.
    pub(crate) fn note_leaving(&mut self, cluster: &ClusterFact) {
        let known = self.engine.cluster(&cluster.name);
        if !is_leaving(cluster) || known.is_some_and(is_leaving) {
            return;
        }
        let bindings = self.mirror.bindings().iter().filter(|(_, binding)| {
            let mut clusters = binding.spec.clusters.iter();
            clusters.any(|placed| placed.name == cluster.name.as_str())
        });
        self.dirty.extend(bindings.map(|(key, _)| key.clone()));
    }
}

fn is_leaving(cluster: &ClusterFact) -> bool {
    cluster.has_taint(LEAVING)
}
