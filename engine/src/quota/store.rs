//! The quota store: all queues with their charges and bounds.
//!
//! A charge counts at its queue and at every ancestor up to the implicit root, in every account
//! whose scope has its pool: O(depth). A problem with a queue (unknown, closed, invalid, broken
//! chain of parents) blocks its own jobs and those below it; it neither affects siblings nor
//! changes charges. A queue without objects and jobs is forgotten.

use crate::amounts::hashed::Hashed;
use crate::amounts::resource_ids::{ResourceIds, ResourceVec};
use crate::api::charge::Pools;
use crate::api::job::JobState;
use crate::quota::owners::{ChargeOwner, Limited};
use crate::quota::queue::{Counts, OwnJobs, QueueId, QueueNode, StateCounts};
use crate::quota::scopes::{PoolId, Scopes};
use crate::quota::users::UserIds;
use crate::timers::Timers;
use facts::{PolicyFact, QueueFact, QueueName, QueueOrdering, Resources, StopPolicy, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name of the root queue. Volcano creates it, and it may have bounds as any other.
pub(crate) const ROOT: &str = "root";

/// All queues, with the root and with those that have jobs only, and no object.
#[derive(Debug, Clone)]
pub(crate) struct Quota {
    /// In order of name.
    ids: BTreeMap<QueueName, QueueId>,
    /// The same entries, for lookups.
    by_name: Hashed<QueueName, QueueId>,
    pub(super) slots: Vec<Option<QueueNode>>,
    free: Vec<QueueId>,
    /// The queues that name a parent, by its name.
    pub(super) named_by: BTreeMap<QueueName, BTreeSet<QueueId>>,
    pub(super) resource_ids: ResourceIds,
    pub(super) scopes: Scopes,
    pub(super) users: UserIds,
    /// Queues whose bounds have changed since the last [`Quota::take_changed_bounds`].
    pub(super) bounds_changed: BTreeSet<QueueId>,
    /// Queues that must be ranked among their siblings again.
    pub(super) unranked: BTreeSet<QueueId>,
    /// When each queue whose usage decays is ranked next.
    pub(super) decay_due: Timers<QueueId>,
    pub(super) now: Time,
}

impl Default for Quota {
    fn default() -> Self {
        let root = QueueName::from(ROOT);
        Self {
            ids: BTreeMap::from([(root.clone(), QueueId::ROOT)]),
            by_name: std::iter::once((root.clone(), QueueId::ROOT)).collect(),
            slots: vec![Some(QueueNode::new(root))],
            free: Vec::new(),
            named_by: BTreeMap::new(),
            resource_ids: ResourceIds::default(),
            scopes: Scopes::default(),
            users: UserIds::default(),
            bounds_changed: BTreeSet::new(),
            unranked: BTreeSet::new(),
            decay_due: Timers::default(),
            now: Time::default(),
        }
    }
}

impl Quota {
    /// The id of a queue, if it has an object or jobs.
    pub(crate) fn id(&self, name: &QueueName) -> Option<QueueId> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, name: &QueueName) -> Option<&QueueNode> {
        Some(self.node(self.id(name)?))
    }

    /// The queue with an id from `ids` or the tree; freed ids are in neither.
    #[expect(clippy::expect_used, reason = "an id that is in use has a node")]
    pub(super) fn node(&self, id: QueueId) -> &QueueNode {
        self.slots[id.index()].as_ref().expect("a queue in use")
    }

    #[expect(clippy::expect_used, reason = "an id that is in use has a node")]
    pub(super) fn node_mut(&mut self, id: QueueId) -> &mut QueueNode {
        self.slots[id.index()].as_mut().expect("a queue in use")
    }

    /// Every queue, in order of name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&QueueName, &QueueNode)> {
        self.ids.iter().map(|(name, id)| (name, self.node(*id)))
    }

    /// The queues that exist or have jobs, in order of name.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &QueueName> {
        self.iter()
            .filter(|(_, node)| node.fact.is_some() || node.own != OwnJobs::default())
            .map(|(name, _)| name)
    }

    /// From the queue up to the root.
    pub(super) fn upwards(&self, id: QueueId) -> impl Iterator<Item = (QueueId, &QueueNode)> {
        let above = move |(_, node): &(QueueId, &QueueNode)| {
            node.parent.map(|parent| (parent, self.node(parent)))
        };
        std::iter::successors(Some((id, self.node(id))), above)
    }

    /// The names from the root down to the queue. An unknown queue is directly below the root.
    pub(crate) fn path(&self, name: &QueueName) -> Vec<QueueName> {
        let Some(id) = self.id(name) else {
            return vec![QueueName::from(ROOT), name.clone()];
        };
        let mut path: Vec<QueueName> = self.upwards(id).map(|(_, n)| n.name.clone()).collect();
        path.reverse();
        path
    }

    /// True if `above` is the queue itself or an ancestor.
    pub(crate) fn is_within(&self, name: &QueueName, above: &QueueName) -> bool {
        let (Some(id), Some(above)) = (self.id(name), self.id(above)) else {
            return name == above || above.as_str() == ROOT;
        };
        self.upwards(id).any(|(at, _)| at == above)
    }

    /// The name of a queue.
    pub(crate) fn name(&self, id: QueueId) -> &QueueName {
        &self.node(id).name
    }

    /// The priority that the object of a queue names.
    pub(crate) fn priority(&self, id: QueueId) -> i32 {
        self.node(id).priority()
    }

    /// The object of a queue.
    pub(crate) fn fact(&self, name: &QueueName) -> Option<&QueueFact> {
        self.get(name)?.fact.as_ref()
    }

    /// The objects of all queues, in order of name.
    pub(crate) fn facts(&self) -> impl Iterator<Item = &QueueFact> {
        self.iter().filter_map(|(_, node)| node.fact.as_ref())
    }

    /// The policies of all queues, in order of name.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &PolicyFact> {
        self.iter().filter_map(|(_, node)| node.policy.as_ref())
    }

    /// How the jobs of a queue are ordered.
    pub(crate) fn ordering(&self, name: &QueueName) -> QueueOrdering {
        self.get(name).map(QueueNode::ordering).unwrap_or_default()
    }

    /// The policy of a queue.
    pub(crate) fn policy(&self, name: &QueueName) -> Option<&PolicyFact> {
        self.get(name)?.policy.as_ref()
    }

    /// True if the policy of a queue evicts its jobs.
    pub(crate) fn is_drained(&self, name: &QueueName) -> bool {
        self.get(name).and_then(QueueNode::stop) == Some(StopPolicy::HoldAndDrain)
    }

    /// The queues whose policies evict their jobs, in order of name.
    pub(crate) fn drained(&self) -> impl Iterator<Item = &QueueName> {
        self.iter()
            .filter(|(_, node)| node.stop() == Some(StopPolicy::HoldAndDrain))
            .map(|(name, _)| name)
    }

    /// Sets or removes the object of a queue. True if that changed anything.
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

    /// Sets or removes the policy of a queue. True if that changed anything.
    pub(crate) fn set_policy(&mut self, name: &QueueName, policy: Option<PolicyFact>) -> bool {
        if policy.is_none() && self.id(name).is_none() {
            return false;
        }
        let id = self.ensure(name);
        if self.node(id).policy == policy {
            return false;
        }
        self.node_mut(id).policy = policy;
        self.recount_owners(id);
        self.object_changed(id);
        self.sweep(id);
        true
    }

    /// Updates a queue and its subtree after a change of one of its objects.
    fn object_changed(&mut self, id: QueueId) {
        self.sync_decay(id);
        self.sync_accounts(id);
        for child in self.node(id).children.clone() {
            self.propagate_all(child);
        }
        self.unranked.extend(self.subtree(id));
    }

    /// The queues whose bounds have changed since this was last called.
    pub(crate) fn take_changed_bounds(&mut self) -> BTreeSet<QueueName> {
        let changed = std::mem::take(&mut self.bounds_changed);
        let known = changed.iter();
        let known = known.filter_map(|id| self.slots[id.index()].as_ref());
        known.map(|node| node.name.clone()).collect()
    }

    /// Adds (`sign` 1) or removes (-1) a charge of an owner, at the queue and all above it.
    pub(crate) fn charge(
        &mut self,
        name: &QueueName,
        owner: ChargeOwner<'_>,
        pools: &Pools,
        sign: i64,
    ) {
        let id = self.ensure(name);
        self.decay(id);
        self.decay_user(id, owner.user);
        for (pool, resources) in pools {
            let pool = self.scopes.intern_pool(pool);
            let charge = self.resource_ids.vector(resources);
            self.charge_pool(id, pool, &charge, sign);
            self.charge_owner(id, owner, &charge, sign);
        }
        self.schedule_decay(id);
        self.unranked.insert(id);
        self.sweep(id);
    }

    fn charge_pool(&mut self, id: QueueId, pool: PoolId, charge: &ResourceVec, sign: i64) {
        let own = &mut self.node_mut(id).own.pools;
        let charged = own.entry(pool).or_default();
        charged.add_all(charge, sign);
        if charged.is_empty() {
            own.remove(&pool);
        }
        let scopes = self.scopes.of_pool(pool);
        each_upwards(&mut self.slots, id, |node| {
            for scope in scopes {
                if let Some(account) = node.account_mut(*scope) {
                    account.charged.add_all(charge, sign);
                }
            }
        });
        for index in 0..scopes.len() {
            let scope = self.scopes.of_pool(pool)[index];
            self.update_idle_after(id, scope, Some(charge));
        }
    }

    fn charge_owner(
        &mut self,
        id: QueueId,
        owner: ChargeOwner<'_>,
        charge: &ResourceVec,
        sign: i64,
    ) {
        let own = &mut self.node_mut(id).own.owners;
        own.charge(owner, charge, sign, Limited::ALL);
        each_upwards(&mut self.slots, id, |node| {
            let limited = node.limited();
            node.owners.charge(owner, charge, sign, limited);
        });
    }

    /// Adds (`sign` 1) or removes (-1) a job in the counts by state, with its request if it is
    /// pending.
    pub(crate) fn count(
        &mut self,
        name: &QueueName,
        state: JobState,
        pending: Option<&Resources>,
        sign: i32,
    ) {
        let pending = pending.map(|pending| self.resource_ids.vector(pending));
        let counts = Counts {
            pending: pending.unwrap_or_default(),
            by_state: StateCounts::one(state),
            charged: 0,
        };
        let id = self.ensure(name);
        self.book(id, &counts, sign);
        self.sweep(id);
    }

    /// Adds (`sign` 1) or removes (-1) a job in the counts of charged jobs.
    pub(crate) fn hold(&mut self, name: &QueueName, user: &Arc<str>, sign: i32) {
        let id = self.ensure(name);
        let counts = Counts {
            charged: 1,
            ..Counts::default()
        };
        self.book(id, &counts, sign);
        self.node_mut(id).own.owners.count_job(user, sign);
        each_upwards(&mut self.slots, id, |node| {
            if node.limited().jobs {
                node.owners.count_job(user, sign);
            }
        });
        self.sweep(id);
    }

    fn book(&mut self, id: QueueId, counts: &Counts, sign: i32) {
        self.node_mut(id).own.counts.add(counts, sign);
        each_upwards(&mut self.slots, id, |node| node.counts.add(counts, sign));
    }

    /// The id of a queue. A new queue is attached to the root.
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
        self.attach(id, QueueId::ROOT);
        id
    }

    /// Forgets a queue without objects and jobs.
    fn sweep(&mut self, id: QueueId) {
        if id == QueueId::ROOT || !self.node(id).is_empty() {
            return;
        }
        self.detach(id);
        let name = self.node(id).name.clone();
        self.ids.remove(&name);
        self.by_name.remove(&name);
        self.slots[id.index()] = None;
        self.bounds_changed.remove(&id);
        self.unranked.remove(&id);
        // It is not in `decay_due`, since it has no policy.
        self.free.push(id);
    }
}

/// Calls `change` with a queue and all above it.
fn each_upwards(
    slots: &mut [Option<QueueNode>],
    id: QueueId,
    mut change: impl FnMut(&mut QueueNode),
) {
    let mut at = Some(id);
    while let Some(node) = at.and_then(|at| slots[at.index()].as_mut()) {
        change(node);
        at = node.parent;
    }
}
