//! Usage with an overlay, and what of it decides which queue is entitled to reclaim.
//!
//! The rules of entitlement are in `preemption/entitlement.rs`.

use crate::amounts::resource_ids::ResourceId;
use crate::api::charge::Pools;
use crate::overlay::Overlay;
use crate::quota::queue::QueueId;
use crate::quota::scopes::{OVERALL, ScopeId};
use crate::quota::store::Quota;
use facts::{QueueName, ResourceName, Resources};

/// One resource in the accounts of one scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScopedResource {
    scope: ScopeId,
    resource: ResourceId,
}

impl Quota {
    /// Adds `times` a charge to a queue and all above it in an overlay.
    pub(crate) fn assume(
        &self,
        overlay: &mut Overlay,
        queue: &QueueName,
        charge: &Pools,
        times: i64,
    ) {
        let up = self.id(queue).into_iter().flat_map(|id| self.upwards(id));
        for (_, node) in up {
            overlay.charge(&node.name, charge, times);
        }
    }

    /// The queue and those above it, up to below the root.
    pub(crate) fn below_root(&self, queue: &QueueName) -> impl Iterator<Item = QueueId> {
        let up = self.id(queue).into_iter().flat_map(|id| self.upwards(id));
        let below_root = up.filter(|(_, node)| node.parent.is_some());
        below_root.map(|(id, _)| id)
    }

    /// True if a queue deserves anything, over everything or of some pools.
    pub(crate) fn deserves_any(&self, id: QueueId) -> bool {
        let mut accounts = self.node(id).accounts.iter();
        accounts.any(|(_, account)| !account.bounds.deserved.is_empty())
    }

    /// True if a queue deserves anything of some pools.
    pub(crate) fn deserves_in_pools(&self, id: QueueId) -> bool {
        let mut accounts = self.node(id).accounts[1..].iter();
        accounts.any(|(_, account)| !account.bounds.deserved.is_empty())
    }

    /// True if the object of a queue lets others reclaim from it.
    pub(crate) fn is_reclaimable(&self, id: QueueId) -> bool {
        let fact = self.node(id).fact.as_ref();
        fact.is_none_or(|fact| fact.reclaimable)
    }

    /// A queue and those above it, up to `last`.
    pub(crate) fn up_to(&self, id: QueueId, last: QueueId) -> impl Iterator<Item = QueueId> {
        let above = self.node(last).parent;
        let up = self.upwards(id).map(|(id, _)| id);
        up.take_while(move |id| Some(*id) != above)
    }

    /// Returns what a queue deserves; `None` if it deserves none by name.
    pub(crate) fn deserved_of(&self, id: QueueId, of: ScopedResource) -> Option<i128> {
        let account = self.node(id).account(of.scope)?;
        account.bounds.deserved.get(of.resource)
    }

    /// Returns what a charge adds to an account.
    pub(crate) fn part_of(&self, charge: &Pools, of: ScopedResource) -> i128 {
        self.within(of.scope, charge).get(of.resource)
    }

    /// The resource itself.
    pub(crate) fn resource_of(&self, of: ScopedResource) -> &ResourceName {
        self.resource_ids.name(of.resource)
    }

    /// Returns what a job would add to each account of a queue, pod slots left out. Without `pools` only
    /// the account over everything counts.
    pub(crate) fn requested(
        &self,
        id: QueueId,
        total: &Resources,
        pools: Option<&Pools>,
    ) -> Vec<(ScopedResource, i128)> {
        let mut requested = Vec::new();
        for (scope, _) in &self.node(id).accounts {
            let scope = *scope;
            let at = |(resource, amount)| (ScopedResource { scope, resource }, amount);
            if scope == OVERALL {
                requested.extend(self.resource_ids.known(total).map(at));
            } else if let Some(pools) = pools {
                requested.extend(self.within(scope, pools).iter().map(at));
            }
        }
        requested.retain(|(of, amount)| *amount > 0 && of.resource.competes());
        requested
    }

    /// Returns what of a victim counts in the accounts in which its queue deserves something.
    pub(crate) fn deserved_parts(
        &self,
        id: QueueId,
        victim: &Pools,
    ) -> impl Iterator<Item = (ScopedResource, i128)> {
        let accounts = self.node(id).accounts.iter();
        accounts.flat_map(|(scope, account)| {
            let scope = *scope;
            let parts = self.within(scope, victim);
            let named = account.bounds.deserved.iter().map(|(resource, _)| resource);
            let named = named.filter(|id| id.competes());
            named.map(move |resource| (ScopedResource { scope, resource }, parts.get(resource)))
        })
    }

    /// The usage of a queue in a scope with an overlay, also where it has no account for it.
    pub(crate) fn usage_with(&self, overlay: &Overlay, id: QueueId, of: ScopedResource) -> i128 {
        let node = self.node(id);
        let charged = node.account(of.scope).map_or_else(
            || {
                let own = self.subtree(id).into_iter();
                let own = own.flat_map(|below| &self.node(below).own.pools);
                let counted = own.filter(|(pool, _)| {
                    let scopes = self.scopes.of_pool(**pool);
                    scopes.binary_search(&of.scope).is_ok()
                });
                counted.map(|(_, sums)| sums.get(of.resource)).sum()
            },
            |account| account.charged.get(of.resource),
        );
        charged + self.assumed_at(overlay, node, (of.scope, of.resource))
    }

    /// True if a queue uses more of a resource than it is guaranteed, in every account that counts
    /// some of the victim. It may be left with less by the eviction, for the rest stays withheld
    /// for it.
    pub(crate) fn exceeds_guarantees(
        &self,
        overlay: &Overlay,
        id: QueueId,
        of: ScopedResource,
        victim: &Pools,
    ) -> bool {
        let resource = of.resource;
        let accounts = self.node(id).accounts.iter();
        let mut guaranteed = accounts.filter_map(|(scope, account)| {
            let guarantee = account.bounds.guarantee.get(resource);
            let of = ScopedResource {
                scope: *scope,
                resource,
            };
            let counts = guarantee > 0 && self.part_of(victim, of) > 0;
            counts.then_some((of, guarantee))
        });
        guaranteed.all(|(of, guarantee)| self.usage_with(overlay, id, of) > guarantee)
    }
}
