//! What one job holds of nodes: its bound pods, and the assumed pods of those that are to come. Pods that belong to no
//! job are those of their namespace ([`JobKey::of_namespace`]).

use super::Capacity;
use crate::amounts::totals::ResourceTotals;
use facts::{ClusterName, JobKey, NodeName, PodFact};
use std::collections::{BTreeMap, BTreeSet};

/// What is held, by node.
pub(crate) type Holdings = BTreeMap<(ClusterName, NodeName), ResourceTotals>;

impl Capacity {
    /// Returns what would be free, by node, were the job gone.
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
                    let request = assumption.request(assumed_pod);
                    let entry = held.entry(at).or_default();
                    entry.add(request, i64::from(assumed_pod.count));
                }
            }
        }
        held
    }

    /// The jobs and namespaces that have pods, bound or not, ended or not; in no order.
    pub(crate) fn keys_of_pods(&self) -> impl Iterator<Item = &JobKey> {
        self.pods_of.keys()
    }

    /// Those with pods in one cluster, in order.
    pub(crate) fn keys_of_pods_in(&self, cluster: &ClusterName) -> BTreeSet<JobKey> {
        let pods = self.clusters.get(cluster).into_iter();
        let pods = pods.flat_map(|room| room.pods().values());
        pods.filter_map(|pod| pod.job.clone()).collect()
    }

    /// True if a job or namespace has pods.
    pub(crate) fn has_pods(&self, key: &JobKey) -> bool {
        self.pods_of.contains_key(key)
    }

    /// The pods of a job or namespace that are bound and have not ended, terminating ones included.
    pub(crate) fn live_pods(&self, key: &JobKey) -> impl Iterator<Item = &PodFact> {
        let places = self.pods_of.get(key).into_iter().flatten();
        let pods = places.filter_map(|(cluster, uid)| self.pod(cluster, uid));
        pods.filter(|pod| pod.node.is_some() && !pod.ended() && !self.is_in_grace(key, &pod.uid))
    }
}
