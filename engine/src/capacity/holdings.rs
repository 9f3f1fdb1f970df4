//! What one job holds of nodes: its bound pods, and the assumed pods of those that are to come.

use super::Capacity;
use crate::amounts::totals::ResourceTotals;
use crate::api::ids::{ClusterName, JobKey, NodeName};
use std::collections::BTreeMap;

/// What is held, by node.
pub(crate) type Holdings = BTreeMap<(ClusterName, NodeName), ResourceTotals>;

impl Capacity {
    /// What would be free, by node, were the job gone.
    pub(crate) fn holdings(&self, key: &JobKey) -> Holdings {
        let mut held = Holdings::new();
        for (cluster, uid) in self.pods_of.get(key).into_iter().flatten() {
            let room = self.clusters.get(cluster);
            let Some(pod) = room.and_then(|room| room.pods().get(uid)) else {
                continue;
            };
            if let Some(node) = pod.node.as_ref().filter(|_| !pod.ended()) {
                let at = (cluster.clone(), node.clone());
                held.entry(at).or_default().add(&pod.request, 1);
            }
        }
        if let Some(assumption) = self.assumed.get(key) {
            for assumed_pod in &assumption.assumed {
                if let Some(node) = &assumed_pod.node {
                    let at = (assumed_pod.cluster.clone(), node.clone());
                    let request = &assumption.demand.roles[assumed_pod.role].request;
                    let entry = held.entry(at).or_default();
                    entry.add(request, i64::from(assumed_pod.count));
                }
            }
        }
        held
    }
}
