//! Works of jobs in clusters that are out of service.
//!
//! An evicted job is charged until its Works are gone, and Karmada keeps the Work of a member that does not
//! answer: no component can know what runs there. An operator can (`muster.io/out-of-service`, like
//! `node.kubernetes.io/out-of-service` for nodes). While such a cluster does not answer, its Works that are
//! being deleted no longer count. They stay, so that a cluster that comes back removes its objects; until
//! then, no new attempt of the same job goes there.

use crate::facts::view::View;
use crate::mirror::Mirror;
use crate::reconcile::JobPass;
use crds::karmada::{AggregatedStatusItem, ResourceBinding};
use engine::ClusterName;
use engine::facts::Admission;
use std::collections::BTreeSet;

/// Returns true if a Work of the job still counts, as far as the watch shows.
pub(crate) fn has_works(pass: &JobPass<'_>) -> bool {
    waits_for_works(pass.view(), pass.binding)
}

/// Returns true if a Work of the binding still counts, as far as the watch shows.
pub(crate) fn waits_for_works(view: View<'_>, binding: &ResourceBinding) -> bool {
    let mut works = view.mirror.works.of(binding);
    works.any(|work| !view.is_given_up(work))
}

/// Returns true if the binding still reports a deleted attempt; the next attempt would be mistaken for
/// that one. Karmada updates the report each time that a Work goes (`RBStatusController`, v1.18); if it
/// misses that, it would not report the next attempt either. A deleted binding has no next attempt.
pub(crate) fn is_still_reported(mirror: &Mirror, binding: &ResourceBinding) -> bool {
    let works = mirror.works.of(binding);
    let left: Vec<&str> = works.map(|work| work.cluster.as_str()).collect();
    let mut reported = binding.status.aggregated_status.iter();
    let is_of_the_past =
        |item: &AggregatedStatusItem| item.status.is_some() && !left.contains(&&*item.cluster_name);
    binding.metadata.deletion_timestamp.is_none() && reported.any(is_of_the_past)
}

/// Returns the clusters out of service in which the watch shows Works of the job.
pub(crate) fn out_of_service(view: View<'_>, binding: &ResourceBinding) -> BTreeSet<String> {
    let works = view.mirror.works.of(binding);
    let given_up = works.filter(|work| view.is_given_up(work));
    given_up.map(|work| work.cluster.clone()).collect()
}

/// Returns a cluster of `admission` that still has objects of an earlier attempt.
pub(crate) fn left_in(
    mirror: &Mirror,
    binding: &ResourceBinding,
    admission: &Admission,
) -> Option<ClusterName> {
    let mut shares = admission.shares.iter().map(|share| &share.cluster);
    let has_left = |cluster: &&ClusterName| {
        let mut works = mirror.works.of(binding);
        works.any(|work| work.deleting && work.cluster == cluster.as_str())
    };
    shares.find(has_left).cloned()
}
