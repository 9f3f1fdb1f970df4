//! What is left of a job's pods in members: pods that have not ended, and the objects of those that have. After an
//! attempt both keep the next one waiting: operators name pods by their job, and one that finds a pod of that name may
//! lose its job.

use super::Capacity;
use facts::{ClusterName, JobKey, PodFact};
use std::collections::BTreeMap;

/// The pods of a job that are left in one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodsLeft {
    /// The cluster.
    pub cluster: ClusterName,
    /// How many there are, ended or not.
    pub pods: u32,
    /// The longest grace period in seconds of those that have not ended, if there are some.
    pub longest_grace: Option<u32>,
}

impl Capacity {
    /// Returns what is left of a job in each cluster that can be seen. Pods on lost nodes are left out: nothing says
    /// whether they are left.
    pub(crate) fn pods_left(&self, key: &JobKey) -> Vec<PodsLeft> {
        let mut left: BTreeMap<&ClusterName, PodsLeft> = BTreeMap::new();
        for pod in self.pods_that_can_end(key) {
            let in_cluster = left.entry(&pod.cluster).or_insert_with(|| PodsLeft {
                cluster: pod.cluster.clone(),
                pods: 0,
                longest_grace: None,
            });
            in_cluster.pods = in_cluster.pods.saturating_add(1);
            if !pod.ended() && !self.is_in_grace(key, &pod.uid) {
                in_cluster.longest_grace = in_cluster.longest_grace.max(Some(pod.grace_s));
            }
        }
        left.into_values().collect()
    }

    fn pods_that_can_end<'a>(&'a self, key: &'a JobKey) -> impl Iterator<Item = &'a PodFact> {
        let clusters = self.clusters.keys().filter(|cluster| {
            let fact = self.cluster_fact(cluster);
            fact.is_some_and(|fact| fact.usable)
        });
        let pods = clusters.flat_map(move |cluster| self.pods_in(key, cluster));
        pods.filter(move |pod| {
            let node = pod.node.as_ref();
            let is_seen = node.is_some_and(|node| self.is_seen(&pod.cluster, node));
            is_seen && !self.is_gone_in_grace(key, &pod.uid)
        })
    }
}
