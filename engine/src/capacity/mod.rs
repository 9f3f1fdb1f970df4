//! The capacity store: clusters, their nodes and pods, and what is free on each node.
//!
//! Facts of clusters, nodes and pods flow in, and the pods that admitted jobs have yet to start
//! (assumed pods). Whether a gang fits, and where, flows out. A pool is the nodes of one class in one
//! cluster. The engine decides on one `Capacity`; the scheduler keeps another on its own live view and
//! checks each plan against it. A `Capacity` knows neither queues nor order, and must never count a pod
//! twice: as assumed and as bound.

use crate::amounts::hashed::Hashed;
use crate::amounts::resource_ids::ResourceIds;
use crate::amounts::totals::ResourceTotals;
pub(crate) use assumed_pods::AssumedPod;
use assumed_pods::Assumption;
use cluster::NodeChange;
pub(crate) use cluster::{ClusterCapacity, NodeInfo};
use completion_grace::CompletionGrace;
pub(crate) use completion_grace::Ended;
pub(crate) use ended::EndedCount;
use ended::EndedCounts;
use facts::{
    ClusterFact, ClusterName, Demand, JobKey, NodeFact, NodeName, PodFact, PoolClass, Resources,
    Role, Share, Uid,
};
pub(crate) use holdings::Holdings;
pub(crate) use images::ImageId;
use images::ImagesByNode;
use index::Index;
pub(crate) use index::{FittingPods, Place};
pub use left::PodsLeft;
use mix::DemandMix;
pub(crate) use mix::MixRecord;
pub(crate) use pack::{Need, NodeView, Packing, can_run_on, device, leading, leading_amount};
pub(crate) use place::PackEffect;
pub(crate) use pod_rules::{PodRules, StandingPods, Together, combined, most_on_a_node, together};
pub use pools::{PoolSummary, pods_that_fit};

pub(crate) use sites::Sites;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod cluster;

mod completion_grace;

mod domains;

mod ended;

mod field;

mod healthy;

mod holdings;

mod images;

mod index;

mod lack;
mod left;

mod mix;

mod pack;

mod place;

mod pod_rules;

mod pool;

mod pools;

mod search;

mod assumed_pods;

mod audit;

mod sites;

mod unbound;

#[cfg(test)]
pub(crate) mod testing;

/// The clusters with their nodes and pods, and what admitted jobs have yet to start there.
#[derive(Debug, Clone, Default)]
pub struct Capacity {
    /// The fact of each cluster, as last observed.
    facts: BTreeMap<ClusterName, ClusterFact>,
    clusters: BTreeMap<ClusterName, ClusterCapacity>,
    /// Pods that ended before their jobs are seen to have ended.
    completion_grace: CompletionGrace,
    assumed: Hashed<JobKey, Assumption>,
    /// Where the pods of each job are, bound or not, ended or not.
    pods_of: Hashed<JobKey, BTreeSet<(ClusterName, Uid)>>,
    /// Ended pods of which only the number is known.
    ended: EndedCounts,
    images: ImagesByNode,
    /// Jobs with assumed pods that have no node at the moment.
    unplaced: BTreeSet<JobKey>,
    /// Clusters with nodes that hold assumed pods which cannot be honoured there.
    overcommitted: BTreeSet<ClusterName>,
    /// Jobs of which pods were bound, changed or lost since this was last taken.
    pods_changed: BTreeSet<JobKey>,
    /// Clusters of which a node came, went, or changed what it is.
    touched: BTreeMap<ClusterName, BTreeSet<NodeName>>,
    /// True if one of them has other topology domains since.
    regrouped: bool,
    resource_ids: ResourceIds,
    mix: DemandMix,
    index: Index,
    /// Nodes of which more became free.
    freed: BTreeMap<ClusterName, BTreeSet<NodeName>>,
}

impl Capacity {
    /// No clusters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the fact of a cluster. Returns whether it differs from the one before.
    pub(crate) fn set_cluster(&mut self, fact: ClusterFact) -> bool {
        let differs = self.facts.get(&fact.name) != Some(&fact);
        if differs {
            self.facts.insert(fact.name.clone(), fact);
        }
        differs
    }

    /// The fact of a cluster.
    pub(crate) fn cluster_fact(&self, name: &ClusterName) -> Option<&ClusterFact> {
        self.facts.get(name)
    }

    /// The fact of each cluster.
    pub(crate) fn cluster_facts(&self) -> &BTreeMap<ClusterName, ClusterFact> {
        &self.facts
    }

