//! The nodes of one cluster while the pods of a gang are put on them, role by role.
//!
//! Nodes that look alike are weighed once, and those that were touched (withheld, or
//! taken by a role before) one by one. The order in which they are taken is that of [`Key`].

use crate::amounts::resource_ids::{CPU, MEMORY, PodRequest, ResourceId, ResourceVec};
use crate::capacity::mix::DemandMix;
use crate::capacity::pack::{Need, PlacedPods, can_run_on};
use crate::capacity::{
    ClusterCapacity, NodeInfo, PodRules, StandingPods, Together, most_on_a_node,
};
use crate::cost;
use facts::{NodeName, PoolClass, ResourceName, Role};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, btree_set};

/// How often candidates are weighed again while one role is placed, once fewer pods are left
/// than a node would take.
const WEIGHED_AGAIN: u32 = 4;

/// The nodes of a cluster while pods are put on them.
pub(super) struct Packer<'a> {
    pub(super) room: &'a ClusterCapacity,
    pub(super) mix: &'a DemandMix,
    /// True if no pod runs.
    pub(super) empty: bool,
    pub(super) class: Option<&'a PoolClass>,
    pub(super) within: Option<&'a BTreeSet<NodeName>>,
    /// What is free on the nodes that do not look as their pool says.
    pub(super) touched: BTreeMap<NodeName, ResourceVec>,
    /// How the pods have to stand to each other, if there are rules.
    pub(super) rules: Option<PodRules<'a>>,
}

/// A role to be placed, ready to be compared with nodes.
pub(super) struct Wanted<'a> {
    pub(super) index: usize,
    pub(super) role: &'a Role,
    pub(super) count: u32,
    pub(super) ask: PodRequest,
    pub(super) device: Option<&'a ResourceName>,
}

/// Nodes that look alike, and what taking them would do.
struct NodeCandidate<'a> {
    key: Key<'a>,
    units: ResourceId,
    free: Cow<'a, ResourceVec>,
    /// Pods that one of them takes.
    fits: u32,
    nodes: CandidateNodes<'a>,
}

/// The order in which nodes are taken.
struct Key<'a> {
    /// Pods without devices leave nodes with devices alone while others do.
    other_pool: bool,
    /// Growth of what is unusable, and the pods that it comes with.
    growth: i128,
    pods: u32,
    /// Best fit.
    units: i128,
    cpu: i128,
    memory: i128,
    first: &'a NodeName,
}

enum CandidateNodes<'a> {
    All(btree_set::Iter<'a, NodeName>),
    Some(std::vec::IntoIter<&'a NodeName>),
}

impl<'a> Iterator for CandidateNodes<'a> {
    type Item = &'a NodeName;

    fn next(&mut self) -> Option<&'a NodeName> {
        match self {
            Self::All(nodes) => nodes.next(),
            Self::Some(nodes) => nodes.next(),
        }
    }
}

impl Key<'_> {
    fn compare(&self, other: &Self) -> Ordering {
        let growth = |a: &Self, b: &Self| a.growth * i128::from(b.pods.max(1));
        self.other_pool
            .cmp(&other.other_pool)
            .then_with(|| growth(self, other).cmp(&growth(other, self)))
            .then_with(|| {
                (self.units, self.cpu, self.memory, self.first).cmp(&(
                    other.units,
                    other.cpu,
                    other.memory,
                    other.first,
                ))
            })
    }
}

impl<'a> Packer<'a> {
    /// Returns what of a node is free as it looks now.
    pub(super) fn free<'b>(&'b self, node: &'a NodeInfo) -> &'b ResourceVec {
        self.touched
            .get(&node.fact.name)
            .unwrap_or_else(|| node.free_if(self.empty))
    }

    /// Usable nodes that it is about.
    pub(super) fn nodes(&self) -> Box<dyn Iterator<Item = &'a NodeInfo> + 'a> {
        let room = self.room;
        match self.within {
            Some(within) => Box::new(within.iter().filter_map(|name| room.nodes().get(name))),
            None => Box::new(room.nodes().values().filter(|node| node.fact.usable)),
        }
    }

    /// True if the nodes of a pool with this class may take pods of the role.
    pub(super) fn in_class(&self, wanted: &Wanted<'_>, class: &PoolClass) -> bool {
        wanted.device.is_none() || self.class.is_none_or(|only| only == class)
    }

