//! Accounts: what a queue is guaranteed, deserves, may have and is charged, over everything and by
//! pools.
//!
//! Every queue has one account over everything; one more for each scope that its policy
//! bounds, or that a queue below it bounds, or in which a sibling is guaranteed something.
//!
//! What an account comes to, per resource (Volcano's capacity rules, hierarchical):
//! - its *subtree quota* is the guarantee and the deserved amount that it names; an inner queue that
//!   names none has what those below it have together (a folder). An invalid queue has none;
//! - *real capability*: at the root what it names, and where anything is guaranteed to any queue
//!   not more than the fleet has; below, where anything is guaranteed to a sibling, what of the
//!   parent's is not guaranteed, plus the own guarantee; else the parent's. Never more than the
//!   own capability, never below zero (guarantees may exceed a fleet that lost a cluster);
//! - *idle guarantee*: what is guaranteed and not charged, of it or below it (`idle.rs`);
//! - *deserved*: the deserved amount of its subtree quota, within the real capability, at least the
//!   guarantee. Where its subtree quota names none, it deserves none.
//!
//! Kueue's model is this one by other names: nominal quota is deserved, a borrowing limit is
//! capability − deserved, a lending limit is deserved − guarantee.
//!
//! Subtree quotas go up, bounds come down: a change walks up as far as subtree quotas change, then
//! down as far as bounds do, and touches nothing else.

use crate::amounts::resource_ids::{ResourceId, ResourceIds, ResourceVec};
use crate::amounts::totals::ResourceTotals;
use crate::quota::bounds::Bounds;
use crate::quota::queue::QueueId;
use crate::quota::scopes::{OVERALL, ScopeId};
use crate::quota::store::Quota;
use facts::{ClusterName, PoolBound, PoolClass, QueueFact};
use std::collections::{BTreeMap, BTreeSet};

/// What one object names for one account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NamedQuota {
    /// True if there is such an object: it may name nothing and still ask to be shown.
    pub(super) bound: bool,
    pub(super) guarantee: Bounds,
    pub(super) deserved: Bounds,
    pub(super) capability: Bounds,
}

/// What a queue and those below it are guaranteed and deserve by name: what its account adds to
/// the one above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SubtreeQuota {
    pub(super) guarantee: ResourceVec,
    pub(super) deserved: ResourceVec,
    /// How many name something of a resource as deserved or guaranteed, be it nothing.
    pub(super) named: ResourceVec,
}

/// What one queue is guaranteed, may have and is charged in one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) named: NamedQuota,
    /// Of those directly below, together.
    pub(super) below: SubtreeQuota,
    /// As counted in the account above.
    pub(super) contributed: SubtreeQuota,
    pub(super) bounds: AccountBounds,
    /// What is charged to it, all below it included.
    pub(super) charged: ResourceVec,
    /// What is withheld for its guarantee, or for those below it, and not charged (`idle.rs`).
    pub(super) idle: ResourceVec,
    /// The same of those directly below, together.
    pub(super) idle_below: ResourceVec,
}

/// What an account comes to as things are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AccountBounds {
    /// Withheld for it even while it is idle, unless it is inactive; what it uses of it is not reclaimed.
    pub(super) guarantee: ResourceVec,
    /// What it may reclaim; only what is named, here or below.
    pub(super) deserved: Bounds,
    /// What it may have at most; only what is bounded.
    pub(super) real: Bounds,
    /// The bounds to check here: those of `real` below what the account above may have. The
    /// others are checked there.
    pub(super) effective: Bounds,
}

impl SubtreeQuota {
    fn add_all(&mut self, other: &Self, times: i64) {
        self.guarantee.add_all(&other.guarantee, times);
        self.deserved.add_all(&other.deserved, times);
        self.named.add_all(&other.named, times);
    }

    /// The resources that are named as deserved or guaranteed.
    pub(super) fn resources(&self) -> impl Iterator<Item = ResourceId> {
        self.named.iter().map(|(id, _)| id)
    }
}