    /// The clusters that have a fact, in order.
    pub(crate) fn cluster_names(&self) -> impl Iterator<Item = &ClusterName> {
        self.facts.keys()
    }

    /// The class of the pool of a node.
    #[must_use]
    pub fn class_of(&self, cluster: &ClusterName, node: &NodeName) -> Option<&PoolClass> {
        let nodes = self.clusters.get(cluster)?.nodes();
        Some(&nodes.get(node)?.fact.class)
    }

    /// A node exists, or changed. Its pods may have been observed before.
    pub fn upsert_node(&mut self, fact: NodeFact) {
        let cluster = fact.cluster.clone();
        self.know(&cluster);
        let room = self.clusters.entry(cluster.clone()).or_default();
        let before = room.nodes().get(&fact.name);
        let (name, lost) = (fact.name.clone(), fact.lost);
        let turned = before.is_none_or(|before| {
            let is = &before.fact;
            is.lost != lost || is.allocatable != fact.allocatable || is.class != fact.class
        });
        let change = room.upsert_node(fact, &mut self.resource_ids);
        self.changed(&cluster, &name, change);
        if turned {
            self.note_pods_on(&cluster, &name);
        }
    }

    /// True if one pod of a role fits on a node beside what is `withheld` of it.
    pub(crate) fn takes_one(
        &self,
        node: &NodeInfo,
        role: &Role,
        withheld: Option<&ResourceTotals>,
    ) -> bool {
        let request = role.request_in(&node.fact.cluster);
        let mut request = request.iter().filter(|(_, amount)| amount.0 > 0);
        request.all(|(name, amount)| {
            let free = self.free_of(node, name);
            let withheld = withheld.map_or(0, |withheld| withheld.get(name));
            free - withheld >= i128::from(amount.0)
        }) && can_run_on(role, node)
    }

    /// Returns what a node has free; below zero where it is overcommitted.
    pub(crate) fn free_on(&self, node: &NodeInfo) -> ResourceTotals {
        self.resource_ids.totals(&node.free)
    }

    /// Returns what a node has free of a resource.
    pub(crate) fn free_of(&self, node: &NodeInfo, name: &crate::ResourceName) -> i128 {
        self.resource_ids
            .find(name)
            .map_or(0, |resource| node.free.get(resource))
    }

    /// A node is gone. Its bound pods have events of their own.
    pub fn remove_node(&mut self, cluster: &ClusterName, node: &NodeName) {
        self.images.clear(cluster, node);
        if let Some(room) = self.clusters.get_mut(cluster) {
            let change = room.remove_node(node);
            self.changed(cluster, node, change);
            self.note_pods_on(cluster, node);
        }
    }

    /// A pod exists, or changed. Where it is newly seen bound and belongs to a job with assumed pods,
    /// it takes one of them.
    pub fn upsert_pod(&mut self, fact: PodFact) {
        let cluster = fact.cluster.clone();
        self.know(&cluster);
        let room = self.clusters.entry(cluster.clone()).or_default();
        let Some(before) = room.put_pod(fact.clone(), &mut self.resource_ids) else {
            return;
        };
        self.pods_changed.extend(fact.job.clone());
        let other = before.as_ref().filter(|before| before.job != fact.job);
        self.pods_changed
            .extend(other.and_then(|before| before.job.clone()));
        if before.as_ref().and_then(|pod| pod.job.as_ref()) != fact.job.as_ref() {
            self.unlink_pod(before.as_ref());
            if let Some(key) = &fact.job {
                let place = (cluster.clone(), fact.uid.clone());
                self.pods_of.entry(key.clone()).or_default().insert(place);
            }
        }
        let was_assumed_before = before
            .as_ref()
            .is_some_and(|pod| pod.node.is_some() && pod.job == fact.job);
        let mut nodes: BTreeSet<NodeName> = before.and_then(|pod| pod.node).into_iter().collect();
        nodes.extend(fact.node.clone());
        if !was_assumed_before {
            nodes.extend(self.bind_assumed(&fact));
        }
        self.refresh(&cluster, &nodes);
    }

    /// A pod is gone.
    pub fn remove_pod(&mut self, cluster: &ClusterName, uid: &Uid) {
        let Some(room) = self.clusters.get_mut(cluster) else {
            return;
        };
        let Some(pod) = room.drop_pod(uid, &mut self.resource_ids) else {
            return;
        };
        self.unlink_pod(Some(&pod));
        self.pods_changed.extend(pod.job.clone());
        self.refresh(cluster, &pod.node.into_iter().collect());
    }

