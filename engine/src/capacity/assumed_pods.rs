//! Assumed pods: capacity held on nodes for pods of admitted jobs that are not bound yet.
//!
//! A plan becomes assumed pods; each pod that is seen bound takes one; what cannot be honoured any
//! more on its node is moved to another or left without a node. A assumed pod must never outlive
//! its pod's binding, and a assumed pod without a node holds nothing.

use crate::amounts::hashed::Hashed;
use crate::amounts::resource_ids::ResourceVec;
use crate::capacity::Capacity;
use crate::capacity::pack::{Need, NodeView, needs_of};
use crate::overlay::Overlay;
use facts::{ClusterName, Demand, JobKey, NodeName, PodFact, Resources, RolePods, Share};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is held for one job.
#[derive(Debug, Clone)]
pub(crate) struct Assumption {
    /// What its roles request.
    pub(crate) demand: Arc<Demand>,
    /// Its assumed pods; none has a count of zero.
    pub(crate) assumed: Vec<AssumedPod>,
}

/// Capacity for pods of one role, on one node or (for now) nowhere.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct AssumedPod {
    /// The cluster.
    pub(crate) cluster: ClusterName,
    /// Index of the role in the demand.
    pub(crate) role: usize,
    /// The node; `None` while no node has the capacity.
    pub(crate) node: Option<NodeName>,
    /// How many pods.
    pub(crate) count: u32,
}

/// Nodes whose load changed, by cluster.
type ChangedNodes = BTreeMap<ClusterName, BTreeSet<NodeName>>;

impl Assumption {
    /// Returns what one of its assumed pods requests in its cluster.
    pub(crate) fn request(&self, assumed_pod: &AssumedPod) -> &Resources {
        self.demand.roles[assumed_pod.role].request_in(&assumed_pod.cluster)
    }
}

impl Capacity {
    /// Returns what is held, by job; in no order.
    pub(crate) fn assumed(&self) -> &Hashed<JobKey, Assumption> {
        &self.assumed
    }

    /// As [`Capacity::assume`], sharing the demand.
    pub(crate) fn assume_pods(&mut self, key: &JobKey, demand: Arc<Demand>, shares: &[Share]) {
        self.drop_assumed(key);
        let assumed = shares
            .iter()
            .flat_map(|share| self.planned_pods(key, &demand, share))
            .collect();
        self.restore_assumed(key, demand, assumed);
    }

    /// Replaces what is held for a job by exactly `assumed`.
    pub(crate) fn restore_assumed(
        &mut self,
        key: &JobKey,
        demand: Arc<Demand>,
        assumed: Vec<AssumedPod>,
    ) {
        let mut changed = ChangedNodes::new();
        if let Some(old) = self.assumed.remove(key) {
            self.hold(key, &old, false, &mut changed);
        }
        if !assumed.is_empty() {
            let assumption = Assumption { demand, assumed };
            self.hold(key, &assumption, true, &mut changed);
            self.assumed.insert(key.clone(), assumption);
        }
        self.note_unplaced(key);
        // Only now, so that a node which lost and got back the same is not seen to change.
        self.refresh_all(changed);
    }

    /// Holds what is held already for a job whose demand may have changed, and capacity for
    /// further pods, if any.
    pub(crate) fn assume_more(&mut self, key: &JobKey, demand: &Arc<Demand>, more: Option<&Share>) {
        let mut assumed = Vec::new();
        if let Some(assumption) = self.assumed.get(key) {
            for assumed_pod in &assumption.assumed {
                let name = &assumption.demand.roles[assumed_pod.role].name;
                if let Some(role) = demand.roles.iter().position(|role| role.name == *name) {
                    assumed.push(AssumedPod {
                        role,
                        ..assumed_pod.clone()
                    });
                }
            }
        }
        assumed.extend(
            more.into_iter()
                .flat_map(|share| self.planned_pods(key, demand, share)),
        );
        self.restore_assumed(key, Arc::clone(demand), assumed);
    }

