//! Clusters that are emptied: a taint with the effect NoExecute evicts every job there that
//! does not tolerate it, whole, as it keeps new ones out.
//!
//! Looked at when such a cluster, or an admitted job in one, was told of, and not in between.
//! Nothing is wrong with a job that is evicted for this: it is queued at its old place,
//! without a back-off.

use crate::api::facts::ClusterFact;
use crate::api::ids::ClusterName;
use crate::api::matching::{Taint, TaintEffect, untolerated};
use crate::jobs::job::Job;
use std::collections::BTreeMap;

/// Taints with the effect NoExecute, by cluster.
pub(crate) type Emptied = BTreeMap<ClusterName, Vec<Taint>>;

/// The clusters that have such taints.
pub(crate) fn emptied<'a>(clusters: impl Iterator<Item = &'a ClusterFact>) -> Emptied {
    let with_taints = clusters
        .filter(|cluster| is_emptied(cluster))
        .map(|cluster| {
            let taints = cluster.taints.iter();
            let taints = taints.filter(|taint| taint.effect == TaintEffect::NoExecute);
            (cluster.name.clone(), taints.cloned().collect())
        });
    with_taints.collect()
}

/// Whether a cluster sends away the jobs that do not tolerate that.
pub(crate) fn is_emptied(cluster: &ClusterFact) -> bool {
    let mut taints = cluster.taints.iter();
    taints.any(|taint| taint.effect == TaintEffect::NoExecute)
}

/// The first cluster that a job has to leave, and why.
pub(crate) fn must_leave(job: &Job, emptied: &Emptied) -> Option<(ClusterName, String)> {
    let released = job.released.as_deref()?;
    if !released.alive() {
        return None;
    }
    let tolerations = &job.demand.as_deref()?.placement.tolerations;
    released.admission.shares.iter().find_map(|share| {
        let taint = untolerated(emptied.get(&share.cluster)?, tolerations)?;
        let value = match taint.value.as_str() {
            "" => String::new(),
            value => format!("={value}"),
        };
        Some((
            share.cluster.clone(),
            format!("{}{value}:NoExecute", taint.key),
        ))
    })
}
