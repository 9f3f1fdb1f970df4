//! Seats: room held on nodes for pods of released jobs that are not bound yet.
//!
//! A plan becomes seats; each pod that is seen bound takes one; what cannot be honoured any
//! more on its node is moved to another or left without a node. A seat must never outlive
//! its pod's binding, and a seat without a node holds nothing.

use crate::amounts::hashed::Hashed;
use crate::amounts::resources::Resources;
use crate::amounts::tally::Tally;
use crate::api::demand::Demand;
use crate::api::facts::{PodFact, RolePods, Share};
use crate::api::ids::{ClusterName, JobKey, NodeName};
use crate::capacity::Room;
use crate::capacity::dims::Row;
use crate::capacity::pack::{Basis, Need, NodeView, needs_of};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is held for one job.
#[derive(Debug, Clone)]
pub(crate) struct Assumption {
    /// What its roles ask for.
    pub(crate) demand: Arc<Demand>,
    /// Its seats; none has a count of zero.
    pub(crate) seats: Vec<AssumedPod>,
}

/// Room for pods of one role, on one node or (for now) nowhere.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct AssumedPod {
    /// The cluster.
    pub(crate) cluster: ClusterName,
    /// Index of the role in the demand.
    pub(crate) role: usize,
    /// The node; `None` while no node has room.
    pub(crate) node: Option<NodeName>,
    /// How many pods.
    pub(crate) count: u32,
}

/// Nodes whose load changed, by cluster.
type Changed = BTreeMap<ClusterName, BTreeSet<NodeName>>;

impl Assumption {
    fn request(&self, seat: &AssumedPod) -> &Resources {
        &self.demand.roles[seat.role].request
    }
}

impl Room {
    /// What is held, by job; in no order.
    pub(crate) fn assumed(&self) -> &Hashed<JobKey, Assumption> {
        &self.assumed
    }

    /// As [`Room::assume`], sharing the demand.
    pub(crate) fn assume_seats(&mut self, key: &JobKey, demand: Arc<Demand>, shares: &[Share]) {
        self.drop_seats(key);
        let seats = shares
            .iter()
            .flat_map(|share| self.planned_seats(key, &demand, share))
            .collect();
        self.restore_seats(key, demand, seats);
    }

    /// Replaces what is held for a job by exactly `seats`.
    pub(crate) fn restore_seats(
        &mut self,
        key: &JobKey,
        demand: Arc<Demand>,
        seats: Vec<AssumedPod>,
    ) {
        let mut changed = Changed::new();
        if let Some(old) = self.assumed.remove(key) {
            self.hold(key, &old, false, &mut changed);
        }
        if !seats.is_empty() {
            let assumption = Assumption { demand, seats };
            self.hold(key, &assumption, true, &mut changed);
            self.assumed.insert(key.clone(), assumption);
        }
        self.note_floating(key);
        // Only now, so that a node which lost and got back the same is not seen to change.
        self.refresh_all(changed);
    }

    /// Holds what is held already for a job whose demand may have changed, and room for
    /// further pods, if any.
    pub(crate) fn add_seats(&mut self, key: &JobKey, demand: &Arc<Demand>, more: Option<&Share>) {
        let mut seats = Vec::new();
        if let Some(assumption) = self.assumed.get(key) {
            for seat in &assumption.seats {
                let name = &assumption.demand.roles[seat.role].name;
                if let Some(role) = demand.roles.iter().position(|role| role.name == *name) {
                    seats.push(AssumedPod {
                        role,
                        ..seat.clone()
                    });
                }
            }
        }
        seats.extend(
            more.into_iter()
                .flat_map(|share| self.planned_seats(key, demand, share)),
        );
        self.restore_seats(key, Arc::clone(demand), seats);
    }

    /// Gives back the seats in a cluster beyond what of each role may still come there: so
    /// many pods as `may_be` says, less those that are bound. Seats without a node go first.
    pub(crate) fn trim_seats(
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
        let unbound = self.unbound_of(key, cluster, needs_of(&demand, &pods));
        let mut left: BTreeMap<usize, u32> = BTreeMap::new();
        left.extend(unbound.iter().map(|need| (need.index, need.count)));
        let mut seats = assumption.seats.clone();
        seats.sort_by_key(|seat| seat.node.is_none());
        for seat in seats.iter_mut().filter(|seat| seat.cluster == *cluster) {
            let left = left.entry(seat.role).or_default();
            seat.count = seat.count.min(*left);
            *left -= seat.count;
        }
        seats.retain(|seat| seat.count > 0);
        self.restore_seats(key, demand, seats);
    }

    /// Gives back all seats of a job.
    pub(super) fn drop_seats(&mut self, key: &JobKey) {
        self.floating.remove(key);
        if let Some(assumption) = self.assumed.remove(key) {
            let mut changed = Changed::new();
            self.hold(key, &assumption, false, &mut changed);
            self.refresh_all(changed);
        }
    }

