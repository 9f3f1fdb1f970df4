//! NoExecute taints of clusters: they evict every job that does not tolerate them, as a whole.
//!
//! They are checked when such a cluster, or an admitted job in one, is observed. An evicted job is
//! queued at its old position without a back-off, since the job did not fail.

use crate::jobs::job::Job;
use facts::matching::{Taint, TaintEffect, untolerated};
use facts::{ClusterFact, ClusterName};
use std::collections::BTreeMap;

/// NoExecute taints by cluster.
pub(crate) type Emptied = BTreeMap<ClusterName, Vec<Taint>>;

/// The NoExecute taints of `clusters`.
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

/// Returns true if a cluster has a NoExecute taint.
pub(crate) fn is_emptied(cluster: &ClusterFact) -> bool {
    let mut taints = cluster.taints.iter();
    taints.any(|taint| taint.effect == TaintEffect::NoExecute)
}

/// The first cluster with a taint that evicts the job, and that taint in words.
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
