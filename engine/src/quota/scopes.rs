//! Scopes: the pools whose charges an account counts, which are all pools, or those of one class in
//! all clusters or in some.
//!
//! Each pool has a list of the scopes that count it, so that a charge finds its accounts directly.
//! The totals of the fleet are stored by pool and summed by scope.

use crate::amounts::resource_ids::ResourceVec;
use crate::api::charge::PoolSelector;
use facts::{ClusterName, PoolBound, PoolClass};
use std::collections::{BTreeMap, BTreeSet};

/// The index of a pool: a class in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PoolId(u32);

/// The index of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScopeId(u32);

/// The scope of all pools, which a `Queue` itself bounds.
pub(super) const OVERALL: ScopeId = ScopeId(0);

/// Pools that are counted together.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    /// Which ones.
    pub(super) pools: PoolSelector,
    /// The total of the usable nodes of its pools.
    pub(super) fleet: ResourceVec,
}

#[derive(Debug, Clone)]
struct ScopedPool {
    at: (ClusterName, PoolClass),
    /// In order; [`OVERALL`] is the first.
    scopes: Vec<ScopeId>,
    fleet: ResourceVec,
}

/// All pools and scopes that occurred so far.
#[derive(Debug, Clone)]
pub(super) struct Scopes {
    scopes: Vec<Scope>,
    ids: BTreeMap<PoolSelector, ScopeId>,
    pools: Vec<ScopedPool>,
    pool_ids: BTreeMap<(ClusterName, PoolClass), PoolId>,
}

impl Default for Scopes {
    fn default() -> Self {
        Self {
            scopes: vec![Scope::default()],
            ids: BTreeMap::from([(PoolSelector::default(), OVERALL)]),
            pools: Vec::new(),
            pool_ids: BTreeMap::new(),
        }
    }
}

impl Scopes {
    pub(super) fn get(&self, id: ScopeId) -> &Scope {
        &self.scopes[id.0 as usize]
    }

    /// All scopes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.iter()
    }

    /// The scope that a bound counts.
    pub(super) fn intern(&mut self, bound: &PoolBound) -> ScopeId {
        let selector = PoolSelector::from(bound);
        if let Some(id) = self.find(&selector) {
            return id;
        }
        let id = ScopeId(u32::try_from(self.scopes.len()).unwrap_or(u32::MAX));
        let mut scope = Scope {
            pools: selector.clone(),
            fleet: ResourceVec::default(),
        };
        for pool in &mut self.pools {
            if scope.pools.counts(&pool.at.0, &pool.at.1) {
                pool.scopes.push(id);
                scope.fleet.add_all(&pool.fleet, 1);
            }
        }
        self.scopes.push(scope);
        self.ids.insert(selector, id);
        id
    }

    /// The scope of the selected pools, if it is known.
    pub(super) fn find(&self, pools: &PoolSelector) -> Option<ScopeId> {
        self.ids.get(pools).copied()
    }

    pub(super) fn intern_pool(&mut self, at: &(ClusterName, PoolClass)) -> PoolId {
        if let Some(id) = self.pool_ids.get(at) {
            return *id;
        }
        let id = PoolId(u32::try_from(self.pools.len()).unwrap_or(u32::MAX));
        let ids = self.scopes.iter().zip(0_u32..);
        self.pools.push(ScopedPool {
            at: at.clone(),
            scopes: ids
                .filter(|(scope, _)| scope.pools.counts(&at.0, &at.1))
                .map(|(_, id)| ScopeId(id))
                .collect(),
            fleet: ResourceVec::default(),
        });
        self.pool_ids.insert(at.clone(), id);
        id
    }

    pub(super) fn pool(&self, id: PoolId) -> &(ClusterName, PoolClass) {
        &self.pools[id.0 as usize].at
    }

    /// The scopes that count a pool, in order.
    pub(super) fn of_pool(&self, id: PoolId) -> &[ScopeId] {
        &self.pools[id.0 as usize].scopes
    }

    /// Sets the totals of the usable nodes of a cluster by class, and returns the scopes whose
    /// total has changed.
    pub(super) fn set_fleet(
        &mut self,
        cluster: &ClusterName,
        classes: &BTreeMap<PoolClass, ResourceVec>,
    ) -> BTreeSet<ScopeId> {
        let mut changed = BTreeSet::new();
        for class in classes.keys() {
            self.intern_pool(&(cluster.clone(), class.clone()));
        }
        for pool in self.pools.iter_mut().filter(|pool| pool.at.0 == *cluster) {
            let now = classes.get(&pool.at.1).cloned().unwrap_or_default();
            if pool.fleet == now {
                continue;
            }
            for id in &pool.scopes {
                let fleet = &mut self.scopes[id.0 as usize].fleet;
                fleet.add_all(&pool.fleet, -1);
                fleet.add_all(&now, 1);
                changed.insert(*id);
            }
            pool.fleet = now;
        }
        changed
    }
}