    /// Gives back the assumed pods in a cluster beyond what of each role may still come there: so
    /// many pods as `may_be` says, less those that are bound. Assumed pods without a node go first.
    pub(crate) fn trim_assumed(
        &mut self,
        key: &JobKey,
        cluster: &ClusterName,
        may_be: &BTreeMap<&str, u32>,
    ) {
        let Some(assumption) = self.assumed.get(key) else {
            return;
        };
        let demand = Arc::clone(&assumption.demand);
        let pods = may_be.iter().map(|(role, count)| RolePods {
            role: (*role).to_owned(),
            count: *count,
        });
        let pods: Vec<RolePods> = pods.collect();
        let unbound = self.without_pods(key, cluster, needs_of(&demand, &pods), |pod| {
            pod.node.is_some()
        });
        let mut left: BTreeMap<usize, u32> = BTreeMap::new();
        left.extend(unbound.iter().map(|need| (need.index, need.count)));
        let mut assumed = assumption.assumed.clone();
        assumed.sort_by_key(|assumed_pod| assumed_pod.node.is_none());
        for assumed_pod in assumed
            .iter_mut()
            .filter(|assumed_pod| assumed_pod.cluster == *cluster)
        {
            let left = left.entry(assumed_pod.role).or_default();
            assumed_pod.count = assumed_pod.count.min(*left);
            *left -= assumed_pod.count;
        }
        assumed.retain(|assumed_pod| assumed_pod.count > 0);
        self.restore_assumed(key, demand, assumed);
    }

    /// Assumes pods in the place of those that a running job has lost, where there is capacity now.
    /// Replaces what was assumed for the job before.
    pub(crate) fn assume_lost(&mut self, key: &JobKey, demand: &Arc<Demand>, shares: &[Share]) {
        self.drop_assumed(key);
        let assumed = shares.iter().flat_map(|share| {
            let needs = self.lost_of(key, demand, share);
            self.assumed_for(key, demand, &share.cluster, &needs)
        });
        let assumed = assumed.collect();
        self.restore_assumed(key, Arc::clone(demand), assumed);
    }

    /// Gives back all assumed pods of a job.
    pub(super) fn drop_assumed(&mut self, key: &JobKey) {
        self.unplaced.remove(key);
        if let Some(assumption) = self.assumed.remove(key) {
            let mut changed = ChangedNodes::new();
            self.hold(key, &assumption, false, &mut changed);
            self.refresh_all(changed);
        }
    }

    /// A bound pod takes one assumed pod of its job in its cluster: on its node and of its request
    /// first, then of its request, then any. The node of the assumed pod that was taken.
    pub(super) fn bind_assumed(&mut self, pod: &PodFact) -> Option<NodeName> {
        let key = pod.job.as_ref()?;
        pod.node.as_ref()?;
        let assumption = self.assumed.get_mut(key)?;
        let demand = &assumption.demand;
        let index = (0..assumption.assumed.len())
            .filter(|index| assumption.assumed[*index].cluster == pod.cluster)
            .min_by_key(|index| {
                let assumed_pod = &assumption.assumed[*index];
                let role = &demand.roles[assumed_pod.role];
                let same_request = *role.request_in(&pod.cluster) == pod.request;
                let same_node = assumed_pod.node == pod.node;
                (!same_request, !same_node, *index)
            })?;
        let assumed_pod = &mut assumption.assumed[index];
        let request = self
            .resource_ids
            .vector(demand.roles[assumed_pod.role].request_in(&pod.cluster));
        let node = assumed_pod.node.clone();
        assumed_pod.count -= 1;
        if assumed_pod.count == 0 {
            assumption.assumed.remove(index);
        }
        if assumption.assumed.is_empty() {
            self.assumed.remove(key);
        }
        self.note_unplaced(&key.clone());
        let node = node?;
        self.clusters
            .get_mut(&pod.cluster)?
            .assumed_pod(&node, key, &request, 1, false);
        Some(node)
    }

    /// All assumed pods in a cluster that is gone lose their node.
    pub(super) fn lift_all_assumed(&mut self, cluster: &ClusterName) {
        for (key, assumption) in &mut self.assumed {
            for assumed_pod in &mut assumption.assumed {
                if assumed_pod.cluster == *cluster {
                    assumed_pod.node = None;
                    self.unplaced.insert(key.clone());
                }
            }
        }
    }

