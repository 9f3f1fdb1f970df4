//! The tree of queues.
//!
//! The tree follows the parents that the queues' objects name. If the parent does not exist, or
//! the parents form a circle, the queue is attached to the root and marked as broken, so that its
//! charges still count at the root. When a queue moves, the charges and counts of its subtree move
//! with it.

use crate::quota::owners::{Limited, Owners};
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::store::{Quota, ROOT};
use facts::QueueName;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// The queues from the root down to one. Trees are flat, so that a path needs no allocation.
pub(crate) type Path = SmallVec<[QueueId; 8]>;

impl Quota {
    /// A queue and all below it.
    pub(super) fn subtree(&self, id: QueueId) -> Vec<QueueId> {
        let mut all = vec![id];
        let mut next = 0;
        while let Some(at) = all.get(next).copied() {
            all.extend(self.node(at).children.iter().copied());
            next += 1;
        }
        all
    }

    /// The parent that a queue's object names, unless it is the root.
    pub(super) fn named_parent(&self, id: QueueId) -> Option<QueueName> {
        let fact = self.node(id).fact.as_ref()?;
        fact.parent.clone().filter(|parent| parent.as_str() != ROOT)
    }

    pub(super) fn rename_parent(
        &mut self,
        id: QueueId,
        before: Option<QueueName>,
        now: Option<QueueName>,
    ) {
        if let Some(before) = before
            && let Some(named) = self.named_by.get_mut(&before)
        {
            named.remove(&id);
            if named.is_empty() {
                self.named_by.remove(&before);
            }
        }
        if let Some(now) = now {
            self.named_by.entry(now).or_default().insert(id);
        }
    }

    /// Moves a queue to its position in the tree after its object was created, deleted or got
    /// another parent. Queues that name it, or that were or are on a circle with it, move too.
    pub(super) fn relink(&mut self, id: QueueId, parent_before: Option<QueueName>) {
        let mut met = BTreeSet::from([id]);
        let name = self.node(id).name.clone();
        met.extend(self.named_by.get(&name).into_iter().flatten().copied());
        met.extend(self.named_chain(parent_before.and_then(|before| self.id(&before))));
        met.extend(self.named_chain(Some(id)));
        met.remove(&QueueId::ROOT);
        let mut moves = Vec::new();
        for id in met {
            let (parent, broken) = self.place_for(id);
            if self.node(id).broken != broken {
                // It and all below it take jobs again, or do so no longer.
                self.node_mut(id).broken = broken;
                self.unranked.extend(self.subtree(id));
            }
            if self.node(id).parent == Some(parent) {
                self.propagate_all(id);
            } else {
                moves.push((id, parent));
            }
        }
        for (id, _) in &moves {
            self.detach(*id);
        }
        // Parents come first, so that no queue is attached to a detached one.
        moves.sort_by_key(|(id, _)| self.named_chain(Some(*id)).len());
        for (id, parent) in moves {
            self.attach(id, parent);
        }
    }

    /// The queue, its named parent, and so on, as far as they exist; each once.
    fn named_chain(&self, from: Option<QueueId>) -> Vec<QueueId> {
        let mut chain = Vec::new();
        let mut at = from;
        while let Some(id) = at.filter(|id| !chain.contains(id)) {
            chain.push(id);
            let parent = self.named_parent(id);
            at = parent.and_then(|parent| self.id(&parent));
        }
        chain
    }

    /// The parent of a queue in the tree, and the problem with the parent that it names, if any.
    fn place_for(&self, id: QueueId) -> (QueueId, Option<String>) {
        let Some(parent) = self.named_parent(id) else {
            return (QueueId::ROOT, None);
        };
        let name = &self.node(id).name;
        let exists = |id: &QueueId| self.node(*id).fact.is_some();
        let Some(at) = self.id(&parent).filter(exists) else {
            let why = format!("queue {name} names the parent {parent}, which does not exist");
            return (QueueId::ROOT, Some(why));
        };
        let chain = self.named_chain(Some(id));
        let last = chain.last().copied().unwrap_or(id);
        if self.named_parent(last).as_ref() == Some(name) {
            let last = &self.node(last).name;
            let why = format!("queue {name} is below itself: the parent of {last} is {name}");
            return (QueueId::ROOT, Some(why));
        }
        (at, None)
    }