    /// A bound pod takes one seat of its job in its cluster: on its node and of its request
    /// first, then of its request, then any. The node of the seat that was taken.
    pub(super) fn take_seat(&mut self, pod: &PodFact) -> Option<NodeName> {
        let key = pod.job.as_ref()?;
        pod.node.as_ref()?;
        let assumption = self.assumed.get_mut(key)?;
        let demand = &assumption.demand;
        let index = (0..assumption.seats.len())
            .filter(|index| assumption.seats[*index].cluster == pod.cluster)
            .min_by_key(|index| {
                let seat = &assumption.seats[*index];
                let same_request = demand.roles[seat.role].request == pod.request;
                let same_node = seat.node == pod.node;
                (!same_request, !same_node, *index)
            })?;
        let seat = &mut assumption.seats[index];
        let request = self.dims.row(&demand.roles[seat.role].request);
        let node = seat.node.clone();
        seat.count -= 1;
        if seat.count == 0 {
            assumption.seats.remove(index);
        }
        if assumption.seats.is_empty() {
            self.assumed.remove(key);
        }
        self.note_floating(&key.clone());
        let node = node?;
        self.clusters
            .get_mut(&pod.cluster)?
            .seat(&node, key, &request, 1, false);
        Some(node)
    }

    /// All seats in a cluster that is gone lose their node.
    pub(super) fn lift_all_seats(&mut self, cluster: &ClusterName) {
        for (key, assumption) in &mut self.assumed {
            for seat in &mut assumption.seats {
                if seat.cluster == *cluster {
                    seat.node = None;
                    self.floating.insert(key.clone());
                }
            }
        }
    }

    /// Moves seats that their nodes cannot honour any more, and gives seats without a node
    /// one where there is room. The jobs that are left with seats without a node, by cluster.
    pub(crate) fn settle(&mut self) -> BTreeSet<(JobKey, ClusterName)> {
        self.lift_strained();
        let mut lost = BTreeSet::new();
        for key in self.floating.clone() {
            self.seat_floating(&key);
            let seats = self.assumed.get(&key).map(|a| a.seats.as_slice());
            for seat in seats.unwrap_or_default() {
                if seat.node.is_none() {
                    lost.insert((key.clone(), seat.cluster.clone()));
                }
            }
            self.note_floating(&key);
        }
        lost
    }