    /// Moves assumed pods that their nodes cannot honour any more, and gives assumed pods without a node
    /// one where it fits. The jobs that are left with assumed pods without a node, by cluster.
    pub(crate) fn settle(&mut self) -> BTreeSet<(JobKey, ClusterName)> {
        self.lift_overcommitted();
        let mut lost = BTreeSet::new();
        for key in self.unplaced.clone() {
            self.place_unplaced(&key);
            let assumed = self.assumed.get(&key).map(|a| a.assumed.as_slice());
            for assumed_pod in assumed.unwrap_or_default() {
                if assumed_pod.node.is_none() {
                    lost.insert((key.clone(), assumed_pod.cluster.clone()));
                }
            }
            self.note_unplaced(&key);
        }
        lost
    }

    /// The pods of a job in a cluster for which no node is assumed, by role; `None` if there are none.
    pub(crate) fn unplaced_pods(
        &self,
        key: &JobKey,
        cluster: &ClusterName,
    ) -> Option<(Arc<Demand>, BTreeMap<usize, u32>)> {
        let assumption = self.assumed.get(key)?;
        let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
        let unplaced = assumption.assumed.iter();
        for pod in unplaced.filter(|pod| pod.node.is_none() && pod.cluster == *cluster) {
            *counts.entry(pod.role).or_default() += pod.count;
        }
        (!counts.is_empty()).then(|| (Arc::clone(&assumption.demand), counts))
    }

    fn lift_overcommitted(&mut self) {
        for cluster in self.overcommitted.clone() {
            let room = self.clusters.get(&cluster);
            let nodes: Vec<NodeName> = room
                .into_iter()
                .flat_map(|room| room.overcommitted().iter().cloned())
                .collect();
            for node in nodes {
                let room = self.clusters.get(&cluster);
                let keys: Vec<JobKey> = room
                    .into_iter()
                    .flat_map(|room| room.placed_on(&node).rev().cloned())
                    .collect();
                for key in keys {
                    let still = self.clusters.get(&cluster);
                    if !still.is_some_and(|room| room.overcommitted().contains(&node)) {
                        break;
                    }
                    self.lift_from(&key, &cluster, &node);
                }
            }
        }
    }

    fn lift_from(&mut self, key: &JobKey, cluster: &ClusterName, node: &NodeName) {
        let Some(assumption) = self.assumed.get(key) else {
            return;
        };
        let here = |assumed_pod: &AssumedPod| {
            assumed_pod.cluster == *cluster && assumed_pod.node.as_ref() == Some(node)
        };
        if !assumption.assumed.iter().any(here) {
            return;
        }
        let demand = Arc::clone(&assumption.demand);
        let mut assumed = assumption.assumed.clone();
        for assumed_pod in assumed.iter_mut().filter(|assumed_pod| here(assumed_pod)) {
            assumed_pod.node = None;
        }
        self.restore_assumed(key, demand, assumed);
    }

    fn place_unplaced(&mut self, key: &JobKey) {
        let Some(assumption) = self.assumed.get(key) else {
            return;
        };
        let demand = Arc::clone(&assumption.demand);
        let (unplaced, mut assumed): (Vec<AssumedPod>, Vec<AssumedPod>) = assumption
            .assumed
            .iter()
            .cloned()
            .partition(|assumed_pod| assumed_pod.node.is_none());
        let clusters: BTreeSet<ClusterName> = unplaced
            .iter()
            .map(|assumed_pod| assumed_pod.cluster.clone())
            .collect();
        for cluster in clusters {
            let wanted = unplaced
                .iter()
                .filter(|assumed_pod| assumed_pod.cluster == cluster);
            let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
            for assumed_pod in wanted {
                *counts.entry(assumed_pod.role).or_default() += assumed_pod.count;
            }
            let needs: Vec<Need<'_>> = counts
                .into_iter()
                .map(|(index, count)| Need {
                    index,
                    role: &demand.roles[index],
                    count,
                })
                .collect();
            assumed.extend(self.assumed_for(key, &demand, &cluster, &needs));
        }
        self.restore_assumed(key, demand, assumed);
    }

