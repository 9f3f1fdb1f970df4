//! The audit of the quota store: compares it with one that is rebuilt from its objects.
//!
//! Two stores may have different ids of queues, resources and scopes, so they are compared by name.
//! Past usage cannot be recomputed.

use crate::amounts::totals::ResourceTotals;
use crate::quota::bounds::Bounds;
use crate::quota::owners::CanonicalOwners;
use crate::quota::queue::{Counts, QueueNode, StateCounts};
use crate::quota::scopes::Scope;
use crate::quota::store::Quota;
use facts::{QueueName, Resources};
use std::collections::{BTreeMap, BTreeSet};

/// A queue with names instead of ids.
#[derive(Debug, PartialEq, Eq)]
struct CanonicalQueue {
    parent: Option<QueueName>,
    children: Vec<QueueName>,
    problem: Option<String>,
    pools: BTreeMap<String, ResourceTotals>,
    counts: [(ResourceTotals, StateCounts, u32); 2],
    owners: [CanonicalOwners; 2],
    accounts: BTreeMap<String, CanonicalAccount>,
}

#[derive(Debug, PartialEq, Eq)]
struct CanonicalAccount {
    charged: ResourceTotals,
    quota_below: [ResourceTotals; 2],
    idle: [ResourceTotals; 2],
    guarantee: ResourceTotals,
    deserved: Resources,
    real: Resources,
    effective: Resources,
}

impl Quota {
    /// A store with the same objects, without charges, counts and fleet.
    pub(crate) fn rebuilt(&self) -> Self {
        let mut rebuilt = Self::default();
        for (name, node) in self.iter() {
            rebuilt.set_fact(name, node.fact.clone());
            rebuilt.set_policy(name, node.policy.clone());
        }
        rebuilt
    }

    /// How the store differs from a rebuilt one with the same fleet, charges and counts.
    pub(crate) fn audit(&self, should: &Self) -> Vec<String> {
        let canonical = |quota: &Self| -> BTreeMap<QueueName, CanonicalQueue> {
            let all = quota.iter();
            all.map(|(name, node)| (name.clone(), quota.canonical(node)))
                .collect()
        };
        let fleets = self.audit_fleets(should);
        let (is, should) = (canonical(self), canonical(should));
        let names: BTreeSet<&QueueName> = is.keys().chain(should.keys()).collect();
        let differ = names
            .into_iter()
            .filter(|name| is.get(*name) != should.get(*name));
        let queues = differ.map(|name| {
            let (is, should) = (is.get(name), should.get(name));
            format!("queue {name}: kept {is:?}, should be {should:?}")
        });
        fleets.into_iter().chain(queues).collect()
    }

    /// Scopes whose fleet differs. The rebuilt store lacks scopes that no bound uses any more.
    fn audit_fleets(&self, should: &Self) -> Vec<String> {
        let fleets = |quota: &Self| -> BTreeMap<String, ResourceTotals> {
            let totals = |scope: &Scope| {
                let totals = quota.resource_ids.totals(&scope.fleet);
                (scope.pools.to_string(), totals)
            };
            quota.scopes.iter().map(totals).collect()
        };
        let is = fleets(self);
        let should = fleets(should).into_iter();
        let differ = should.filter(|(scope, should)| is.get(scope) != Some(should));
        differ
            .map(|(scope, should)| {
                let is = is.get(&scope);
                format!("fleet of {scope}: kept {is:?}, should be {should:?}")
            })
            .collect()
    }

    fn canonical(&self, node: &QueueNode) -> CanonicalQueue {
        let counts = |counts: &Counts| {
            (
                self.resource_ids.totals(&counts.pending),
                counts.by_state,
                counts.charged,
            )
        };
        let own = node.own.pools.iter();
        CanonicalQueue {
            parent: node.parent.map(|parent| self.name(parent).clone()),
            children: node.child_names(self),
            problem: self.problem(&node.name).map(|(_, message)| message),
            pools: own
                .map(|(pool, sums)| {
                    (
                        format!("{:?}", self.scopes.pool(*pool)),
                        self.resource_ids.totals(sums),
                    )
                })
                .collect(),
            counts: [counts(&node.own.counts), counts(&node.counts)],
            owners: [&node.own.owners, &node.owners]
                .map(|owners| owners.canonical(&self.resource_ids)),
            accounts: self.canonical_accounts(node),
        }
    }

    /// The accounts that have a quota or a bound; the two stores may differ in others.
    fn canonical_accounts(&self, node: &QueueNode) -> BTreeMap<String, CanonicalAccount> {
        let named = |bounds: &Bounds| bounds.named(&self.resource_ids);
        let accounts = node.accounts.iter();
        let matter = accounts
            .filter(|(_, account)| !account.bounds.effective.is_empty() || !account.is_idle());
        matter
            .map(|(scope, account)| {
                let (bounds, below) = (&account.bounds, &account.below);
                let canonical = CanonicalAccount {
                    charged: self.resource_ids.totals(&account.charged),
                    quota_below: [
                        self.resource_ids.totals(&below.guarantee),
                        self.resource_ids.totals(&below.deserved),
                    ],
                    idle: [
                        self.resource_ids.totals(&account.idle),
                        self.resource_ids.totals(&account.idle_below),
                    ],
                    guarantee: self.resource_ids.totals(&bounds.guarantee),
                    deserved: named(&bounds.deserved),
                    real: named(&bounds.real),
                    effective: named(&bounds.effective),
                };
                (self.scopes.get(*scope).pools.to_string(), canonical)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
