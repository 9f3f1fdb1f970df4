//! What one job holds of nodes: its bound pods, and the seats of those that are to come.

use super::Room;
use crate::amounts::tally::Tally;
use crate::api::ids::{ClusterName, JobKey, NodeName};
use std::collections::BTreeMap;

/// What is held, by node.
pub(crate) type Holdings = BTreeMap<(ClusterName, NodeName), Tally>;

impl Room {
    /// What would be free, by node, were the job gone.
    pub(crate) fn holdings(&self, key: &JobKey) -> Holdings {
        let mut held = Holdings::new();
        for (cluster, uid) in self.pods_of.get(key).into_iter().flatten() {
            let room = self.clusters.get(cluster);
            let Some(pod) = room.and_then(|room| room.pods().get(uid)) else {
                continue;
            };
            if let Some(node) = pod.node.as_ref().filter(|_| !pod.ended) {
                let at = (cluster.clone(), node.clone());
                held.entry(at).or_default().add(&pod.request, 1);
            }
        }
        if let Some(assumption) = self.assumed.get(key) {
            for seat in &assumption.seats {
                if let Some(node) = &seat.node {
                    let at = (seat.cluster.clone(), node.clone());
                    let request = &assumption.demand.roles[seat.role].request;
                    let entry = held.entry(at).or_default();
                    entry.add(request, i64::from(seat.count));
                }
            }
        }
        held
    }
}