impl Account {
    /// Returns the amounts that it states and, of each resource that it does not state, the sum of its children.
    fn subtree_quota(&self) -> SubtreeQuota {
        let or_below = |named: &Bounds, below: &ResourceVec| {
            let mut all = below.clone();
            for (id, amount) in named.iter() {
                all.set(id, amount);
            }
            all
        };
        let mut named = ResourceVec::default();
        let own = self
            .named
            .deserved
            .iter()
            .chain(self.named.guarantee.iter());
        let below = self.below.named.iter();
        own.chain(below).for_each(|(id, _)| named.set(id, 1));
        SubtreeQuota {
            guarantee: or_below(&self.named.guarantee, &self.below.guarantee),
            deserved: or_below(&self.named.deserved, &self.below.deserved),
            named,
        }
    }

    /// True if nothing but its existence would be lost with it.
    pub(super) fn is_idle(&self) -> bool {
        self.named == NamedQuota::default()
            && self.below == SubtreeQuota::default()
            && self.contributed == SubtreeQuota::default()
    }
}

impl Quota {
    pub(super) fn named_quota(&mut self, id: QueueId, scope: ScopeId) -> NamedQuota {
        let Some(node) = self.slots[id.index()].as_ref() else {
            return NamedQuota::default();
        };
        let mut named = NamedQuota::default();
        if scope == OVERALL {
            if let Some(fact) = &node.fact {
                named = named_by_fact(&mut self.resource_ids, fact);
            }
            return named;
        }
        let bounds = node.policy.iter().flat_map(|policy| &policy.pools);
        for bound in bounds.filter(|bound| self.scopes.find(&(*bound).into()) == Some(scope)) {
            let more = named_by_bound(&mut self.resource_ids, bound);
            named.bound = true;
            named.guarantee.merge(&more.guarantee, i128::max);
            named.deserved.merge(&more.deserved, i128::max);
            named.capability.merge(&more.capability, i128::min);
        }
        named
    }

