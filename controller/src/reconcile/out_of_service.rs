//! What is left of jobs in clusters that are out of service.
//!
//! A job that is evicted is charged until its Works are gone, and Karmada keeps the Work of a
//! member that does not answer until it does: nobody else can know what runs there. An operator
//! can (`muster.io/out-of-service`, as `node.kubernetes.io/out-of-service` does for nodes). Works
//! there that are being deleted are waited for no longer, for as long as the cluster does not
//! answer. They stay, so that a cluster that comes back removes what it had; until it has,
//! nothing of the same job goes there.

use crate::mirror::seen_work::SeenWork;
use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::karmada::{AggregatedStatusItem, ResourceBinding};
use crds::names;
use engine::ClusterName;
use engine::facts::Admission;
use std::collections::BTreeSet;

impl Reconciler {
    /// Whether a Work of the job is waited for, as far as the watch shows.
    pub(crate) fn has_works(&self, ctx: &ReconcileCtx<'_>) -> bool {
        self.waits_for_works(&ctx.binding)
    }

    /// Whether a Work of the binding is waited for, as far as the watch shows.
    pub(crate) fn waits_for_works(&self, binding: &ResourceBinding) -> bool {
        let mut works = self.mirror.works_of(binding);
        works.any(|work| !self.is_given_up(work))
    }

    /// Whether the binding still tells of what has gone: the next attempt would be taken for that.
    /// Karmada tells of what Works there are, each time that one goes (`RBStatusController`, v1.18);
    /// where it does not come to that, it would not come to the next attempt either. A binding
    /// that goes has no next one.
    pub(crate) fn is_still_reported(&self, binding: &ResourceBinding) -> bool {
        let works = self.mirror.works_of(binding);
        let left: Vec<&str> = works.map(|work| work.cluster.as_str()).collect();
        let mut reported = binding.status.aggregated_status.iter();
        let is_of_the_past = |item: &AggregatedStatusItem| {
            item.status.is_some() && !left.contains(&&*item.cluster_name)
        };
        binding.metadata.deletion_timestamp.is_none() && reported.any(is_of_the_past)
    }

    /// The clusters out of service that the watch shows Works of the job in.
    pub(crate) fn out_of_service(&self, ctx: &ReconcileCtx<'_>) -> BTreeSet<String> {
        let works = self.mirror.works_of(&ctx.binding);
        let given_up = works.filter(|work| self.is_given_up(work));
        given_up.map(|work| work.cluster.clone()).collect()
    }

    /// A cluster of `admission` that still has something of an earlier attempt.
    pub(crate) fn left_in(
        &self,
        binding: &ResourceBinding,
        admission: &Admission,
    ) -> Option<ClusterName> {
        let mut shares = admission.shares.iter().map(|share| &share.cluster);
        let has_left = |cluster: &&ClusterName| {
            let mut works = self.mirror.works_of(binding);
            works.any(|work| work.deleting && work.cluster == cluster.as_str())
        };
        shares.find(has_left).cloned()
    }

    pub(crate) fn is_given_up(&self, work: &SeenWork) -> bool {
        let cluster = self.engine.cluster(&ClusterName::new(&work.cluster));
        work.deleting
            && cluster.is_some_and(|cluster| cluster.has_taint(names::OUT_OF_SERVICE_ANNOTATION))
    }
}
