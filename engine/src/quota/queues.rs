//! The tree of queues, with what each has charged, pending and counted.
//!
//! A charge is booked at its queue and at every ancestor up to the implicit root, in every
//! account that counts it: O(depth). What is wrong with a queue (unknown, closed, invalid,
//! broken chain) stops its own jobs and those below it, never its siblings, and never touches
//! what is charged. Queues are numbered inside; numbers never reach output, and a queue that
//! neither exists nor has anything is forgotten.

use crate::amounts::hashed::Hashed;
use crate::amounts::resources::Resources;
use crate::api::facts::{PolicyFact, QueueFact, QueueOrdering, Share};
use crate::api::ids::{ClusterName, PoolClass, QueueName, Time};
use crate::api::reason::Reason;
use crate::jobs::job::JobState;
use crate::quota::accounts::Account;
use crate::quota::decay::DecayedUsage;
use crate::quota::measure::{Sums, Units};
use crate::quota::scopes::{OVERALL, PoolId, ScopeId, Scopes};
use crate::quota::sibling_order::SiblingOrder;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name of the queue above all (Volcano makes one; it may be bounded like any other).
pub(crate) const ROOT: &str = "root";

/// What is charged, by cluster and class.
pub(crate) type Pools = BTreeMap<(ClusterName, PoolClass), Resources>;

/// What is charged for `shares`, by pool.
pub(crate) fn pools_of(shares: &[Share]) -> Pools {
    let mut pools = Pools::new();
    for share in shares {
        for (class, resources) in &share.charge {
            let pool = (share.cluster.clone(), class.clone());
            let entry = pools.entry(pool).or_default();
            // Parts that cannot be counted together are charged as the larger of them.
            *entry = entry
                .checked_add(resources)
                .unwrap_or_else(|| Resources::max(entry, resources));
        }
    }
    pools
}

/// A queue by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId(u32);

impl QueueId {
    pub(crate) const ROOT: Self = Self(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Jobs by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts([u32; 6]);

impl Counts {
    pub(crate) fn get(self, state: JobState) -> u32 {
        self.0[state as usize]
    }

    fn add(&mut self, other: Self, sign: i32) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            let more = i32::try_from(more).unwrap_or(i32::MAX);
            *count = count.saturating_add_signed(more * sign);
        }
    }

    fn one(state: JobState) -> Self {
        let mut counts = Self::default();
        counts.0[state as usize] = 1;
        counts
    }
}

/// What jobs have and want, beside what is charged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Asked for by those that wait.
    pub(crate) pending: Sums,
    pub(crate) counts: Counts,
    /// Jobs that are charged.
    pub(crate) held: u32,
}

impl Census {
    pub(crate) fn add(&mut self, other: &Self, sign: i32) {
        self.pending.add_all(&other.pending, i128::from(sign));
        self.counts.add(other.counts, sign);
        let held = i32::try_from(other.held).unwrap_or(i32::MAX);
        self.held = self.held.saturating_add_signed(held * sign);
    }
}

/// What a queue's own jobs have and want.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// Charged, by pool.
    pub(crate) pools: BTreeMap<PoolId, Sums>,
    pub(crate) census: Census,
    /// Charged jobs by user.
    pub(crate) users: BTreeMap<Arc<str>, u32>,
}

/// One queue.
#[derive(Debug, Clone)]
pub(crate) struct QueueNode {
    pub(crate) name: QueueName,
    pub(crate) fact: Option<QueueFact>,
    pub(crate) policy: Option<PolicyFact>,
    /// The queue above; `None` for the root.
    pub(crate) parent: Option<QueueId>,
    /// Queues directly below, in order of their numbers.
    pub(crate) children: Vec<QueueId>,
    /// Why the parent that it names cannot be its parent.
    pub(crate) broken: Option<String>,
    /// What is wrong with itself.
    pub(crate) wrong: Option<(Reason, String)>,
    pub(crate) own: Own,
    /// Of its own jobs and of all queues below.
    pub(crate) census: Census,
    /// Charged jobs by user, all below included, while its policy limits them.
    pub(crate) users: BTreeMap<Arc<str>, u32>,
    /// In order; the one over everything is the first.
    pub(crate) accounts: Vec<(ScopeId, Account)>,
    /// What it held in the past, where its policy counts that.
    pub(crate) past: Option<DecayedUsage>,
    pub(crate) siblings: SiblingOrder,
}

