//! Which pods of a job count toward its minimum, while it starts and while it runs, and what keeps the others
//! from it.

use super::Capacity;
use facts::faults::Symptom;
use facts::{ClusterName, JobKey, NodeName, PodFact, PodPhase};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl Capacity {
    /// The number of a job's `of` pods in a cluster that run, may still start on their nodes, or ended by
    /// themselves and need no other in their place.
    pub(crate) fn healthy_pods(&self, key: &JobKey, cluster: &ClusterName, of: u32) -> u32 {
        self.count_present(key, cluster, of, |pod| self.is_healthy(pod))
    }

    /// The number of a job's pods in a cluster that have started: they run, or ended by themselves. A pod
    /// that is bound and waits for its image has not.
    pub(crate) fn started_pods(&self, key: &JobKey, cluster: &ClusterName) -> u32 {
        let started = self.pods_in(key, cluster).filter(|pod| {
            pod.node.is_some() && matches!(pod.phase, PodPhase::Running | PodPhase::Ended)
        });
        let started = u32::try_from(started.count()).unwrap_or(u32::MAX);
        started.saturating_add(self.ended.of(key, cluster))
    }

    /// Returns what keeps a job's pods in a cluster from running, with the number of pods that each keeps, the most
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

    /// True if [`Self::take_pods_changed`] would name some.
    pub(crate) fn has_changed_pods(&self) -> bool {
        !self.pods_changed.is_empty()
    }

    /// Notes that a job may have more or fewer pods than its minimum.
    pub(crate) fn note_pods_of(&mut self, key: &JobKey) {
        self.pods_changed.insert(key.clone());
    }

    /// The number of a job's `of` pods in a cluster that have not been lost, whether or not their devices work.
    pub(crate) fn present_pods(&self, key: &JobKey, cluster: &ClusterName, of: u32) -> u32 {
        self.count_present(key, cluster, of, |pod| self.is_present(pod))
    }

    /// The number of a job's `of` pods in a cluster that are there by `is_there`, with the ended ones that count.
    fn count_present(
        &self,
        key: &JobKey,
        cluster: &ClusterName,
        of: u32,
        is_there: impl Fn(&PodFact) -> bool,
    ) -> u32 {
        let there = self.pods_in(key, cluster).filter(|pod| is_there(pod));
        let there = u32::try_from(there.count()).unwrap_or(u32::MAX);
        there.saturating_add(self.ended_that_count(key, cluster, of))
    }

    /// How many pods of a job in a cluster that ended by themselves stand for pods of its `of` there. A batch Job
    /// of more completions than pods starts another pod for each that has succeeded, until few completions are
    /// left; an operator does so for one that has failed. So those that have ended count as far as others leave
    /// room: those with a node, also if it is lost. One that is evicted has another in its place.
    ///
    /// A pod without a node is not known to members' views. So once a lost pod is gone, an ended one counts in its
    /// place until the next is bound: the time until then is not counted as a loss.
    pub(super) fn ended_that_count(&self, key: &JobKey, cluster: &ClusterName, of: u32) -> u32 {
        let (mut open, mut ended) = (0, self.ended.of(key, cluster));
        for pod in self.pods_in(key, cluster) {
            match pod.phase {
                PodPhase::Ended if pod.node.is_some() => ended += 1,
                PodPhase::Starting | PodPhase::Running => {
                    open += u32::from(pod.node.is_some());
                }
                PodPhase::Ended | PodPhase::Evicting | PodPhase::Disrupted => {}
            }
        }
        ended.min(of.saturating_sub(open))
    }

    /// Returns true if a pod counts toward the minimum of its job: it is there, and its devices work.
    fn is_healthy(&self, pod: &PodFact) -> bool {
        self.is_present(pod) && !self.has_failed_device(pod)
    }

    /// Returns true if a running pod uses a device that has failed: its kubelet says so, or its node offers fewer
    /// devices than its pods use, and they all belong to one job. Of pods of several jobs, the node does not say
    /// which of them had the device.
    fn has_failed_device(&self, pod: &PodFact) -> bool {
        if pod.phase != PodPhase::Running {
            return false;
        }
        let node = pod.node.as_ref();
        pod.symptom.is_some() || node.is_some_and(|node| self.lacks_devices(&pod.cluster, node))
    }

    /// Returns true if the pods of one job on a node use more devices than it offers.
    fn lacks_devices(&self, cluster: &ClusterName, node: &NodeName) -> bool {
        let Some(nodes) = self.clusters.get(cluster) else {
            return false;
        };
        let device = nodes.nodes().get(node).filter(|info| info.device.is_some());
        let Some(info) = device else { return false };
        let device = info.units;
        if nodes.used_of(node, device) <= info.has.get(device) {
            return false;
        }
        let uses = |pod: &&PodFact| {
            let name = info.device.as_ref();
            name.is_some_and(|name| pod.request.amount_of(name).0 > 0)
        };
        let jobs: BTreeSet<Option<&JobKey>> = nodes
            .pods_on(node)
            .filter(uses)
            .map(|pod| pod.job.as_ref())
            .collect();
        jobs.len() == 1
    }

    /// Returns true if a pod of a job that has not ended has not been lost. One that is not bound is not there.
    pub(super) fn is_present(&self, pod: &PodFact) -> bool {
        let Some(node) = &pod.node else {
            return false;
        };
        match pod.phase {
            PodPhase::Ended | PodPhase::Evicting | PodPhase::Disrupted => false,
            PodPhase::Starting | PodPhase::Running => self.is_seen(&pod.cluster, node),
        }
    }

    /// Returns true if a node is known and not lost.
    pub(super) fn is_seen(&self, cluster: &ClusterName, node: &NodeName) -> bool {
        let nodes = self.clusters.get(cluster).map(|cluster| cluster.nodes());
        let info = nodes.and_then(|nodes| nodes.get(node));
        info.is_some_and(|info| !info.fact.lost)
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
