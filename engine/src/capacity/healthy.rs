//! Which pods of a job count toward its minimum, while it starts and while it runs, and what keeps the others
//! from it.

use super::Capacity;
use crate::api::facts::{PodFact, PodPhase};
use crate::api::faults::Symptom;
use crate::api::ids::{ClusterName, JobKey, NodeName};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl Capacity {
    /// The number of a job's pods in a cluster that run, may still start on their nodes, or ended by
    /// themselves.
    pub(crate) fn healthy_pods(&self, key: &JobKey, cluster: &ClusterName) -> u32 {
        let healthy = self.pods_in(key, cluster);
        let healthy = healthy.filter(|pod| self.is_healthy(pod)).count();
        u32::try_from(healthy).unwrap_or(u32::MAX)
    }

    /// The number of a job's pods in a cluster that have started: they run, or ended by themselves. A pod
    /// that is bound and waits for its image has not.
    pub(crate) fn started_pods(&self, key: &JobKey, cluster: &ClusterName) -> u32 {
        let started = self.pods_in(key, cluster).filter(|pod| {
            pod.node.is_some() && matches!(pod.phase, PodPhase::Running | PodPhase::Ended)
        });
        u32::try_from(started.count()).unwrap_or(u32::MAX)
    }

    /// What keeps a job's pods in a cluster from running, with the number of pods that each keeps, the most
    /// first.
    pub(crate) fn symptoms<'a>(
        &'a self,
        key: &JobKey,
        cluster: &'a ClusterName,
    ) -> Vec<(&'a Symptom, u32)> {
        let mut counts: BTreeMap<&str, (&Symptom, u32)> = BTreeMap::new();
        let pods = self.pods_in(key, cluster);
        let waiting =
            pods.filter(|pod| matches!(pod.phase, PodPhase::Starting | PodPhase::Disrupted));
        for symptom in waiting.filter_map(|pod| pod.symptom.as_deref()) {
            let (first, count) = counts.entry(&symptom.reason).or_insert((symptom, 0));
            // Pods are in no order; the first message in the order of texts is always the same.
            *first = (*first).min(symptom);
            *count += 1;
        }
        let mut symptoms: Vec<(&Symptom, u32)> = counts.into_values().collect();
        symptoms.sort_by_key(|(symptom, count)| (Reverse(*count), *symptom));
        symptoms
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
            PodPhase::Starting | PodPhase::Running => {
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
