//! What of a cluster is too little for a role, as far as is known without looking at its nodes
//! one by one.

use crate::amounts::resource_ids::ResourceId;
use crate::capacity::index::FittingPods;
use crate::capacity::{Capacity, mix};
use crate::cost;
use facts::{ClusterName, ResourceName, Role};

/// What a role is best known by, as clusters count it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Main {
    resource: ResourceId,
    each: i64,
    count: u64,
}

impl Capacity {
    /// Returns what a role is best known by: the device that it requests, or its CPU.
    pub(crate) fn main_of(&self, role: &Role) -> Main {
        let resource = mix::counted_in(&role.request, &self.resource_ids);
        Main {
            resource,
            each: role.request.amount_of(self.resource_ids.name(resource)).0,
            count: u64::from(role.count),
        }
    }

    /// True if a cluster might hold all pods of a role now.
    pub(crate) fn might_hold(&self, cluster: &ClusterName, role: &Role) -> bool {
        let main = self.main_of(role);
        self.known_fitting(cluster, main)
            .is_none_or(|fitting| fitting.now >= main.count)
    }

    /// Returns true if all clusters together might hold all pods of a role now.
    pub(crate) fn all_might_hold(&self, role: &Role) -> bool {
        let main = self.main_of(role);
        let now = self.index.now_in_all(main.resource, main.each);
        main.each <= 0 || now.is_none_or(|now| now >= u128::from(main.count))
    }

    /// True if the fleet is known to hold so many pods in one cluster, or over all of them where they are `divisible`,
    /// once it is empty, as far as goes what each requests of its leading resource. Nothing is known of resources other
    /// than devices and CPU.
    pub(crate) fn is_large_enough(
        &self,
        (leading, each): (&ResourceName, i64),
        count: u32,
        divisible: bool,
    ) -> bool {
        if !leading.is_device() && leading.as_str() != ResourceName::CPU {
            return true;
        }
        let count = u64::from(count);
        let resource = self.resource_ids.find(leading);
        let clusters = resource.and_then(|resource| self.index.fitting(resource, each));
        let mut clusters = clusters.into_iter().flatten().map(|cluster| cluster.empty);
        if !divisible {
            return clusters.any(|pods| pods >= count);
        }
        let mut left = count;
        clusters.any(|pods| {
            left = left.saturating_sub(pods);
            left == 0
        })
    }

    /// At least so much of what a role is best known by would have to become free in a cluster
    /// for all its pods; `None` where even empty nodes would not hold them.
    pub(crate) fn least_to_free(&self, cluster: &ClusterName, main: Main) -> Option<i128> {
        let Main {
            resource, count, ..
        } = main;
        if self
            .known_fitting(cluster, main)
            .is_some_and(|fitting| fitting.empty < count)
        {
            return None;
        }
        let each = i128::from(main.each);
        let room = self.cluster(cluster).filter(|_| each > 0);
        let mut left = i128::from(count);
        // What is free beside whole pods, the most first: there the least is missing.
        let mut rests: Vec<(i128, i128)> = Vec::new();
        let pools = room.into_iter().flat_map(|room| room.pools().values());
        for (state, nodes) in pools.flat_map(|pool| pool.now.all()) {
            cost::node_visits(1);
            let free = state.free.get(resource).max(0);
            if free == 0 {
                continue;
            }
            let nodes = i128::try_from(nodes.len()).unwrap_or(i128::MAX);
            left -= (free / each) * nodes;
            if free % each > 0 {
                rests.push((free % each, nodes));
            }
        }
        rests.sort_unstable_by(|a, b| b.cmp(a));
        let mut least = 0;
        for (rest, nodes) in rests {
            let here = left.clamp(0, nodes);
            least += here * (each - rest);
            left -= here;
        }
        Some(least + left.max(0) * each)
    }

    fn known_fitting(&self, cluster: &ClusterName, main: Main) -> Option<FittingPods> {
        if main.each <= 0 {
            return None;
        }
        let fitting = self.index.fitting(main.resource, main.each)?;
        Some(fitting[self.index.place(cluster)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::testing::{node, resources};
    use facts::{PodFact, PodPhase, Resources, Uid};

    fn gpus(amount: i64) -> Resources {
        resources(&format!("nvidia.com/gpu {amount}"))
    }

    /// A cluster of nodes of eight devices, so many of them free.
    fn room(free: &[i64]) -> Capacity {
        let mut room = Capacity::new();
        for (index, free) in free.iter().enumerate() {
            let node = node(&format!("n{index}"), "nvidia.com/gpu 8");
            let name = node.name.clone();
            room.upsert_node(node);
            room.upsert_pod(PodFact {
                cluster: ClusterName::from("a"),
                uid: Uid::from(format!("p{index}").as_str()),
                node: Some(name),
                request: gpus(8 - free),
                job: None,
                phase: PodPhase::Running,
                symptom: None,
                grace_s: 0,
            });
        }
        room
    }

    #[test]
    fn what_has_to_become_free_is_least_beside_what_is() {
        // Of nodes of which so much is free, for so many pods of so much each.
        let cases: &[(&[i64], u32, i64, i128)] = &[
            (&[8, 8], 4, 4, 0),
            (&[8, 3, 3, 5], 4, 4, 1),
            (&[8, 3, 3, 5], 5, 4, 2),
            (&[8, 3, 3, 5], 6, 4, 5),
            (&[8, 3, 3, 5], 7, 4, 9),
            (&[0, 0], 2, 8, 16),
            (&[6, 1], 2, 8, 9),
            (&[7, 0], 3, 3, 2),
        ];
        for (free, count, each, least) in cases {
            let room = room(free);
            let main = room.main_of(&Role::of("worker", *count, gpus(*each)));
            let found = room.least_to_free(&ClusterName::from("a"), main);
            assert_eq!(found, Some(*least), "{count} × {each} of {free:?}");
        }
    }
}