    /// Assumed pods for `needs` as far as they fit now; the rest without a node.
    fn assumed_for(
        &self,
        key: &JobKey,
        demand: &Demand,
        cluster: &ClusterName,
        needs: &[Need<'_>],
    ) -> Vec<AssumedPod> {
        let mut assumed = Vec::new();
        let mut overlay = Overlay::default();
        let mut standing = self.standing(key, cluster, demand, true);
        for need in needs {
            let node_view = NodeView::of(&overlay).beside(&standing);
            let packing = self.pack(cluster, std::slice::from_ref(need), node_view);
            let mut left = need.count;
            for placed in packing.placed {
                left -= placed.count;
                let taken = overlay.node_mut(cluster, &placed.node);
                taken.add(need.role.request_in(cluster), i64::from(placed.count));
                if demand.has_rules() {
                    let nodes = standing.entry(need.role.name.clone()).or_default();
                    *nodes.entry(placed.node.clone()).or_default() += placed.count;
                }
                assumed.push(assumed_pod(
                    cluster,
                    need.index,
                    Some(placed.node),
                    placed.count,
                ));
            }
            if left > 0 {
                assumed.push(assumed_pod(cluster, need.index, None, left));
            }
        }
        assumed
    }

    /// The assumed pods of a share: as its plan says, or found now where it names no nodes.
    fn planned_pods(&self, key: &JobKey, demand: &Demand, share: &Share) -> Vec<AssumedPod> {
        if share.slots.is_empty() {
            let unbound = self.unbound(key, demand, share);
            return self.assumed_for(key, demand, &share.cluster, &unbound);
        }
        share
            .slots
            .iter()
            .filter_map(|slot| {
                let role = demand.roles.iter().position(|r| r.name == slot.role)?;
                Some(assumed_pod(
                    &share.cluster,
                    role,
                    Some(slot.node.clone()),
                    slot.count,
                ))
            })
            .filter(|assumed_pod| assumed_pod.count > 0)
            .collect()
    }

    /// Puts assumed pods on the nodes, or takes them off, whose free amounts are stale until refreshed.
    fn hold(
        &mut self,
        key: &JobKey,
        assumption: &Assumption,
        come: bool,
        changed: &mut ChangedNodes,
    ) {
        let roles = &assumption.demand.roles;
        let requests: Vec<ResourceVec> = roles
            .iter()
            .map(|role| self.resource_ids.vector(&role.request))
            .collect();
        for assumed_pod in &assumption.assumed {
            let in_cluster = roles[assumed_pod.role]
                .requests_in
                .get(&assumed_pod.cluster);
            let in_cluster = in_cluster.map(|request| self.resource_ids.vector(request));
            let request = in_cluster.as_ref();
            let request = request.unwrap_or(&requests[assumed_pod.role]);
            if let Some(node) = &assumed_pod.node {
                let room = match self.clusters.get_mut(&assumed_pod.cluster) {
                    Some(room) => room,
                    None => self
                        .clusters
                        .entry(assumed_pod.cluster.clone())
                        .or_default(),
                };
                room.assumed_pod(node, key, request, assumed_pod.count, come);
                let nodes = match changed.get_mut(&assumed_pod.cluster) {
                    Some(nodes) => nodes,
                    None => changed.entry(assumed_pod.cluster.clone()).or_default(),
                };
                nodes.insert(node.clone());
            }
        }
    }

    fn refresh_all(&mut self, changed: ChangedNodes) {
        for (cluster, nodes) in changed {
            self.refresh(&cluster, &nodes);
        }
    }

    fn note_unplaced(&mut self, key: &JobKey) {
        let assumed = self.assumed.get(key).map(|a| a.assumed.as_slice());
        if assumed.unwrap_or_default().iter().any(|s| s.node.is_none()) {
            self.unplaced.insert(key.clone());
        } else {
            self.unplaced.remove(key);
        }
    }
}

fn assumed_pod(
    cluster: &ClusterName,
    role: usize,
    node: Option<NodeName>,
    count: u32,
) -> AssumedPod {
    AssumedPod {
        cluster: cluster.clone(),
        role,
        node,
        count,
    }
}