    /// Attaches a queue, with all below it, to a parent.
    pub(super) fn attach(&mut self, id: QueueId, parent: QueueId) {
        self.node_mut(id).parent = Some(parent);
        let children = &mut self.node_mut(parent).children;
        let at = children.partition_point(|known| *known < id);
        children.insert(at, id);
        self.carry(id, parent, 1);
        self.attach_accounts(id);
        self.update_idle_everywhere(parent);
        // A problem with an ancestor blocks all below it.
        self.unranked.extend(self.subtree(id));
        self.unranked.insert(parent);
    }

    /// Detaches a queue, with all below it, from its parent.
    pub(super) fn detach(&mut self, id: QueueId) {
        let Some(parent) = self.node(id).parent else {
            return;
        };
        self.leave_order(id);
        self.detach_accounts(id);
        self.carry(id, parent, -1);
        self.update_idle_everywhere(parent);
        self.node_mut(id).parent = None;
        self.node_mut(parent).children.retain(|known| *known != id);
        self.unranked.insert(parent);
    }

    /// Adds (`sign` 1) or removes (-1) the charges and counts of a subtree at `parent` and all
    /// above it.
    fn carry(&mut self, id: QueueId, parent: QueueId, sign: i32) {
        let counts = self.node(id).counts.clone();
        let below = self.subtree(id);
        let above: Vec<QueueId> = self.upwards(parent).map(|(id, _)| id).collect();
        for at in above {
            self.decay_one(at);
            self.node_mut(at).counts.add(&counts, sign);
            for from in &below {
                self.carry_charges(*from, at, sign);
            }
            self.schedule_decay_of(at);
        }
    }

    fn carry_charges(&mut self, from: QueueId, to: QueueId, sign: i32) {
        let own = self.node(from).own.clone();
        let limited = self.node(to).limited();
        for (pool, sums) in &own.pools {
            for scope in self.scopes.of_pool(*pool).to_vec() {
                if let Some(account) = self.node_mut(to).account_mut(scope) {
                    account.charged.add_all(sums, i64::from(sign));
                }
            }
        }
        let owners = &mut self.node_mut(to).owners;
        owners.add_all(&own.owners, sign, limited);
    }

    /// Recomputes what owners are charged after a change of the policy that limits it.
    pub(super) fn recount_owners(&mut self, id: QueueId) {
        let limited = self.node(id).limited();
        let mut owners = Owners::default();
        if limited != Limited::NONE {
            for below in self.subtree(id) {
                owners.add_all(&self.node(below).own.owners, 1, limited);
            }
        }
        self.node_mut(id).owners = owners;
    }

    /// The children of the least common ancestor of `a` and `b` on their paths: the siblings that
    /// decide between the two. `None` if one is above the other, or both are one.
    pub(crate) fn lca_children(&self, a: QueueId, b: QueueId) -> Option<(QueueId, QueueId)> {
        let mut steps = self.path_of(a).into_iter().zip(self.path_of(b));
        steps.find(|(a, b)| a != b)
    }

    /// From the root down to the queue.
    pub(crate) fn path_of(&self, id: QueueId) -> Path {
        let mut path: Path = self.upwards(id).map(|(id, _)| id).collect();
        path.reverse();
        path
    }
}

impl QueueNode {
    /// The names of its children, in order.
    pub(super) fn child_names(&self, queues: &Quota) -> Vec<QueueName> {
        let children = self.children.iter();
        let mut names: Vec<QueueName> = children.map(|id| queues.node(*id).name.clone()).collect();
        names.sort();
        names
    }
}
