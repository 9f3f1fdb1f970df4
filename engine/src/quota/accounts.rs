//! Accounts: what a queue is promised, may have and holds, over everything and by pools.
//!
//! Every queue has one account over everything; one more for each scope that its policy
//! bounds, or that a queue below it bounds, or in which a sibling is guaranteed something.
//!
//! What an account comes to, per resource (Volcano's capacity rules, hierarchical):
//! - its *claims* are what it names; an inner queue that names nothing claims what those below
//!   it claim together (a folder). A queue that is invalid claims nothing;
//! - *real capability*: at the root what it names, and where anything is guaranteed to anybody
//!   not more than the fleet has; below, where anything is guaranteed to a sibling, what of the
//!   parent's is not guaranteed, plus the own guarantee; else the parent's. Never more than the
//!   own capability, never below zero (guarantees may exceed a fleet that lost a cluster);
//! - *idle guarantee*: what is guaranteed and not held, of it or below it (`idle.rs`);
//! - *deserved*: what is claimed, within the real capability, at least the guarantee.
//!   What is not claimed is not deserved.
//!
//! Kueue's model is this one by other names: nominal quota is deserved, a borrowing limit is
//! capability − deserved, a lending limit is deserved − guarantee.
//!
//! Claims go up, bounds come down: a change walks up as far as claims change, then down as far
//! as bounds do, and touches nothing else.

use crate::amounts::tally::Tally;
use crate::api::facts::{PoolBound, QueueFact};
use crate::api::ids::{ClusterName, PoolClass};
use crate::quota::measure::{Bounds, ResourceId, Sums};
use crate::quota::queues::{QueueId, Queues};
use crate::quota::scopes::{OVERALL, ScopeId};
use std::collections::{BTreeMap, BTreeSet};

/// What one object names for one account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Whether there is such an object: it may name nothing and still ask to be shown.
    pub(crate) bound: bool,
    pub(crate) guarantee: Bounds,
    pub(crate) deserved: Bounds,
    pub(crate) capability: Bounds,
}

/// What an account asks of the one above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) guarantee: Sums,
    pub(crate) deserved: Sums,
    /// How many name something of a resource as deserved or guaranteed, be it nothing.
    pub(crate) named: Sums,
}

/// What one queue is promised, may have and holds in one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) named: Named,
    /// Of those directly below, together.
    pub(crate) below: Claims,
    /// As counted in the account above.
    pub(crate) claimed: Claims,
    pub(crate) bounds: Effective,
    /// What it holds, all below it included.
    pub(crate) charged: Sums,
    /// What is kept for its guarantee, or for those below it, and not held (`idle.rs`).
    pub(crate) idle: Sums,
    /// The same of those directly below, together.
    pub(crate) idle_below: Sums,
}

/// What an account comes to as things are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Effective {
    /// Kept for it even while it is idle.
    pub(crate) guarantee: Sums,
    /// What it gets back when it needs it; only what is named, or claimed below.
    pub(crate) deserved: Bounds,
    /// What it may have at most; only what is bounded.
    pub(crate) real: Bounds,
    /// Of `real`, what is less than the account above may have: the rest is bounded there.
    pub(crate) binding: Bounds,
}

impl Claims {
    fn add_all(&mut self, other: &Self, times: i128) {
        self.guarantee.add_all(&other.guarantee, times);
        self.deserved.add_all(&other.deserved, times);
        self.named.add_all(&other.named, times);
    }

    /// The resources that are named as deserved or guaranteed.
    pub(crate) fn resources(&self) -> impl Iterator<Item = ResourceId> {
        self.named.iter().map(|(id, _)| id)
    }
}

impl Account {
    /// What it names, or what those below it claim together of what it does not name.
    fn claims(&self) -> Claims {
        let or_below = |named: &Bounds, below: &Sums| {
            let mut claims = below.clone();
            for (id, amount) in named.iter() {
                claims.set(id, amount);
            }
            claims
        };
        let mut named = Sums::default();
        let own = self
            .named
            .deserved
            .iter()
            .chain(self.named.guarantee.iter());
        let below = self.below.named.iter();
        own.chain(below).for_each(|(id, _)| named.set(id, 1));
        Claims {
            guarantee: or_below(&self.named.guarantee, &self.below.guarantee),
            deserved: or_below(&self.named.deserved, &self.below.deserved),
            named,
        }
    }