    fn lift_strained(&mut self) {
        for cluster in self.strained.clone() {
            let room = self.clusters.get(&cluster);
            let nodes: Vec<NodeName> = room
                .into_iter()
                .flat_map(|room| room.strained().iter().cloned())
                .collect();
            for node in nodes {
                let room = self.clusters.get(&cluster);
                let keys: Vec<JobKey> = room
                    .into_iter()
                    .flat_map(|room| room.seated_on(&node).rev().cloned())
                    .collect();
                for key in keys {
                    let still = self.clusters.get(&cluster);
                    if !still.is_some_and(|room| room.strained().contains(&node)) {
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
        let here = |seat: &AssumedPod| seat.cluster == *cluster && seat.node.as_ref() == Some(node);
        if !assumption.seats.iter().any(here) {
            return;
        }
        let demand = Arc::clone(&assumption.demand);
        let mut seats = assumption.seats.clone();
        for seat in seats.iter_mut().filter(|seat| here(seat)) {
            seat.node = None;
        }
        self.restore_seats(key, demand, seats);
    }

    fn seat_floating(&mut self, key: &JobKey) {
        let Some(assumption) = self.assumed.get(key) else {
            return;
        };
        let demand = Arc::clone(&assumption.demand);
        let (floating, mut seats): (Vec<AssumedPod>, Vec<AssumedPod>) = assumption
            .seats
            .iter()
            .cloned()
            .partition(|seat| seat.node.is_none());
        let clusters: BTreeSet<ClusterName> =
            floating.iter().map(|seat| seat.cluster.clone()).collect();
        for cluster in clusters {
            let wanted = floating.iter().filter(|seat| seat.cluster == cluster);
            let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
            for seat in wanted {
                *counts.entry(seat.role).or_default() += seat.count;
            }
            let needs: Vec<Need<'_>> = counts
                .into_iter()
                .map(|(index, count)| Need {
                    index,
                    role: &demand.roles[index],
                    count,
                })
                .collect();
            seats.extend(self.seats_for(&cluster, &needs));
        }
        self.restore_seats(key, demand, seats);
    }

    /// Seats for `needs` as far as there is room now; the rest without a node.
    fn seats_for(&self, cluster: &ClusterName, needs: &[Need<'_>]) -> Vec<AssumedPod> {
        let mut seats = Vec::new();
        let mut overlay: BTreeMap<NodeName, Tally> = BTreeMap::new();
        for need in needs {
            let lens = NodeView {
                basis: Basis::Now,
                class: None,
                overlay: Cow::Borrowed(&overlay),
            };
            let packing = self.pack(cluster, std::slice::from_ref(need), &lens);
            let mut left = need.count;
            for seated in packing.seats {
                left -= seated.count;
                let taken = overlay.entry(seated.node.clone()).or_default();
                taken.add(&need.role.request, i64::from(seated.count));
                seats.push(seat(cluster, need.index, Some(seated.node), seated.count));
            }
            if left > 0 {
                seats.push(seat(cluster, need.index, None, left));
            }
        }
        seats
    }

    /// The seats of a share: as its plan says, or found now where it names no nodes.
    fn planned_seats(&self, key: &JobKey, demand: &Demand, share: &Share) -> Vec<AssumedPod> {
        if share.slots.is_empty() {
            return self.seats_for(&share.cluster, &self.unbound(key, demand, share));
        }
        share
            .slots
            .iter()
            .filter_map(|slot| {
                let role = demand.roles.iter().position(|r| r.name == slot.role)?;
                Some(seat(
                    &share.cluster,
                    role,
                    Some(slot.node.clone()),
                    slot.count,
                ))
            })
            .filter(|seat| seat.count > 0)
            .collect()
    }

    /// The pods of a share that are not bound: its counts less the job's bound pods, each
    /// taken off the role of its request, or off any where none has it.
    pub(super) fn unbound<'a>(
        &self,
        key: &JobKey,
        demand: &'a Demand,
        share: &Share,
    ) -> Vec<Need<'a>> {
        self.unbound_of(key, &share.cluster, needs_of(demand, &share.pods))
    }

    fn unbound_of<'a>(
        &self,
        key: &JobKey,
        cluster: &ClusterName,
        mut needs: Vec<Need<'a>>,
    ) -> Vec<Need<'a>> {
        for pod in self.pods_in(key, cluster) {
            if pod.node.is_none() {
                continue;
            }
            let open = |need: &&mut Need<'_>| need.count > 0;
            let same = |need: &&mut Need<'_>| need.count > 0 && need.role.request == pod.request;
            if let Some(need) = needs.iter_mut().find(same) {
                need.count -= 1;
            } else if let Some(need) = needs.iter_mut().find(open) {
                need.count -= 1;
            }
        }
        needs.retain(|need| need.count > 0);
        needs
    }

    /// What is held for a job on the nodes of a cluster, as an overlay that gives it back.
    pub(super) fn own_seats(
        &self,
        key: &JobKey,
        cluster: &ClusterName,
    ) -> BTreeMap<NodeName, Tally> {
        let mut overlay: BTreeMap<NodeName, Tally> = BTreeMap::new();
        if let Some(assumption) = self.assumed.get(key) {
            for seat in assumption.seats.iter().filter(|s| s.cluster == *cluster) {
                if let Some(node) = &seat.node {
                    let held = overlay.entry(node.clone()).or_default();
                    held.add(assumption.request(seat), -i64::from(seat.count));
                }
            }
        }
        overlay
    }

    /// Puts seats on the nodes, or takes them off, whose free amounts are stale until refreshed.
    fn hold(&mut self, key: &JobKey, assumption: &Assumption, come: bool, changed: &mut Changed) {
        let roles = assumption.demand.roles.iter();
        let requests: Vec<Row> = roles.map(|role| self.dims.row(&role.request)).collect();
        for seat in &assumption.seats {
            if let Some(node) = &seat.node {
                let room = match self.clusters.get_mut(&seat.cluster) {
                    Some(room) => room,
                    None => self.clusters.entry(seat.cluster.clone()).or_default(),
                };
                room.seat(node, key, &requests[seat.role], seat.count, come);
                let nodes = match changed.get_mut(&seat.cluster) {
                    Some(nodes) => nodes,
                    None => changed.entry(seat.cluster.clone()).or_default(),
                };
                nodes.insert(node.clone());
            }
        }
    }

    fn refresh_all(&mut self, changed: Changed) {
        for (cluster, nodes) in changed {
            self.refresh(&cluster, &nodes);
        }
    }

    fn note_floating(&mut self, key: &JobKey) {
        let seats = self.assumed.get(key).map(|a| a.seats.as_slice());
        if seats.unwrap_or_default().iter().any(|s| s.node.is_none()) {
            self.floating.insert(key.clone());
        } else {
            self.floating.remove(key);
        }
    }
}

fn seat(cluster: &ClusterName, role: usize, node: Option<NodeName>, count: u32) -> AssumedPod {
    AssumedPod {
        cluster: cluster.clone(),
        role,
        node,
        count,
    }
}
