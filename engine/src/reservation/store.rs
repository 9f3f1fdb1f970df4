//! The reservations, found by owner, by queue, by slot, by node, and by the jobs that are being evicted
//! for one.
//!
//! Only a store: `cycle::reserve` sets and drops reservations, and `backfill` says what they withhold.
//! The indexes always follow from the reservations.

#[cfg(test)]
mod tests;

use crate::amounts::hashed::Hashed;
use crate::amounts::totals::ResourceTotals;
use crate::api::job::QueueOrder;
use crate::api::slot::ReservationSlot;
use facts::{ClusterName, JobKey, NodeName, PoolClass, QueueName, Resources, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is reserved on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReservedNode {
    pub(crate) cluster: ClusterName,
    pub(crate) node: NodeName,
    pub(crate) class: PoolClass,
    pub(crate) resources: Resources,
}

impl ReservedNode {
    /// Returns true if it is one of these nodes, by cluster.
    pub(crate) fn is_among(&self, nodes: &BTreeMap<ClusterName, BTreeSet<NodeName>>) -> bool {
        let nodes = nodes.get(&self.cluster);
        nodes.is_some_and(|nodes| nodes.contains(&self.node))
    }
}

/// Whose end gives quota back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReleaseSource {
    /// A job: once it has ended, it gives back nothing more.
    Job(JobKey),
    /// All jobs on a reserved node, until what is reserved there is free.
    Node(NodeName),
}

/// Quota that an owner will get back from jobs that it waits for, at one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExpectedRelease {
    pub(crate) from: ReleaseSource,
    pub(crate) queue: QueueName,
    pub(crate) cluster: ClusterName,
    pub(crate) class: PoolClass,
    pub(crate) resources: Resources,
}

impl ExpectedRelease {
    /// Returns the node whose jobs give it back, if that is its source.
    fn at(&self) -> Option<(&ClusterName, &NodeName)> {
        match &self.from {
            ReleaseSource::Node(node) => Some((&self.cluster, node)),
            ReleaseSource::Job(_) => None,
        }
    }
}

/// What is reserved for one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    pub(crate) queue: QueueName,
    pub(crate) rank: QueueOrder,
    pub(crate) scopes: BTreeSet<ReservationSlot>,
    /// What it will be charged.
    pub(crate) charge: Resources,
    /// The pools that it will be charged in, if they are known.
    pub(crate) pools: Vec<(ClusterName, PoolClass, Resources)>,
    /// The reserved nodes; none if only headroom was short.
    pub(crate) nodes: Vec<ReservedNode>,
    /// What of the charge need not be reserved, since it becomes free with those nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) releases: Vec<ExpectedRelease>,
    /// When it can start by the ends that are declared or predicted; `None` if those do not tell.
    pub(crate) start: Option<Time>,
    /// True if jobs are, or were, evicted for it, and it was not evaluated since they are gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) preemptor: bool,
    /// Those jobs that are not gone yet. While there are any, the reservation does not change.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) pending_evictions: BTreeSet<JobKey>,
}