    /// Whether nothing but its existence would be lost with it.
    pub(crate) fn is_idle(&self) -> bool {
        self.named == Named::default()
            && self.below == Claims::default()
            && self.claimed == Claims::default()
    }
}

impl Queues {
    pub(crate) fn named_of(&mut self, id: QueueId, scope: ScopeId) -> Named {
        let Some(node) = self.slots[id.index()].as_ref() else {
            return Named::default();
        };
        let mut named = Named::default();
        if scope == OVERALL {
            if let Some(fact) = &node.fact {
                named = named_by_fact(&mut self.units, fact);
            }
            return named;
        }
        let bounds = node.policy.iter().flat_map(|policy| &policy.pools);
        for bound in bounds.filter(|bound| self.scopes.find(bound) == Some(scope)) {
            let more = named_by_bound(&mut self.units, bound);
            named.bound = true;
            named.guarantee.merge(&more.guarantee, i128::max);
            named.deserved.merge(&more.deserved, i128::max);
            named.capability.merge(&more.capability, i128::min);
        }
        named
    }

    /// The accounts of a queue follow what its objects name now.
    pub(crate) fn rename(&mut self, id: QueueId) {
        let bounds: Vec<PoolBound> = self.slots[id.index()]
            .iter()
            .filter_map(|node| node.policy.as_ref())
            .flat_map(|policy| policy.pools.iter().cloned())
            .collect();
        let mut scopes: Vec<ScopeId> = bounds
            .iter()
            .map(|bound| self.scopes.intern(bound))
            .collect();
        scopes.extend(self.node(id).accounts.iter().map(|(scope, _)| *scope));
        scopes.push(OVERALL);
        scopes.sort_unstable();
        scopes.dedup();
        for scope in &scopes {
            let named = self.named_of(id, *scope);
            if named != Named::default() || *scope == OVERALL {
                self.open(id, *scope);
            }
            if let Some(account) = self.node_mut(id).account_mut(*scope) {
                account.named = named;
            }
        }
        for scope in scopes {
            self.settle(id, scope);
        }
    }

    /// The account of a queue in a scope, made where there is none, with what it holds; and
    /// those above it, so that the accounts of a scope make a tree.
    fn open(&mut self, id: QueueId, scope: ScopeId) {
        if self.node(id).account(scope).is_some() {
            return;
        }
        if let Some(parent) = self.node(id).parent {
            self.open(parent, scope);
        }
        let mut charged = Sums::default();
        for below in self.subtree(id) {
            for (pool, sums) in &self.node(below).own.pools {
                if self.scopes.of_pool(*pool).binary_search(&scope).is_ok() {
                    charged.add_all(sums, 1);
                }
            }
        }
        let account = Account {
            charged,
            ..Account::default()
        };
        let accounts = &mut self.node_mut(id).accounts;
        let at = accounts.partition_point(|(known, _)| *known < scope);
        accounts.insert(at, (scope, account));
        self.descend(id, scope, false);
    }

    /// Carries the claims of a queue up as far as they change, then the bounds down.
    pub(crate) fn settle(&mut self, id: QueueId, scope: ScopeId) {
        let mut at = id;
        // From the queue upwards: those below whom bounds may be others now.
        let mut met = vec![(id, false)];
        let mut judged_anew = Vec::new();
        loop {
            if self.revalidate(at) {
                judged_anew.push(at);
            }
            let (Some(parent), Some(claims)) = (self.node(at).parent, self.claims_of(at, scope))
            else {
                break;
            };
            let Some(account) = self.node_mut(at).account_mut(scope) else {
                break;
            };
            if claims == account.claimed {
                break;
            }
            let before = std::mem::replace(&mut account.claimed, claims.clone());
            self.open(parent, scope);
            self.claim_of(parent, scope, &before, &claims);
            met.push((parent, before.guarantee != claims.guarantee));
            at = parent;
        }
        self.renew_idle(id, scope);
        for (at, siblings_too) in met.into_iter().rev() {
            self.descend(at, scope, siblings_too);
        }
        self.prune(id, scope);
        // Whether a queue may claim anything holds for all its accounts.
        for at in judged_anew {
            let others = self.scopes_at(at).into_iter().filter(|of| *of != scope);
            others.for_each(|of| self.settle(at, of));
        }
    }