    /// The accounts of a queue follow what its objects name now.
    pub(super) fn sync_accounts(&mut self, id: QueueId) {
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
            let named = self.named_quota(id, *scope);
            if named != NamedQuota::default() || *scope == OVERALL {
                self.open_account(id, *scope);
            }
            if let Some(account) = self.node_mut(id).account_mut(*scope) {
                account.named = named;
            }
        }
        for scope in scopes {
            self.propagate(id, scope);
        }
    }

    /// Makes the account of a queue in a scope, with what is charged there, if there is none; and
    /// those above it, so that the accounts of a scope make a tree.
    fn open_account(&mut self, id: QueueId, scope: ScopeId) {
        if self.node(id).account(scope).is_some() {
            return;
        }
        if let Some(parent) = self.node(id).parent {
            self.open_account(parent, scope);
        }
        let mut charged = ResourceVec::default();
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
        self.update_bounds(id, scope, false);
    }

    /// Carries the subtree quota of a queue up as far as it changes, then the bounds down.
    pub(super) fn propagate(&mut self, id: QueueId, scope: ScopeId) {
        let mut at = id;
        // From the queue upwards: the queues below which bounds may have changed.
        let mut met = vec![(id, false)];
        let mut revalidated = Vec::new();
        loop {
            if self.revalidate(at) {
                revalidated.push(at);
            }
            let (Some(parent), Some(now)) = (self.node(at).parent, self.contribution(at, scope))
            else {
                break;
            };
            let Some(account) = self.node_mut(at).account_mut(scope) else {
                break;
            };
            if now == account.contributed {
                break;
            }
            let before = std::mem::replace(&mut account.contributed, now.clone());
            self.open_account(parent, scope);
            self.replace_contribution(parent, scope, &before, &now);
            met.push((parent, before.guarantee != now.guarantee));
            at = parent;
        }
        self.update_idle(id, scope);
        for (at, siblings_too) in met.into_iter().rev() {
            self.update_bounds(at, scope, siblings_too);
        }
        self.prune(id, scope);
        // Whether a queue is valid matters to all its accounts.
        for at in revalidated {
            let others = self.scopes_at(at).into_iter().filter(|of| *of != scope);
            others.for_each(|of| self.propagate(at, of));
        }
    }

    /// Sets what the usable nodes of some clusters have, by class. Where anything is guaranteed,
    /// what others may have changes with it.
    pub(crate) fn set_fleet<'a>(
        &mut self,
        fleet: impl IntoIterator<Item = (&'a ClusterName, BTreeMap<PoolClass, ResourceTotals>)>,
    ) {
        let mut changed = BTreeSet::new();
        for (cluster, total) in fleet {
            let mut classes = BTreeMap::new();
            for (class, totals) in total {
                let sums: &mut ResourceVec = classes.entry(class).or_default();
                for (name, amount) in totals.iter() {
                    sums.add(self.resource_ids.intern(name), amount);
                }
            }
            changed.extend(self.scopes.set_fleet(cluster, &classes));
        }
        if changed.contains(&OVERALL) {
            // Shares of what is not bounded are shares of the fleet.
            self.unranked.extend(self.subtree(QueueId::ROOT));
        }
        for scope in changed {
            self.update_bounds(QueueId::ROOT, scope, false);
        }
    }

    /// Returns what an account adds to the one above it now.
    fn contribution(&self, id: QueueId, scope: ScopeId) -> Option<SubtreeQuota> {
        let account = self.node(id).account(scope)?;
        Some(if self.node(id).is_inactive() {
            SubtreeQuota::default()
        } else {
            account.subtree_quota()
        })
    }

    /// A queue directly below adds `now` to an account instead of `before`. By which resources the
    /// queues below are compared may change with it.
    fn replace_contribution(
        &mut self,
        id: QueueId,
        scope: ScopeId,
        before: &SubtreeQuota,
        now: &SubtreeQuota,
    ) {
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

    /// Takes what a queue adds to the accounts of its parent out of them.
    pub(super) fn detach_accounts(&mut self, id: QueueId) {
        let Some(parent) = self.node(id).parent else {
            return;
        };
        let scopes: Vec<ScopeId> = self.node(id).accounts.iter().map(|(s, _)| *s).collect();
        for scope in scopes {
            self.drop_idle(id, parent, scope);
            let contributed = match self.node_mut(id).account_mut(scope) {
                Some(account) => std::mem::take(&mut account.contributed),
                None => continue,
            };
            if contributed == SubtreeQuota::default() {
                continue;
            }
            self.replace_contribution(parent, scope, &contributed, &SubtreeQuota::default());
            self.update_bounds(parent, scope, true);
            self.propagate(parent, scope);
        }
    }

    /// Carries the subtree quota of a queue up from its new place, and bounds down to it.
    pub(super) fn attach_accounts(&mut self, id: QueueId) {
        for scope in self.scopes_at(id) {
            if let Some(parent) = self.node(id).parent
                && self.node(id).account(scope).is_some()
            {
                self.open_account(parent, scope);
            }
            self.update_bounds(id, scope, false);
            self.propagate(id, scope);
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

    /// Updates bounds from a queue downwards, as far as they change; with `force`, those directly
    /// below in any case.
    pub(super) fn update_bounds(&mut self, id: QueueId, scope: ScopeId, force: bool) {
        if self.is_guarded(id, scope) {
            self.open_account(id, scope);
        }
        let bounds = self.bounds_of(id, scope);
        let Some(account) = self.node_mut(id).account_mut(scope) else {
            return;
        };
        let same = account.bounds.real == bounds.real;
        let changed = account.bounds != bounds;
        account.bounds = bounds;
        if changed {
            self.bounds_changed.insert(id);
        }
        if same && !force {
            return;
        }
        for child in self.node(id).children.clone() {
            self.update_bounds(child, scope, false);
        }
        // Where nothing is guaranteed any more, those below need no account for it.
        for child in self.node(id).children.clone() {
            self.close_idle(child, scope);
        }
    }

    /// True if a sibling is guaranteed something in the scope, which this queue may not take.
    fn is_guarded(&self, id: QueueId, scope: ScopeId) -> bool {
        let parent = self.node(id).parent.map(|parent| self.node(parent));
        let above = parent.and_then(|parent| parent.account(scope));
        above.is_some_and(|above| !above.below.guarantee.is_empty())
    }

    /// Closes accounts that are no longer needed, from a queue upwards.
    fn prune(&mut self, id: QueueId, scope: ScopeId) {
        let mut at = Some(id);
        while let Some(id) = at.filter(|id| self.close_idle(*id, scope)) {
            at = self.node(id).parent;
        }
    }

    /// Closes an account if it is no longer needed. True if there is none any more.
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

    /// Returns what an account comes to, from its subtree quota and the account above.
    fn bounds_of(&self, id: QueueId, scope: ScopeId) -> AccountBounds {
        let node = self.node(id);
        let Some(account) = node.account(scope) else {
            return AccountBounds::default();
        };
        let quota = account.subtree_quota();
        let nothing = ResourceVec::default();
        // Nothing is kept free above for an inactive queue: its guarantee adds nothing here, only protects its jobs.
        let kept = match node.is_inactive() {
            true => &nothing,
            false => &quota.guarantee,
        };
        let above = node
            .parent
            .and_then(|parent| self.node(parent).account(scope));
        let real = match above {
            None => self.real_of_root(account, scope),
            Some(above) => real_below(above, account, kept),
        };
        let mut deserved = account.named.deserved.clone();
        for (id, amount) in quota.deserved.iter() {
            deserved.set(id, amount);
        }
        for (id, guarantee) in kept.iter() {
            let named = deserved.get(id).unwrap_or_default();
            deserved.set(id, named.max(guarantee));
        }
        let named: Vec<_> = deserved.iter().collect();
        for (id, amount) in named {
            let amount = real.get(id).map_or(amount, |real| amount.min(real));
            deserved.set(id, amount.max(kept.get(id)));
        }
        let is_tighter = |(id, real): &(_, i128)| {
            let above = above.and_then(|above| above.bounds.real.get(*id));
            above.is_none_or(|above| *real < above)
        };
        let mut effective = Bounds::default();
        for (id, real) in real.iter().filter(is_tighter) {
            effective.set(id, real);
        }
        AccountBounds {
            guarantee: quota.guarantee,
            deserved,
            real,
            effective,
        }
    }

    fn real_of_root(&self, account: &Account, scope: ScopeId) -> Bounds {
        let mut real = account.named.capability.clone();
        let fleet = &self.scopes.get(scope).fleet;
        for (id, guaranteed) in account.below.guarantee.iter() {
            if guaranteed > 0 {
                let total = fleet.get(id).max(0);
                let total = real.get(id).map_or(total, |named| named.min(total));
                real.set(id, total);
            }
        }
        real
    }
}

fn real_below(above: &Account, account: &Account, kept: &ResourceVec) -> Bounds {
    let mut real = above.bounds.real.clone();
    for (id, all) in above.below.guarantee.iter() {
        if let Some(of_parent) = real.get(id) {
            let own = (of_parent - all).max(0) + kept.get(id);
            real.set(id, own.min(of_parent));
        }
    }
    real.merge(&account.named.capability, i128::min);
    real
}

fn named_by_fact(ids: &mut ResourceIds, fact: &QueueFact) -> NamedQuota {
    NamedQuota {
        bound: true,
        guarantee: Bounds::of(ids, &fact.guarantee),
        deserved: Bounds::of(ids, &fact.deserved),
        capability: Bounds::of(ids, &fact.capability),
    }
}

fn named_by_bound(ids: &mut ResourceIds, bound: &PoolBound) -> NamedQuota {
    NamedQuota {
        bound: true,
        guarantee: Bounds::of(ids, &bound.guarantee),
        deserved: Bounds::of(ids, &bound.deserved),
        capability: Bounds::of(ids, &bound.capability),
    }
}