    /// Sets the rules of the roles that are placed, with the pods that stand already and the domains chosen.
    pub(super) fn rule(
        &mut self,
        needs: &[Need<'a>],
        standing: Option<&'a StandingPods>,
        chosen: &[(Together<'a>, &'a str)],
    ) {
        self.rules = PodRules::of(self.room, needs.iter().map(|need| need.role), standing);
        for (together, domain) in chosen {
            if let Some(rules) = &mut self.rules {
                rules.choose(*together, domain);
            }
        }
    }

    /// Places one role; the number of pods placed. What is taken is noted on the nodes where
    /// another role follows.
    pub(super) fn place(
        &mut self,
        wanted: &Wanted<'a>,
        note: bool,
        placed: &mut Vec<PlacedPods>,
    ) -> u32 {
        let unruled = wanted.role.unruled.min(wanted.count);
        let mut all = self.place_ruled(wanted, wanted.count - unruled, note, placed);
        if unruled > 0 {
            let rules = self.rules.take();
            all += self.place_once(wanted, unruled, note, placed);
            self.rules = rules;
        }
        all
    }

    fn place_ruled(
        &mut self,
        wanted: &Wanted<'a>,
        count: u32,
        note: bool,
        placed: &mut Vec<PlacedPods>,
    ) -> u32 {
        if !PodRules::may_open(wanted.role) {
            return self.place_once(wanted, count, note, placed);
        }
        let mut on: BTreeMap<NodeName, u32> = BTreeMap::new();
        let mut all = 0;
        // What a rule kept from a node at first may be allowed once others have pods.
        loop {
            let mut more = Vec::new();
            let last = self.place_once(wanted, count - all, note, &mut more);
            all += last;
            for placed in more {
                *on.entry(placed.node).or_default() += placed.count;
            }
            if last == 0 || all == count {
                break;
            }
        }
        let role = wanted.index;
        let merged = on.into_iter();
        placed.extend(merged.map(|(node, count)| PlacedPods { role, node, count }));
        all
    }

    fn place_once(
        &mut self,
        wanted: &Wanted<'a>,
        count: u32,
        note: bool,
        placed: &mut Vec<PlacedPods>,
    ) -> u32 {
        let mut left = count;
        let mut open = Open {
            all: self.candidates(wanted, left),
            ordered: false,
        };
        let mut weighed = 0;
        // A single pod goes to the first nearly always: no need to order the others.
        let mut next = if left == 1 { open.first() } else { open.pop() };
        while let Some(mut best) = next {
            while left > 0 {
                if left < best.key.pods && weighed < WEIGHED_AGAIN {
                    // Others may be better for the last pods.
                    weighed += 1;
                    open.all.push(best);
                    for one in &mut open.all {
                        self.weigh(one, wanted, left);
                    }
                    open.ordered = false;
                    break;
                }
                let Some(name) = self.next_node(&mut best, wanted) else {
                    break;
                };
                let count = best.fits.min(left).min(self.most_on(name, wanted));
                left -= count;
                if note {
                    self.count(name, wanted, count);
                    let mut free = best.free.as_ref().clone();
                    free.add_pods(&wanted.ask, -i64::from(count));
                    self.touched.insert(name.clone(), free);
                }
                placed.push(PlacedPods {
                    role: wanted.index,
                    node: name.clone(),
                    count,
                });
            }
            next = if left > 0 { open.pop() } else { None };
        }
        count - left
    }

    /// How many more pods of a role a node may take by the rules.
    fn most_on(&self, node: &NodeName, wanted: &Wanted<'_>) -> u32 {
        let Some(rules) = &self.rules else {
            return u32::MAX;
        };
        let node = self.room.nodes().get(node);
        node.map_or(0, |node| rules.most(wanted.role, node))
    }

    /// Pods of a role stand on a node now.
    fn count(&mut self, node: &NodeName, wanted: &Wanted<'a>, count: u32) {
        if let (Some(rules), Some(node)) = (&mut self.rules, self.room.nodes().get(node)) {
            rules.count(&wanted.role.name, node, count, true);
        }
    }

    fn next_node(&self, from: &mut NodeCandidate<'a>, wanted: &Wanted<'_>) -> Option<&'a NodeName> {
        let single = matches!(from.nodes, CandidateNodes::Some(_));
        let picky = !wanted.role.node_terms.is_empty() || self.room.has_taints();
        let room = self.room;
        let touched = &self.touched;
        let ruled = self.rules.is_some();
        from.nodes.find(|name| {
            cost::node_visits(1);
            (!ruled || self.most_on(name, wanted) > 0)
                && (single || touched.is_empty() || !touched.contains_key(name))
                && (!picky
                    || room
                        .nodes()
                        .get(name)
                        .is_some_and(|node| can_run_on(wanted.role, node)))
        })
    }