    /// Sets what the usable nodes of a cluster have, by class. Where anything is guaranteed,
    /// what others may have changes with it.
    pub(crate) fn set_fleet(&mut self, cluster: &ClusterName, total: &BTreeMap<PoolClass, Tally>) {
        let mut classes = BTreeMap::new();
        for (class, tally) in total {
            let sums: &mut Sums = classes.entry(class.clone()).or_default();
            for (name, amount) in tally.iter() {
                sums.add(self.units.intern(name), amount);
            }
        }
        let changed = self.scopes.set_fleet(cluster, &classes);
        if changed.contains(&OVERALL) {
            // Shares of what is not bounded are shares of the fleet.
            self.unranked.extend(self.subtree(QueueId::ROOT));
        }
        for scope in changed {
            self.descend(QueueId::ROOT, scope, false);
        }
    }

    /// What an account asks of the one above it now.
    fn claims_of(&self, id: QueueId, scope: ScopeId) -> Option<Claims> {
        let account = self.node(id).account(scope)?;
        Some(if self.node(id).is_void() {
            Claims::default()
        } else {
            account.claims()
        })
    }

    /// One directly below a queue claims `now` of it instead of `before`. By which resources those
    /// below it are compared may be another.
    fn claim_of(&mut self, id: QueueId, scope: ScopeId, before: &Claims, now: &Claims) {
        let Some(account) = self.node_mut(id).account_mut(scope) else {
            return;
        };
        let shared: BTreeSet<ResourceId> = account.below.resources().collect();
        account.below.add_all(before, -1);
        account.below.add_all(now, 1);
        if shared != account.below.resources().collect() {
            let children = self.node(id).children.clone();
            self.unranked.extend(children);
        }
    }

    /// What a queue leaves behind when it moves elsewhere in the tree.
    pub(crate) fn withdraw(&mut self, id: QueueId) {
        let Some(parent) = self.node(id).parent else {
            return;
        };
        let scopes: Vec<ScopeId> = self.node(id).accounts.iter().map(|(s, _)| *s).collect();
        for scope in scopes {
            self.drop_idle(id, parent, scope);
            let claimed = match self.node_mut(id).account_mut(scope) {
                Some(account) => std::mem::take(&mut account.claimed),
                None => continue,
            };
            if claimed == Claims::default() {
                continue;
            }
            self.claim_of(parent, scope, &claimed, &Claims::default());
            self.descend(parent, scope, true);
            self.settle(parent, scope);
        }
    }

    /// A queue found its place in the tree: claims go up from it, bounds come down to it.
    pub(crate) fn arrive(&mut self, id: QueueId) {
        for scope in self.scopes_at(id) {
            if let Some(parent) = self.node(id).parent
                && self.node(id).account(scope).is_some()
            {
                self.open(parent, scope);
            }
            self.descend(id, scope, false);
            self.settle(id, scope);
        }
    }

    /// The scopes in which a queue, or the one above it, has an account.
    fn scopes_at(&self, id: QueueId) -> Vec<ScopeId> {
        let of = |id: QueueId| self.node(id).accounts.iter().map(|(scope, _)| *scope);
        let mut scopes: Vec<ScopeId> = of(id).collect();
        scopes.extend(self.node(id).parent.into_iter().flat_map(of));
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    }

    /// Brings bounds up to date from a queue downwards, as far as they change; with `force`,
    /// those directly below in any case.
    pub(crate) fn descend(&mut self, id: QueueId, scope: ScopeId, force: bool) {
        if self.is_guarded(id, scope) {
            self.open(id, scope);
        }
        let bounds = self.bounds_of(id, scope);
        let Some(account) = self.node_mut(id).account_mut(scope) else {
            return;
        };
        let same = account.bounds.real == bounds.real;
        let moved = account.bounds != bounds;
        account.bounds = bounds;
        if moved {
            self.moved.insert(id);
        }
        if same && !force {
            return;
        }
        for child in self.node(id).children.clone() {
            self.descend(child, scope, false);
        }
        // Where nothing is guaranteed any more, those below need no account for it.
        for child in self.node(id).children.clone() {
            self.close_idle(child, scope);
        }
    }