    /// A cluster is gone, with its nodes and pods. Assumed pods there stay without a node.
    pub fn remove_cluster(&mut self, cluster: &ClusterName) {
        self.facts.remove(cluster);
        self.completion_grace
            .take(|ended| ended.pod.cluster == *cluster);
        self.ended.cluster_gone(cluster);
        self.images.clear_cluster(cluster);
        let Some(room) = self.clusters.remove(cluster) else {
            return;
        };
        for pod in room.pods().values() {
            self.unlink_pod(Some(pod));
        }
        self.lift_all_assumed(cluster);
        self.overcommitted.remove(cluster);
        self.index
            .rebuild(&self.clusters, self.mix.amounts(&self.resource_ids));
        self.touched.entry(cluster.clone()).or_default();
    }

    /// Holds capacity for the pods of `shares` that are not bound yet: on the nodes that the plan
    /// names, or where it names none (a record read back) on nodes that are found here, the
    /// job's bound pods taken off. Replaces what was held for the job before.
    pub fn assume(&mut self, key: &JobKey, demand: &Demand, shares: &[Share]) {
        self.assume_pods(key, Arc::new(demand.clone()), shares);
        // A plan that changes a placed job names the nodes of the pods that run as well.
        for share in shares {
            let pods = share.pods.iter();
            let may_be = pods.map(|pods| (pods.role.as_str(), pods.count)).collect();
            self.trim_assumed(key, &share.cluster, &may_be);
        }
    }

    /// Gives back all capacity that is held for a job.
    pub fn forget(&mut self, key: &JobKey) {
        self.drop_assumed(key);
    }

