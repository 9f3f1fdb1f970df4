//! Ended pods of which only the number is known: a Job of many completions keeps them all for as long as it is there.

use super::Capacity;
use crate::capacity::pack::{Need, needs_of};
use facts::{ClusterName, Demand, JobKey, PodFact, PodPhase, Share, Uid};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;

/// The ended pods of one object that are not known one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndedCount {
    cluster: ClusterName,
    /// The object that controls them.
    owner: Uid,
    job: JobKey,
    pods: u32,
}

/// The numbers of ended pods by the objects that control them. There are few: of objects with very many of them.
#[derive(Debug, Clone, Default)]
pub(super) struct EndedCounts(BTreeMap<(ClusterName, Uid), EndedCount>);

impl EndedCounts {
    /// A cluster is gone.
    pub(super) fn cluster_gone(&mut self, cluster: &ClusterName) {
        self.0.retain(|(of, _), _| of != cluster);
    }

    /// The number of ended pods of a job in a cluster that are not known one by one.
    pub(super) fn of(&self, key: &JobKey, cluster: &ClusterName) -> u32 {
        let counts = self.0.values();
        let own = counts.filter(|count| count.job == *key && count.cluster == *cluster);
        own.map(|count| count.pods).fold(0, u32::saturating_add)
    }
}

impl Capacity {
    /// Sets how many ended pods an object has beside those that are known one by one.
    pub(crate) fn set_ended(
        &mut self,
        cluster: &ClusterName,
        owner: &Uid,
        job: Option<JobKey>,
        pods: u32,
    ) {
        let place = (cluster.clone(), owner.clone());
        let before = self.ended.0.remove(&place);
        self.pods_changed.extend(before.map(|before| before.job));
        if let Some(job) = job.filter(|_| pods > 0) {
            self.pods_changed.insert(job.clone());
            let count = EndedCount {
                cluster: cluster.clone(),
                owner: owner.clone(),
                job,
                pods,
            };
            self.ended.0.insert(place, count);
        }
    }

    /// The pods of a share of a running job that have been lost.
    pub(super) fn lost_of<'a>(
        &self,
        key: &JobKey,
        demand: &'a Demand,
        share: &Share,
    ) -> Vec<Need<'a>> {
        let left = Cell::new(self.ended_that_count(key, &share.cluster, share.replicas()));
        let is_there = |pod: &PodFact| match pod.phase {
            PodPhase::Ended if pod.node.is_some() => left.replace(left.get().saturating_sub(1)) > 0,
            _ => self.is_present(pod),
        };
        let needs = needs_of(demand, &share.pods);
        let mut lost = self.without_pods(key, &share.cluster, needs, is_there);
        // Of others only the number is known.
        for need in &mut lost {
            let others = need.count.min(left.get());
            need.count -= others;
            left.set(left.get() - others);
        }
        lost.retain(|need| need.count > 0);
        lost
    }

    /// All such numbers.
    pub(crate) fn ended_counts(&self) -> impl Iterator<Item = &EndedCount> {
        self.ended.0.values()
    }

    /// Restores one of a snapshot.
    pub(crate) fn restore_ended(&mut self, count: EndedCount) {
        let EndedCount {
            cluster,
            owner,
            job,
            pods,
        } = count;
        self.set_ended(&cluster, &owner, Some(job), pods);
    }
}