impl Reservation {
    /// Returns true if any of a node is reserved by it.
    pub(crate) fn is_on(&self, cluster: &ClusterName, node: &NodeName) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|reserved| reserved.cluster == *cluster && reserved.node == *node)
    }

    /// Returns true if its owner lacked headroom when this was reserved.
    pub(crate) fn lacked_headroom(&self) -> bool {
        let mut scopes = self.scopes.iter();
        scopes.any(|scope| matches!(scope, ReservationSlot::Headroom(_)))
    }

    /// Returns true if it counts on the ends of certain jobs, which give back headroom.
    pub(crate) fn counts_on_ends(&self) -> bool {
        let mut releases = self.releases.iter();
        releases.any(|release| matches!(release.from, ReleaseSource::Job(_)))
    }

    /// Returns true if its owner starts on its nodes once the ends of others leave enough of a bound on pools.
    pub(crate) fn waits_for_bound(&self) -> bool {
        !self.lacked_headroom() && self.counts_on_ends()
    }

    /// Returns true if no nodes are reserved since some are free by its start, and a node that is free from `free` on
    /// may have been one of them. Without a start it waits for no nodes, unless a bound on pools is short: then nodes
    /// of other pools may be had.
    pub(crate) fn may_count_on_node_free_from(&self, free: Time) -> bool {
        let is_in_time = match self.start {
            Some(start) => free <= start,
            None => !self.pools.is_empty(),
        };
        self.nodes.is_empty() && is_in_time
    }

    /// The same without its nodes, where it lacks headroom too.
    pub(crate) fn of_headroom_only(mut self) -> Option<Self> {
        if !self.lacked_headroom() || self.nodes.is_empty() {
            return None;
        }
        let is_headroom = |scope: &ReservationSlot| matches!(scope, ReservationSlot::Headroom(_));
        self.scopes.retain(is_headroom);
        self.nodes.clear();
        Some(self)
    }

    /// Returns true if jobs are, or were just, evicted for it: then it binds all jobs.
    pub(crate) fn taking(&self) -> bool {
        self.preemptor
    }

    /// Returns true if all jobs that were evicted for it are gone, and it was not evaluated since.
    pub(crate) fn is_served(&self) -> bool {
        self.taking() && self.pending_evictions.is_empty()
    }
}

/// All reservations, one a job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reservations {
    by_job: Hashed<JobKey, Reservation>,
    /// Their owners in order of name.
    holders: BTreeSet<JobKey>,
    /// How many belong to preemptors.
    preemptors: usize,
    /// The owners in each queue, in their order.
    by_queue: BTreeMap<QueueName, BTreeSet<QueueOrder>>,
    /// The owners that have taken each slot.
    by_scope: BTreeMap<ReservationSlot, BTreeSet<JobKey>>,
    /// The sets of several slots that owners have taken together, and how many have taken each.
    slot_sets: BTreeMap<BTreeSet<ReservationSlot>, usize>,
    /// The owners with reserved nodes.
    with_nodes: BTreeSet<JobKey>,
    /// What is reserved of each node.
    reserved: BTreeMap<(ClusterName, NodeName), ResourceTotals>,
    /// The owners that wait until a job is gone.
    pending_evictions: BTreeMap<JobKey, BTreeSet<JobKey>>,
    /// Jobs whose charges have changed since the owners of nodes were last looked at.
    recharged: BTreeSet<JobKey>,
}

impl Reservations {
    pub(crate) fn of(&self, key: &JobKey) -> Option<&Reservation> {
        self.by_job.get(key)
    }