    /// Nodes that take at least one pod, those that look alike together.
    fn candidates(&self, wanted: &Wanted<'_>, left: u32) -> Vec<NodeCandidate<'a>> {
        let mut open = Vec::new();
        if self.within.is_some() {
            self.candidates_within(wanted, left, &mut open);
            return open;
        }
        for (key, pool) in self.room.pools() {
            if !self.in_class(wanted, &key.class) {
                continue;
            }
            let alike = if self.empty { &pool.empty } else { &pool.now };
            let other_pool = key.device.as_ref() != wanted.device;
            // A node may have more of it in use than it has, which concerns only pods that request it.
            let least = match wanted.ask.get(pool.units) {
                0 => i128::MIN,
                each => i128::from(each),
            };
            for (state, nodes) in alike.with_at_least(least) {
                let first = nodes.first();
                let free = Cow::Borrowed(&state.free);
                let all = CandidateNodes::All(nodes.iter());
                open.extend(first.and_then(|first| {
                    self.candidate(wanted, left, other_pool, pool.units, free, first, all)
                }));
            }
        }
        for (name, free) in &self.touched {
            if let Some((name, node)) = self.room.nodes().get_key_value(name)
                && self.in_class(wanted, &node.fact.class)
            {
                let other_pool = node.device.as_ref() != wanted.device;
                let free = Cow::Owned(free.clone());
                let one = CandidateNodes::Some(vec![name].into_iter());
                open.extend(self.candidate(wanted, left, other_pool, node.units, free, name, one));
            }
        }
        open
    }

    fn candidates_within(&self, wanted: &Wanted<'_>, left: u32, open: &mut Vec<NodeCandidate<'a>>) {
        let mut alike: BTreeMap<(bool, ResourceId, &ResourceVec), Vec<&'a NodeName>> =
            BTreeMap::new();
        for node in self.nodes() {
            cost::node_visits(1);
            if self.in_class(wanted, &node.fact.class) {
                let other_pool = node.device.as_ref() != wanted.device;
                let key = (other_pool, node.units, self.free(node));
                alike.entry(key).or_default().push(&node.fact.name);
            }
        }
        for ((other_pool, units, free), names) in alike {
            let Some(first) = names.first().copied() else {
                continue;
            };
            let free = Cow::Owned(free.clone());
            let some = CandidateNodes::Some(names.into_iter());
            open.extend(self.candidate(wanted, left, other_pool, units, free, first, some));
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call site a kind of source")]
    fn candidate(
        &self,
        wanted: &Wanted<'_>,
        left: u32,
        other_pool: bool,
        units: ResourceId,
        free: Cow<'a, ResourceVec>,
        first: &'a NodeName,
        nodes: CandidateNodes<'a>,
    ) -> Option<NodeCandidate<'a>> {
        cost::node_visits(1);
        let fits = wanted.ask.count_in(&free, left);
        let fits = match &self.rules {
            Some(_) => fits.min(most_on_a_node(wanted.role)),
            None => fits,
        };
        if fits == 0 {
            return None;
        }
        let mut candidate = NodeCandidate {
            key: Key {
                other_pool,
                growth: 0,
                pods: 0,
                units: free.get(units),
                cpu: free.get(CPU),
                memory: free.get(MEMORY),
                first,
            },
            units,
            free,
            fits,
            nodes,
        };
        self.weigh(&mut candidate, wanted, left);
        Some(candidate)
    }

    /// Computes by how much unusable capacity grows if one of these nodes takes the pods.
    fn weigh(&self, candidate: &mut NodeCandidate<'_>, wanted: &Wanted<'_>, left: u32) {
        let pods = candidate.fits.min(left);
        let mut after = candidate.free.as_ref().clone();
        after.add_pods(&wanted.ask, -i64::from(pods));
        candidate.key.growth = self.mix.unusable(candidate.units, &after)
            - self.mix.unusable(candidate.units, &candidate.free);
        candidate.key.pods = pods;
    }
}

/// Candidates, the best of which is taken next.
struct Open<'a> {
    all: Vec<NodeCandidate<'a>>,
    /// True if the best stands last.
    ordered: bool,
}

impl<'a> Open<'a> {
    fn pop(&mut self) -> Option<NodeCandidate<'a>> {
        if !self.ordered {
            self.all.sort_by(|a, b| b.key.compare(&a.key));
            self.ordered = true;
        }
        self.all.pop()
    }

    /// The best, the others left as they stand.
    fn first(&mut self) -> Option<NodeCandidate<'a>> {
        let best = (0..self.all.len()).min_by(|a, b| {
            let (a, b) = (&self.all[*a], &self.all[*b]);
            a.key.compare(&b.key)
        })?;
        Some(self.all.swap_remove(best))
    }
}
