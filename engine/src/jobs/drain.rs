//! Clusters that are emptied: a taint with the effect NoExecute evicts every job there that
//! does not tolerate it, whole, as it keeps new ones out.
//!
//! Looked at when such a cluster, or an admitted job in one, was told of, and not in between.
//! Nothing is wrong with a job that is evicted for this: it is queued at its old place,
//! without a back-off.

use crate::api::decision::Decision;
use crate::api::event::Progress;
use crate::api::facts::ClusterFact;
use crate::api::ids::{ClusterName, JobKey};
use crate::api::matching::{Taint, TaintEffect, untolerated};
use crate::api::reason::Reason;
use crate::engine::Engine;
use crate::jobs::job::Job;
use std::collections::BTreeMap;

/// Taints with the effect NoExecute, by cluster.
type Emptied = BTreeMap<ClusterName, Vec<Taint>>;

impl Engine {
    /// Takes back what has to leave its cluster, as far as the budget goes.
    pub(crate) fn evict_drained(&mut self, decisions: &mut Vec<Decision>) {
        if !self.jobs.drain_due {
            return;
        }
        self.jobs.drain_due = false;
        let emptied = self.emptied();
        if emptied.is_empty() {
            return;
        }
        let mut leaving: Vec<(JobKey, ClusterName, String)> = self
            .jobs
            .by_key
            .iter()
            .filter_map(|(key, job)| {
                let (cluster, taint) = must_leave(job, &emptied)?;
                Some((key.clone(), cluster, taint))
            })
            .collect();
        leaving.sort_unstable();
        for (key, cluster, taint) in leaving {
            if decisions.len() >= self.config.decision_budget {
                self.jobs.drain_due = true;
                return;
            }
            let message = format!("cluster {cluster} is being emptied (taint {taint})");
            let decision = self.evict(&key, Reason::ClusterDrained, &message, None);
            decisions.extend(decision);
        }
    }

    /// Notes that a job that was told of may have to leave.
    pub(crate) fn note_drain(&mut self, key: &JobKey) {
        let released = self
            .jobs
            .by_key
            .get(key)
            .and_then(|job| job.released.as_deref());
        self.jobs.drain_due |= released.is_some_and(|released| {
            let mut shares = released.admission.shares.iter();
            shares.any(|share| {
                self.capacity
                    .clusters
                    .get(&share.cluster)
                    .is_some_and(is_emptied)
            })
        });
    }

    fn emptied(&self) -> Emptied {
        let clusters = self
            .capacity
            .clusters
            .values()
            .filter(|cluster| is_emptied(cluster));
        let with_taints = clusters.map(|cluster| {
            let taints = cluster.taints.iter();
            let taints = taints.filter(|taint| taint.effect == TaintEffect::NoExecute);
            (cluster.name.clone(), taints.cloned().collect::<Vec<_>>())
        });
        with_taints.collect()
    }
}

/// Whether a cluster sends away whoever does not tolerate that.
pub(crate) fn is_emptied(cluster: &ClusterFact) -> bool {
    let mut taints = cluster.taints.iter();
    taints.any(|taint| taint.effect == TaintEffect::NoExecute)
}

/// The first cluster that a job has to leave, and why.
fn must_leave(job: &Job, emptied: &Emptied) -> Option<(ClusterName, String)> {
    let released = job.released.as_deref()?;
    if matches!(released.progress, Progress::Ending | Progress::Finished) {
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