impl QueueNode {
    fn new(name: QueueName) -> Self {
        Self {
            name,
            fact: None,
            policy: None,
            parent: None,
            children: Vec::new(),
            broken: None,
            wrong: None,
            own: Own::default(),
            census: Census::default(),
            users: BTreeMap::new(),
            accounts: vec![(OVERALL, Account::default())],
            past: None,
            siblings: SiblingOrder::default(),
        }
    }

    pub(crate) fn account(&self, scope: ScopeId) -> Option<&Account> {
        let at = self.accounts.binary_search_by_key(&scope, |(id, _)| *id);
        Some(&self.accounts.get(at.ok()?)?.1)
    }

    pub(crate) fn account_mut(&mut self, scope: ScopeId) -> Option<&mut Account> {
        let at = self.accounts.binary_search_by_key(&scope, |(id, _)| *id);
        Some(&mut self.accounts.get_mut(at.ok()?)?.1)
    }

    /// How its jobs are ordered.
    pub(crate) fn ordering(&self) -> QueueOrdering {
        let policy = self.policy.as_ref();
        policy.map(|policy| policy.ordering).unwrap_or_default()
    }

    /// The account over everything, which every queue has.
    pub(crate) fn overall(&self) -> &Account {
        &self.accounts[0].1
    }

    /// Whether it claims nothing: it does not exist, or is invalid.
    pub(crate) fn is_void(&self) -> bool {
        let invalid = |(reason, _): &(Reason, String)| *reason == Reason::QueueInvalid;
        self.fact.is_none() || self.broken.is_some() || self.wrong.as_ref().is_some_and(invalid)
    }

    fn is_empty(&self) -> bool {
        self.fact.is_none() && self.policy.is_none() && self.own == Own::default()
    }
}

/// All queues, the root and those known only by what is charged to them included.
#[derive(Debug, Clone)]
pub(crate) struct Queues {
    /// In order of name.
    ids: BTreeMap<QueueName, QueueId>,
    /// The same, to be looked up: no order follows from it.
    by_name: Hashed<QueueName, QueueId>,
    pub(crate) slots: Vec<Option<QueueNode>>,
    free: Vec<QueueId>,
    /// Who names a queue as its parent.
    pub(crate) named_by: BTreeMap<QueueName, BTreeSet<QueueId>>,
    pub(crate) units: Units,
    pub(crate) scopes: Scopes,
    /// Queues whose bounds are others than when this was last taken.
    pub(crate) moved: BTreeSet<QueueId>,
    /// Queues whose place in the order may be another.
    pub(crate) unranked: BTreeSet<QueueId>,
    /// Queues that count the past, by when their place is to be looked at again.
    pub(crate) fading: BTreeSet<(Time, QueueId)>,
    pub(crate) now: Time,
}

impl Default for Queues {
    fn default() -> Self {
        let root = QueueName::from(ROOT);
        Self {
            ids: BTreeMap::from([(root.clone(), QueueId::ROOT)]),
            by_name: std::iter::once((root.clone(), QueueId::ROOT)).collect(),
            slots: vec![Some(QueueNode::new(root))],
            free: Vec::new(),
            named_by: BTreeMap::new(),
            units: Units::default(),
            scopes: Scopes::default(),
            moved: BTreeSet::new(),
            unranked: BTreeSet::new(),
            fading: BTreeSet::new(),
            now: Time::default(),
        }
    }
}

impl Queues {
    pub(crate) fn id(&self, name: &QueueName) -> Option<QueueId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn get(&self, name: &QueueName) -> Option<&QueueNode> {
        Some(self.node(self.id(name)?))
    }

    /// Numbers are taken from `ids` and the tree, and a freed one is in neither.
    #[expect(clippy::expect_used, reason = "a number that is in use has a node")]
    pub(crate) fn node(&self, id: QueueId) -> &QueueNode {
        self.slots[id.index()].as_ref().expect("a queue in use")
    }

