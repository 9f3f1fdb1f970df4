//! A pool: the nodes of one class in one cluster, those with the same free amounts together.
//!
//! Nodes that look alike are evaluated once. They stand in the order of best fit: fewest free
//! devices (cores where the pool has none) first.

use crate::amounts::resource_ids::{CPU, ResourceId, ResourceVec};
use facts::{NodeName, PoolClass, ResourceName};
use std::collections::{BTreeMap, BTreeSet};

/// Names a pool within its cluster. Nodes of one class that differ in what they are counted in
/// are in different pools.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    pub(crate) class: PoolClass,
    /// The device that its nodes are counted in, if they have one.
    pub(crate) device: Option<ResourceName>,
}

/// The usable nodes of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pool {
    /// The resource that its nodes are counted in: the device, else CPU.
    pub(crate) units: ResourceId,
    /// By what they have free now.
    pub(crate) now: Alike,
    /// By what they have at all.
    pub(crate) empty: Alike,
}

/// Nodes by free amounts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Alike(BTreeMap<State, BTreeSet<NodeName>>);

/// What equal nodes have free. The order of the fields is that of best fit; the last makes
/// states equal that are, and its order means nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) units: i128,
    pub(crate) cpu: i128,
    pub(crate) free: ResourceVec,
}

impl State {
    fn of(units: ResourceId, free: &ResourceVec) -> Self {
        Self {
            units: free.get(units),
            cpu: free.get(CPU),
            free: free.clone(),
        }
    }
}

impl Pool {
    pub(crate) fn new(units: ResourceId) -> Self {
        Self {
            units,
            now: Alike::default(),
            empty: Alike::default(),
        }
    }

    /// A usable node came.
    pub(crate) fn insert(&mut self, name: &NodeName, free: &ResourceVec, has: &ResourceVec) {
        self.now.insert(self.units, name, free);
        self.empty.insert(self.units, name, has);
    }

    /// A node that was usable goes.
    pub(crate) fn remove(&mut self, name: &NodeName, free: &ResourceVec, has: &ResourceVec) {
        self.now.remove(self.units, name, free);
        self.empty.remove(self.units, name, has);
    }

    /// What a node has free changed.
    pub(crate) fn move_node(&mut self, name: &NodeName, from: &ResourceVec, to: &ResourceVec) {
        self.now.remove(self.units, name, from);
        self.now.insert(self.units, name, to);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.empty.0.is_empty()
    }
}

impl Alike {
    fn insert(&mut self, units: ResourceId, name: &NodeName, free: &ResourceVec) {
        let state = State::of(units, free);
        self.0.entry(state).or_default().insert(name.clone());
    }

    fn remove(&mut self, units: ResourceId, name: &NodeName, free: &ResourceVec) {
        let state = State::of(units, free);
        if let Some(nodes) = self.0.get_mut(&state) {
            nodes.remove(name);
            if nodes.is_empty() {
                self.0.remove(&state);
            }
        }
    }

    /// All, fewest free devices (cores) first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&State, &BTreeSet<NodeName>)> {
        self.0.iter()
    }

    /// Those with at least so many devices (cores) free, fewest first.
    pub(crate) fn with_at_least(
        &self,
        units: i128,
    ) -> impl Iterator<Item = (&State, &BTreeSet<NodeName>)> {
        let from = State {
            units,
            cpu: i128::MIN,
            free: ResourceVec::default(),
        };
        self.0.range(from..)
    }

    /// The fewest devices (cores) free on a node that has at least so many.
    pub(crate) fn tightest(&self, units: i128) -> Option<i128> {
        self.with_at_least(units)
            .next()
            .map(|(state, _)| state.units)
    }
}
