//! What the bounds on pools leave for a gang whose pods are put on nodes one by one.

use crate::amounts::resource_ids::ResourceId;
use crate::api::charge::PoolLimit;
use crate::overlay::Overlay;
use crate::quota::accounts::Account;
use crate::quota::idle::IdleGuarantees;
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::scopes::ScopeId;
use crate::quota::store::Quota;
use facts::QueueName;
use std::collections::BTreeSet;

/// An account over some of the pools, of a queue so many levels up.
#[derive(Clone, Copy)]
struct PoolAccount<'a> {
    level: usize,
    node: &'a QueueNode,
    scope: ScopeId,
    account: &'a Account,
}

impl Quota {
    /// True if some of the pools are bounded on the path of a queue.
    pub(crate) fn bounds_pools(&self, queue: &QueueName) -> bool {
        let mut up = self.id(queue).into_iter().flat_map(|id| self.upwards(id));
        up.any(|(_, node)| node.accounts.len() > 1)
    }

    /// Returns what the bounds on pools on the path of a queue leave for it with an overlay: beside what is charged and
    /// guaranteed to others, and of the empty fleet all.
    pub(crate) fn pool_limits(&self, queue: &QueueName, overlay: &Overlay) -> Vec<PoolLimit> {
        let Some(id) = self.id(queue) else {
            return Vec::new();
        };
        let up = self.upwards(id).enumerate();
        let accounts = up.flat_map(|(level, (_, node))| {
            let accounts = node.accounts[1..].iter();
            accounts.map(move |(scope, account)| PoolAccount {
                level,
                node,
                scope: *scope,
                account,
            })
        });
        let limits = accounts.flat_map(|at| {
            let resources = self.bounded_resources(at).into_iter();
            resources.filter_map(move |resource| {
                let bound = at.account.bounds.effective.get(resource);
                let left = match overlay.is_of_empty_fleet() {
                    true => bound?,
                    false => self.left_beside_charged(id, at, resource, overlay)?,
                };
                Some(PoolLimit {
                    pools: self.scopes.get(at.scope).pools.clone(),
                    resource: self.resource_ids.name(resource).clone(),
                    left,
                })
            })
        });
        limits.collect()
    }

    /// The resources of which an account may not have any amount.
    fn bounded_resources(&self, at: PoolAccount<'_>) -> BTreeSet<ResourceId> {
        let bounds = &at.account.bounds;
        let named = bounds.effective.iter().map(|(resource, _)| resource);
        let real = bounds.real.iter().map(|(resource, _)| resource);
        let guaranteed = real.filter(|resource| self.guarantees(at.scope, *resource));
        named.chain(guaranteed).collect()
    }

    /// The most that may be charged in addition at one account, or `None` if that is any amount. What is guaranteed on
    /// the way down to the queue is there for it.
    fn left_beside_charged(
        &self,
        queue: QueueId,
        at: PoolAccount<'_>,
        resource: ResourceId,
        overlay: &Overlay,
    ) -> Option<i128> {
        let bounds = &at.account.bounds;
        let bound = bounds.effective.get(resource).or(bounds.real.get(resource));
        let assumed = self.assumed_at(overlay, at.node, (at.scope, resource));
        let left = bound? - at.account.charged.get(resource) - assumed;
        if left <= 0 || !self.guarantees(at.scope, resource) {
            return Some(left);
        }
        let stops = |needs: i128| {
            let mut idle = IdleGuarantees::new(self, queue, overlay);
            let idle = idle.at(at.level, (at.scope, resource), needs);
            let account = (at.scope, at.account);
            self.short(at.node, account, (resource, needs), overlay, idle)
                .is_some()
        };
        let (mut may, mut stopped) = (0, left + 1);
        while stopped - may > 1 {
            let middle = may + (stopped - may) / 2;
            match stops(middle) {
                true => stopped = middle,
                false => may = middle,
            }
        }
        Some(may)
    }
}