    #[expect(clippy::expect_used, reason = "a number that is in use has a node")]
    pub(crate) fn node_mut(&mut self, id: QueueId) -> &mut QueueNode {
        self.slots[id.index()].as_mut().expect("a queue in use")
    }

    /// In order of name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&QueueName, &QueueNode)> {
        self.ids.iter().map(|(name, id)| (name, self.node(*id)))
    }

    /// Those that exist or have jobs.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &QueueName> {
        self.iter()
            .filter(|(_, node)| node.fact.is_some() || node.own != Own::default())
            .map(|(name, _)| name)
    }

    /// From the queue up to the root.
    pub(crate) fn upwards(&self, id: QueueId) -> impl Iterator<Item = (QueueId, &QueueNode)> {
        let above = move |(_, node): &(QueueId, &QueueNode)| {
            node.parent.map(|parent| (parent, self.node(parent)))
        };
        std::iter::successors(Some((id, self.node(id))), above)
    }

    /// From the root down to the queue. Of one that nobody knows: the root and itself.
    pub(crate) fn path(&self, name: &QueueName) -> Vec<QueueName> {
        let Some(id) = self.id(name) else {
            return vec![QueueName::from(ROOT), name.clone()];
        };
        let mut path: Vec<QueueName> = self.upwards(id).map(|(_, n)| n.name.clone()).collect();
        path.reverse();
        path
    }

    /// Whether `above` is the queue or one above it.
    pub(crate) fn is_within(&self, name: &QueueName, above: &QueueName) -> bool {
        let (Some(id), Some(above)) = (self.id(name), self.id(above)) else {
            return name == above || above.as_str() == ROOT;
        };
        self.upwards(id).any(|(at, _)| at == above)
    }

    pub(crate) fn ordering(&self, name: &QueueName) -> QueueOrdering {
        self.get(name).map(QueueNode::ordering).unwrap_or_default()
    }

    pub(crate) fn policy(&self, name: &QueueName) -> Option<&PolicyFact> {
        self.get(name)?.policy.as_ref()
    }

    /// Sets or removes a queue's object. Whether anything changed.
    pub(crate) fn set_fact(&mut self, name: &QueueName, fact: Option<QueueFact>) -> bool {
        if fact.is_none() && self.id(name).is_none() {
            return false;
        }
        let id = self.ensure(name);
        if self.node(id).fact == fact {
            return false;
        }
        let existed = self.node(id).fact.is_some();
        let exists = fact.is_some();
        let before = self.named_parent(id);
        self.node_mut(id).fact = fact;
        let now = self.named_parent(id);
        let moves = before != now || existed != exists;
        if moves {
            self.rename_parent(id, before.clone(), now);
            self.relink(id, before);
        }
        self.object_changed(id);
        self.sweep(id);
        true
    }

    /// Sets or removes a queue's policy. Whether anything changed.
    pub(crate) fn set_policy(&mut self, name: &QueueName, policy: Option<PolicyFact>) -> bool {
        if policy.is_none() && self.id(name).is_none() {
            return false;
        }
        let id = self.ensure(name);
        if self.node(id).policy == policy {
            return false;
        }
        self.node_mut(id).policy = policy;
        self.recount_users(id);
        self.object_changed(id);
        self.sweep(id);
        true
    }

    /// A queue's own bounds, or whether they may be used, are others now.
    fn object_changed(&mut self, id: QueueId) {
        self.refresh_past(id);
        self.rename(id);
        for child in self.node(id).children.clone() {
            self.revalidated(child);
        }
        self.unranked.extend(self.subtree(id));
    }

    /// The queues whose bounds are others than when this was last asked, in order of name.
    pub(crate) fn take_moved(&mut self) -> BTreeSet<QueueName> {
        let moved = std::mem::take(&mut self.moved);
        let known = moved
            .iter()
            .filter_map(|id| self.slots[id.index()].as_ref());
        known.map(|node| node.name.clone()).collect()
    }

    /// Books (`sign` 1) or gives back (-1) a charge, at the queue and all above it.
    pub(crate) fn charge(&mut self, name: &QueueName, pools: &Pools, sign: i64) {
        let id = self.ensure(name);
        self.keep_past(id);
        for (pool, resources) in pools {
            let pool = self.scopes.intern_pool(pool);
            let mut charge = Sums::default();
            for (resource, amount) in resources.iter() {
                let amount = i128::from(amount.0) * i128::from(sign);
                charge.add(self.units.intern(resource), amount);
            }
            self.charge_pool(id, pool, &charge);
        }
        self.watch_past(id);
        self.unranked.insert(id);
        self.sweep(id);
    }

    fn charge_pool(&mut self, id: QueueId, pool: PoolId, charge: &Sums) {
        let own = &mut self.node_mut(id).own.pools;
        let held = own.entry(pool).or_default();
        held.add_all(charge, 1);
        if held.is_empty() {
            own.remove(&pool);
        }
        let mut at = Some(id);
        while let Some(node) = at.and_then(|at| self.slots[at.index()].as_mut()) {
            for scope in self.scopes.of_pool(pool) {
                if let Some(account) = node.account_mut(*scope) {
                    account.charged.add_all(charge, 1);
                }
            }
            at = node.parent;
        }
        for index in 0..self.scopes.of_pool(pool).len() {
            let scope = self.scopes.of_pool(pool)[index];
            self.note_idle(id, scope, charge);
        }
    }

    /// Counts a job in (`sign` 1) or out (-1), by its state.
    pub(crate) fn count(
        &mut self,
        name: &QueueName,
        state: JobState,
        pending: Option<&Resources>,
        sign: i32,
    ) {
        let mut census = Census {
            counts: Counts::one(state),
            ..Census::default()
        };
        for (resource, amount) in pending.into_iter().flat_map(Resources::iter) {
            let resource = self.units.intern(resource);
            census.pending.add(resource, i128::from(amount.0));
        }
        let id = self.ensure(name);
        self.book(id, &census, sign);
        self.sweep(id);
    }

    /// Counts a charged job of a user in (`sign` 1) or out (-1).
    pub(crate) fn hold(&mut self, name: &QueueName, user: &Arc<str>, sign: i32) {
        let id = self.ensure(name);
        let census = Census {
            held: 1,
            ..Census::default()
        };
        self.book(id, &census, sign);
        count_user(&mut self.node_mut(id).own.users, user, sign);
        let mut at = Some(id);
        while let Some(node) = at.and_then(|at| self.slots[at.index()].as_mut()) {
            if node.limits().jobs_per_user.is_some() {
                count_user(&mut node.users, user, sign);
            }
            at = node.parent;
        }
        self.sweep(id);
    }

    fn book(&mut self, id: QueueId, census: &Census, sign: i32) {
        self.node_mut(id).own.census.add(census, sign);
        let mut at = Some(id);
        while let Some(node) = at.and_then(|at| self.slots[at.index()].as_mut()) {
            node.census.add(census, sign);
            at = node.parent;
        }
    }

    /// The number of a queue, which gets a place below the root if it has none.
    fn ensure(&mut self, name: &QueueName) -> QueueId {
        if let Some(id) = self.id(name) {
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            QueueId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
        });
        self.slots[id.index()] = Some(QueueNode::new(name.clone()));
        self.ids.insert(name.clone(), id);
        self.by_name.insert(name.clone(), id);
        self.hang(id, QueueId::ROOT);
        id
    }

    /// Forgets a queue that neither exists nor has anything.
    fn sweep(&mut self, id: QueueId) {
        if id == QueueId::ROOT || !self.node(id).is_empty() {
            return;
        }
        self.unhang(id);
        let name = self.node(id).name.clone();
        self.ids.remove(&name);
        self.by_name.remove(&name);
        self.slots[id.index()] = None;
        self.moved.remove(&id);
        self.unranked.remove(&id);
        // Without a policy it has no past that fades.
        self.free.push(id);
    }
}

/// Counts a job of a user in or out.
pub(crate) fn count_user(users: &mut BTreeMap<Arc<str>, u32>, user: &Arc<str>, sign: i32) {
    let count = users.entry(Arc::clone(user)).or_default();
    *count = count.saturating_add_signed(sign);
    if *count == 0 {
        users.remove(user);
    }
}
