//! Which pods of a job count toward its minimum while it runs, and which jobs have lost or regained some.

use super::Capacity;
use crate::api::facts::{PodFact, PodPhase};
use crate::api::ids::{ClusterName, JobKey, NodeName};
use std::collections::BTreeSet;

impl Capacity {
    /// The number of a job's pods in a cluster that run, may still start on their nodes, or ended by
    /// themselves.
    pub(crate) fn healthy_pods(&self, key: &JobKey, cluster: &ClusterName) -> u32 {
        let healthy = self.pods_in(key, cluster);
        let healthy = healthy.filter(|pod| self.is_healthy(pod)).count();
        u32::try_from(healthy).unwrap_or(u32::MAX)
    }

    /// The jobs of which pods were bound, changed or lost since the last call. They are kept until then.
    pub fn take_pods_changed(&mut self) -> BTreeSet<JobKey> {
        std::mem::take(&mut self.pods_changed)
    }

    /// Notes that a job may have more or fewer pods than its minimum.
    pub(crate) fn note_pods_of(&mut self, key: &JobKey) {
        self.pods_changed.insert(key.clone());
    }

    /// Whether a pod counts toward the minimum of its job. One that ended by itself counts: its
    /// controller decides what follows. One that is not bound does not.
    pub(super) fn is_healthy(&self, pod: &PodFact) -> bool {
        let Some(node) = &pod.node else {
            return false;
        };
        match pod.phase {
            PodPhase::Ended => true,
            PodPhase::Disrupted => false,
            PodPhase::Active => {
                let nodes = self
                    .clusters
                    .get(&pod.cluster)
                    .map(|cluster| cluster.nodes());
                let info = nodes.and_then(|nodes| nodes.get(node));
                info.is_some_and(|info| !info.fact.lost)
            }
        }
    }

    /// Notes that the pods on a node count otherwise than before.
    pub(super) fn note_pods_on(&mut self, cluster: &ClusterName, node: &NodeName) {
        let Some(nodes) = self.clusters.get(cluster) else {
            return;
        };
        let jobs = nodes.pods_on(node).filter_map(|pod| pod.job.clone());
        self.pods_changed.extend(jobs);
    }
}