    /// Every pool, in order of cluster and class.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolSummary> {
        pools::summarize(self)
    }

    /// A job was submitted: the mix of demands, for which as little as may be is made unusable,
    /// has one more.
    pub(crate) fn note_demand(&mut self, demand: &Demand) {
        if self.mix.note(demand, &mut self.resource_ids) {
            self.index
                .follow(&self.clusters, self.mix.amounts(&self.resource_ids));
        }
    }

    /// Returns what of the mix has to be stored to go on elsewhere.
    pub(crate) fn mix(&self) -> &MixRecord {
        self.mix.record()
    }

    /// Goes on from a mix that was stored.
    pub(crate) fn restore_mix(&mut self, record: MixRecord) {
        self.mix.restore(record, &mut self.resource_ids);
        self.index
            .follow(&self.clusters, self.mix.amounts(&self.resource_ids));
    }

    /// Clusters with nodes or pods, in order; a place is an index in it.
    pub(crate) fn places(&self) -> &[ClusterName] {
        self.index.names()
    }

    /// Changes whenever places do.
    pub(crate) fn places_generation(&self) -> u64 {
        self.index.generation()
    }

    /// How many pods of a role each cluster might hold, by place: those that it might not are
    /// known without looking at its nodes. Where a cluster adds to the template's request, fewer fit.
    pub(crate) fn fitting_for_role(&self, role: &Role) -> Cow<'_, [FittingPods]> {
        let resource = mix::counted_in(&role.request, &self.resource_ids);
        let each = self.resource_ids.request(&role.request).get(resource);
        if each == 0 {
            let all = FittingPods {
                now: u64::MAX,
                empty: u64::MAX,
                tightest: i64::MAX,
            };
            return Cow::Owned(vec![all; self.index.names().len()]);
        }
        match self.index.fitting(resource, each) {
            Some(fitting) => Cow::Borrowed(fitting),
            None => self
                .clusters
                .values()
                .map(|room| index::count(room, resource, each))
                .collect(),
        }
    }

    /// The view of one cluster.
    pub(crate) fn cluster(&self, name: &ClusterName) -> Option<&ClusterCapacity> {
        self.clusters.get(name)
    }

    /// Every cluster with nodes or pods.
    pub(crate) fn clusters(&self) -> &BTreeMap<ClusterName, ClusterCapacity> {
        &self.clusters
    }

    /// How many clusters [`Self::take_touched`] would name.
    pub(crate) fn touched_len(&self) -> usize {
        self.touched.len()
    }

    /// True if [`Self::take_touched`] would name none.
    pub(crate) fn nothing_touched(&self) -> bool {
        self.touched.is_empty()
    }

    /// Clusters of which a node came, went, or changed what it is (capacity, labels, taints,
    /// health) since the last call, each with the nodes that may run what they could not run before.
    pub(crate) fn take_touched(&mut self) -> BTreeMap<ClusterName, BTreeSet<NodeName>> {
        std::mem::take(&mut self.touched)
    }

    /// Returns true if a cluster has other topology domains since the last call.
    pub(crate) fn take_regrouped(&mut self) -> bool {
        std::mem::take(&mut self.regrouped)
    }

    /// Nodes of which more became free since the last call, by cluster.
    pub(crate) fn take_grown(&mut self) -> BTreeMap<ClusterName, BTreeSet<NodeName>> {
        std::mem::take(&mut self.freed)
    }

    /// Returns what pods of the job in `cluster` request that have not ended.
    pub(crate) fn requested(&self, key: &JobKey, cluster: &ClusterName) -> Resources {
        let pods = self.pods_in(key, cluster).filter(|pod| !pod.ended());
        let mut requested = ResourceTotals::default();
        pods.for_each(|pod| requested.add(&pod.request, 1));
        requested.to_resources()
    }

    fn pods_in<'a>(
        &'a self,
        key: &JobKey,
        cluster: &'a ClusterName,
    ) -> impl Iterator<Item = &'a PodFact> {
        let room = self.clusters.get(cluster);
        self.pods_of
            .get(key)
            .into_iter()
            .flatten()
            .filter(move |(place, _)| place == cluster)
            .filter_map(move |(_, uid)| room?.pods().get(uid))
    }

    fn unlink_pod(&mut self, pod: Option<&PodFact>) {
        let Some((pod, key)) = pod.and_then(|pod| Some((pod, pod.job.as_ref()?))) else {
            return;
        };
        if let Some(pods) = self.pods_of.get_mut(key) {
            pods.remove(&(pod.cluster.clone(), pod.uid.clone()));
            if pods.is_empty() {
                self.pods_of.remove(key);
            }
        }
    }

    fn refresh(&mut self, cluster: &ClusterName, nodes: &BTreeSet<NodeName>) {
        for node in nodes {
            let Some(room) = self.clusters.get_mut(cluster) else {
                return;
            };
            let change = room.refresh(node);
            if change.grew {
                let freed = self.freed.entry(cluster.clone()).or_default();
                freed.insert(node.clone());
            }
            self.changed(cluster, node, change);
        }
    }

    /// Makes place for a cluster.
    fn know(&mut self, cluster: &ClusterName) {
        if !self.index.knows(cluster) {
            self.clusters.entry(cluster.clone()).or_default();
            self.index
                .rebuild(&self.clusters, self.mix.amounts(&self.resource_ids));
        }
    }

    /// Brings what is known of a cluster as a whole up to date with a node of it.
    fn changed(&mut self, cluster: &ClusterName, node: &NodeName, change: NodeChange) {
        self.know(cluster);
        let Some(room) = self.clusters.get(cluster) else {
            return;
        };
        if let Some((from, to)) = &change.counted {
            let fleet = change.fleet;
            self.index.moved(cluster, room, (from, to), fleet);
        }
        if room.overcommitted().is_empty() {
            self.overcommitted.remove(cluster);
        } else {
            self.overcommitted.insert(cluster.clone());
        }
        self.regrouped |= change.regrouped;
        if change.fleet {
            let better = self.touched.entry(cluster.clone()).or_default();
            if change.better {
                better.insert(node.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{node, resources};
    use super::*;

    #[test]
    fn a_pod_that_becomes_another_jobs_is_counted_for_that_alone() {
        let mut room = Capacity::new();
        let node = node("n0", "nvidia.com/gpu 8");
        let (cluster, name) = (node.cluster.clone(), node.name.clone());
        room.upsert_node(node);
        let [one, other] = ["one", "other"].map(|name| JobKey::new("ns", name));
        let started = |room: &Capacity| [&one, &other].map(|key| room.started_pods(key, &cluster));
        for (job, counts) in [(Some(&one), [1, 0]), (Some(&other), [0, 1]), (None, [0, 0])] {
            room.upsert_pod(PodFact {
                cluster: cluster.clone(),
                uid: Uid::from("pod"),
                node: Some(name.clone()),
                request: resources("nvidia.com/gpu 1"),
                job: job.cloned(),
                phase: facts::PodPhase::Running,
                symptom: None,
                grace_s: 0,
            });
            assert_eq!(started(&room), counts, "{job:?}");
        }
    }
}