    /// Whether a sibling is guaranteed something in the scope, which this queue may not take.
    fn is_guarded(&self, id: QueueId, scope: ScopeId) -> bool {
        let parent = self.node(id).parent.map(|parent| self.node(parent));
        let above = parent.and_then(|parent| parent.account(scope));
        above.is_some_and(|above| !above.below.guarantee.is_empty())
    }

    /// Closes accounts that nothing calls for any more, from a queue upwards.
    fn prune(&mut self, id: QueueId, scope: ScopeId) {
        let mut at = Some(id);
        while let Some(id) = at.filter(|id| self.close_idle(*id, scope)) {
            at = self.node(id).parent;
        }
    }

    /// Closes an account that nothing calls for any more; whether there is none.
    fn close_idle(&mut self, id: QueueId, scope: ScopeId) -> bool {
        let node = self.node(id);
        let idle = node.account(scope).is_none_or(Account::is_idle);
        let mut below = node.children.iter();
        let needed = below.any(|child| self.node(*child).account(scope).is_some());
        if scope == OVERALL || !idle || needed || self.is_guarded(id, scope) {
            return false;
        }
        let accounts = &mut self.node_mut(id).accounts;
        accounts.retain(|(known, _)| *known != scope);
        true
    }

    /// What an account comes to, from its claims and the account above.
    fn bounds_of(&self, id: QueueId, scope: ScopeId) -> Effective {
        let node = self.node(id);
        let Some(account) = node.account(scope) else {
            return Effective::default();
        };
        let claims = account.claims();
        let above = node
            .parent
            .and_then(|parent| self.node(parent).account(scope));
        let real = match above {
            None => self.real_of_root(account, scope),
            Some(above) => real_below(above, account, &claims),
        };
        let mut deserved = account.named.deserved.clone();
        for (id, amount) in claims.deserved.iter() {
            deserved.set(id, Some(amount));
        }
        for (id, guarantee) in claims.guarantee.iter() {
            deserved.set(
                id,
                Some(deserved.get(id).unwrap_or_default().max(guarantee)),
            );
        }
        let claimed: Vec<_> = deserved.iter().collect();
        for (id, amount) in claimed {
            let amount = real.get(id).map_or(amount, |real| amount.min(real));
            deserved.set(id, Some(amount.max(claims.guarantee.get(id))));
        }
        let binds = |(id, real): &(_, i128)| {
            let above = above.and_then(|above| above.bounds.real.get(*id));
            above.is_none_or(|above| *real < above)
        };
        let mut binding = Bounds::default();
        for (id, real) in real.iter().filter(binds) {
            binding.set(id, Some(real));
        }
        Effective {
            guarantee: claims.guarantee,
            deserved,
            real,
            binding,
        }
    }

    fn real_of_root(&self, account: &Account, scope: ScopeId) -> Bounds {
        let mut real = account.named.capability.clone();
        let fleet = &self.scopes.get(scope).fleet;
        for (id, guaranteed) in account.below.guarantee.iter() {
            if guaranteed > 0 {
                let total = fleet.get(id).max(0);
                let total = real.get(id).map_or(total, |named| named.min(total));
                real.set(id, Some(total));
            }
        }
        real
    }
}

fn real_below(above: &Account, account: &Account, claims: &Claims) -> Bounds {
    let mut real = above.bounds.real.clone();
    for (id, all) in above.below.guarantee.iter() {
        if let Some(of_parent) = real.get(id) {
            let own = (of_parent - all).max(0) + claims.guarantee.get(id);
            real.set(id, Some(own.min(of_parent)));
        }
    }
    real.merge(&account.named.capability, i128::min);
    real
}

fn named_by_fact(units: &mut crate::quota::measure::Units, fact: &QueueFact) -> Named {
    Named {
        bound: true,
        guarantee: units.bounds(&fact.guarantee),
        deserved: units.bounds(&fact.deserved),
        capability: units.bounds(&fact.capability),
    }
}

fn named_by_bound(units: &mut crate::quota::measure::Units, bound: &PoolBound) -> Named {
    Named {
        bound: true,
        guarantee: units.bounds(&bound.guarantee),
        deserved: units.bounds(&bound.deserved),
        capability: units.bounds(&bound.capability),
    }
}