    /// All, in order of their owners' names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Reservation> {
        self.holders.iter().filter_map(|key| self.of(key))
    }

    /// Returns true if any belongs to a preemptor.
    pub(crate) fn has_preemptors(&self) -> bool {
        self.preemptors > 0
    }

    /// Those that have taken a slot, in order of their owners' names.
    pub(crate) fn holders_of(&self, scope: &ReservationSlot) -> impl Iterator<Item = &Reservation> {
        let holders = self.by_scope.get(scope);
        let holders = holders.into_iter().flatten();
        holders.filter_map(|key| self.of(key))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_job.is_empty()
    }

    /// How many have taken a slot.
    pub(crate) fn count(&self, scope: &ReservationSlot) -> usize {
        self.by_scope.get(scope).map_or(0, BTreeSet::len)
    }

    /// These slots, and those that owners connect with them, each by taking several.
    pub(crate) fn connected(&self, slots: &BTreeSet<ReservationSlot>) -> BTreeSet<ReservationSlot> {
        let mut connected = slots.clone();
        let mut others: Vec<&BTreeSet<ReservationSlot>> = self.slot_sets.keys().collect();
        loop {
            let (met, apart): (Vec<_>, Vec<_>) = others
                .into_iter()
                .partition(|set| !set.is_disjoint(&connected));
            if met.is_empty() {
                return connected;
            }
            connected.extend(met.into_iter().flatten().cloned());
            others = apart;
        }
    }

    /// The owners that wait for headroom of a queue.
    pub(crate) fn short_of(&self, queue: &QueueName) -> Vec<JobKey> {
        if self.by_scope.is_empty() {
            return Vec::new();
        }
        let holders = self.by_scope.get(&ReservationSlot::Headroom(queue.clone()));
        holders.into_iter().flatten().cloned().collect()
    }

    /// The owners that wait for headroom of a queue, or count on what ends give back there or below.
    pub(crate) fn counting_on(
        &self,
        queue: &QueueName,
        is_below: impl Fn(&QueueName) -> bool,
    ) -> Vec<JobKey> {
        let mut owners = self.short_of(queue);
        let waiting = self.with_nodes().filter(|kept| kept.waits_for_bound());
        let waiting = waiting.filter(|kept| is_below(&kept.queue));
        owners.extend(waiting.map(|kept| kept.rank.key.clone()));
        owners
    }

    /// The owners in a queue, in their order.
    pub(crate) fn holders_in(&self, queue: &QueueName) -> impl Iterator<Item = &QueueOrder> {
        self.by_queue.get(queue).into_iter().flatten()
    }

    /// Those with reserved nodes, in order of their owners' names.
    pub(crate) fn with_nodes(&self) -> impl Iterator<Item = &Reservation> {
        self.with_nodes.iter().filter_map(|key| self.of(key))
    }

    /// Returns what is reserved of a node for all owners together.
    pub(crate) fn kept_on(
        &self,
        cluster: &ClusterName,
        node: &NodeName,
    ) -> Option<&ResourceTotals> {
        if self.reserved.is_empty() {
            return None;
        }
        self.reserved.get(&(cluster.clone(), node.clone()))
    }

    /// Returns what is reserved of a node for these owners together.
    pub(crate) fn kept_for(
        &self,
        holders: &[JobKey],
        cluster: &ClusterName,
        node: &NodeName,
    ) -> Option<ResourceTotals> {
        self.kept_on(cluster, node)?;
        let mut all = ResourceTotals::default();
        let reserved = holders.iter().filter_map(|key| self.of(key));
        for reserved in reserved.flat_map(|reserved| &reserved.nodes) {
            if reserved.node == *node && reserved.cluster == *cluster {
                all.add(&reserved.resources, 1);
            }
        }
        Some(all)
    }

    fn keep(&mut self, nodes: &[ReservedNode], times: i64) {
        for node in nodes {
            let at = (node.cluster.clone(), node.node.clone());
            let reserved = self.reserved.entry(at.clone()).or_default();
            reserved.add(&node.resources, times);
            if reserved.is_empty() {
                self.reserved.remove(&at);
            }
        }
    }

    /// Adds a reservation, instead of the one that the job has.
    pub(crate) fn set(&mut self, reservation: Reservation) {
        self.remove(&reservation.rank.key);
        let holders = self.by_queue.entry(reservation.queue.clone()).or_default();
        holders.insert(reservation.rank.clone());
        for victim in &reservation.pending_evictions {
            let holders = self.pending_evictions.entry(victim.clone()).or_default();
            holders.insert(reservation.rank.key.clone());
        }
        for scope in &reservation.scopes {
            let holders = self.by_scope.entry(scope.clone()).or_default();
            holders.insert(reservation.rank.key.clone());
        }
        if reservation.scopes.len() > 1 {
            let count = self.slot_sets.entry(reservation.scopes.clone());
            *count.or_default() += 1;
        }
        if !reservation.nodes.is_empty() {
            self.with_nodes.insert(reservation.rank.key.clone());
            self.keep(&reservation.nodes, 1);
        }
        self.preemptors += usize::from(reservation.taking());
        self.holders.insert(reservation.rank.key.clone());
        self.by_job
            .insert(reservation.rank.key.clone(), reservation);
    }

    /// Replaces what an owner expects of the nodes `freed` by `fresh`; both are in the order of its nodes. Whether it
    /// expected something else.
    pub(crate) fn replace_releases(
        &mut self,
        key: &JobKey,
        freed: &[ReservedNode],
        fresh: Vec<ExpectedRelease>,
    ) -> bool {
        let Some(reservation) = self.by_job.get_mut(key) else {
            return false;
        };
        let freed: BTreeSet<_> = freed.iter().map(|on| (&on.cluster, &on.node)).collect();
        let releases = std::mem::take(&mut reservation.releases);
        let is_freed =
            |release: &ExpectedRelease| release.at().is_some_and(|at| freed.contains(&at));
        let (was, mut all): (Vec<_>, Vec<_>) = releases.into_iter().partition(is_freed);
        let differ = was != fresh;
        all.extend(fresh);
        // The queues of one node keep their order.
        all.sort_by(|a, b| a.at().cmp(&b.at()));
        reservation.releases = all;
        differ
    }

    /// Notes that the charge of an admitted job has changed or is gone, if that matters to any owner of nodes.
    pub(crate) fn note_recharged(&mut self, key: &JobKey) {
        if !self.with_nodes.is_empty() {
            self.recharged.insert(key.clone());
        }
    }

    pub(crate) fn take_recharged(&mut self) -> BTreeSet<JobKey> {
        std::mem::take(&mut self.recharged)
    }

    pub(crate) fn remove(&mut self, key: &JobKey) -> Option<Reservation> {
        let removed = self.by_job.remove(key)?;
        self.preemptors -= usize::from(removed.taking());
        self.holders.remove(key);
        if let Some(holders) = self.by_queue.get_mut(&removed.queue) {
            holders.remove(&removed.rank);
            if holders.is_empty() {
                self.by_queue.remove(&removed.queue);
            }
        }
        for victim in &removed.pending_evictions {
            self.unlist(victim, key);
        }
        for scope in &removed.scopes {
            if let Some(holders) = self.by_scope.get_mut(scope) {
                holders.remove(key);
                if holders.is_empty() {
                    self.by_scope.remove(scope);
                }
            }
        }
        if let Some(count) = self.slot_sets.get_mut(&removed.scopes) {
            *count -= 1;
            if *count == 0 {
                self.slot_sets.remove(&removed.scopes);
            }
        }
        self.with_nodes.remove(key);
        self.keep(&removed.nodes, -1);
        Some(removed)
    }

    /// A victim is gone. The owners that wait for no other one.
    pub(crate) fn settle(&mut self, victim: &JobKey) -> Vec<JobKey> {
        let holders = self.pending_evictions.remove(victim).unwrap_or_default();
        let mut ready = Vec::new();
        for holder in holders {
            if let Some(reserved) = self.by_job.get_mut(&holder) {
                reserved.pending_evictions.remove(victim);
                if reserved.pending_evictions.is_empty() {
                    ready.push(holder);
                }
            }
        }
        ready
    }

    fn unlist(&mut self, victim: &JobKey, holder: &JobKey) {
        if let Some(holders) = self.pending_evictions.get_mut(victim) {
            holders.remove(holder);
            if holders.is_empty() {
                self.pending_evictions.remove(victim);
            }
        }
    }

    /// Returns what is indexed otherwise than the reservations say, in words.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut fresh = Self::default();
        self.iter()
            .cloned()
            .for_each(|reserved| fresh.set(reserved));
        let mut wrong = Vec::new();
        if fresh.by_queue != self.by_queue || fresh.by_scope != self.by_scope {
            wrong.push(format!("reservations by queue: {:?}", self.by_queue));
        }
        if fresh.slot_sets != self.slot_sets {
            wrong.push(format!("reservations by slots: {:?}", self.slot_sets));
        }
        if fresh.with_nodes != self.with_nodes || fresh.reserved != self.reserved {
            wrong.push(format!("reservations by node: {:?}", self.reserved));
        }
        if fresh.by_job.len() != self.by_job.len() || fresh.preemptors != self.preemptors {
            wrong.push(format!("reservations by holder: {:?}", self.holders));
        }
        if fresh.pending_evictions != self.pending_evictions {
            wrong.push(format!(
                "reservations by victim: {:?}",
                self.pending_evictions
            ));
        }
        wrong
    }
}
