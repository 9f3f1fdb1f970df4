//! The order of the users of a queue (`fairShare.within: User`): who has the smallest share goes first.
//!
//! The share of a user is the largest part that its jobs use of a resource: as that of a queue among its
//! siblings (`fair_share.rs`), where a user deserves nothing and all weigh the same. Past usage counts as it
//! does between queues (`decay.rs`), with the half-life of the queue. Only the queue's own jobs count.
//!
//! Shares are compared in 2⁻³² of the whole, so that they fit into sort keys; users who differ by less are
//! equal. They are computed for all users with a charge or past usage whenever the queue is ranked, and every
//! reader sees those of the last time: the order does not change in between.

use crate::amounts::resource_ids::ResourceVec;
use crate::api::job::{QueueOrder, TurnOrder, UserId};
use crate::quota::decay::{DecayedUsage, DecayedUsageSnapshot};
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::store::Quota;
use facts::{FairShareWithin, QueueName};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The users that a store has seen, by number.
#[derive(Debug, Clone, Default)]
pub(super) struct UserIds {
    names: Vec<Arc<str>>,
    ids: BTreeMap<Arc<str>, UserId>,
}

/// What the order of the users of one queue rests on.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueUsers {
    /// Past usage, if the policy counts it.
    decayed: BTreeMap<Arc<str>, DecayedUsage>,
    /// The shares when the queue was last ranked; those that are left out are 0.
    ranked: BTreeMap<UserId, u64>,
}

/// What a user has of a queue, for people: percents of what the queue may use, rounded, of the resource of which it has
/// most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserShare {
    /// What its jobs are charged now.
    pub(crate) now: u64,
    /// That with past usage, by which its jobs are ordered; `None` if only what it has now counts.
    pub(crate) with_past: Option<u64>,
}

/// The past usage of a user in a queue, in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserUsageSnapshot {
    user: Arc<str>,
    usage: DecayedUsageSnapshot,
}

impl QueueNode {
    /// Returns true if the order of its jobs is by users.
    fn orders_users(&self) -> bool {
        let policy = self.policy.as_ref();
        policy.is_some_and(|policy| policy.fair_share.within == Some(FairShareWithin::User))
    }

    /// Returns what a user's own jobs are charged.
    fn usage_of(&self, user: &str) -> Cow<'_, ResourceVec> {
        match self.own.owners.users.get(user) {
            Some(usage) => Cow::Borrowed(usage),
            None => Cow::Owned(ResourceVec::default()),
        }
    }

    /// Returns true if the past usage of a user is above the current one.
    pub(super) fn users_decay(&self) -> bool {
        let mut users = self.users.decayed.iter();
        users.any(|(user, past)| past.decays(&self.usage_of(user)))
    }
}

impl Quota {
    /// Gives a user a number, if it has none.
    pub(crate) fn number_user(&mut self, user: &Arc<str>) {
        let UserIds { names, ids } = &mut self.users;
        if !ids.contains_key(user) {
            names.push(Arc::clone(user));
            ids.insert(Arc::clone(user), UserId::numbered(names.len()));
        }
    }

    /// The number of a user in the order of a queue; none if that is not by users.
    pub(crate) fn user_in(&self, queue: &QueueName, user: &str) -> UserId {
        let known = || self.users.ids.get(user).copied();
        let by_users = self.orders_users(queue);
        by_users.then(known).flatten().unwrap_or_default()
    }

    /// Returns true if the order of a queue's jobs is by users.
    pub(crate) fn orders_users(&self, queue: &QueueName) -> bool {
        self.get(queue).is_some_and(QueueNode::orders_users)
    }

    /// The queues that must be ranked again and whose order is by users.
    pub(crate) fn unranked_by_users(&self) -> impl Iterator<Item = &QueueName> {
        let nodes = self.unranked.iter().map(|id| self.node(*id));
        nodes
            .filter(|node| node.orders_users())
            .map(|node| &node.name)
    }

    /// The share of a user when the queue was last ranked.
    pub(crate) fn user_share(&self, queue: &QueueName, user: UserId) -> u64 {
        let node = self.get(queue).filter(|_| user != UserId::NONE);
        let share = node.and_then(|node| node.users.ranked.get(&user));
        share.copied().unwrap_or_default()
    }

    /// Returns what a user has of a queue whose order is by users; `None` if it is not.
    pub(crate) fn share_of_user(&self, queue: &QueueName, user: &str) -> Option<UserShare> {
        let node = self.get(queue).filter(|node| node.orders_users())?;
        let now = self.part_of_queue(node, &node.usage_of(user)).scaled();
        let ranked = self.user_share(queue, self.user_in(queue, user));
        Some(UserShare {
            now: percent(now),
            with_past: node.half_life().map(|_| percent(ranked)),
        })
    }

    /// The place of a job among those of its queue.
    pub(super) fn turn<'a>(&self, queue: &QueueName, rank: &'a QueueOrder) -> TurnOrder<'a> {
        TurnOrder::of(rank, self.user_share(queue, rank.user))
    }

    /// Ranks the users of a queue.
    pub(crate) fn rank_users(&mut self, queue: &QueueName) {
        let Some(id) = self.id(queue) else {
            return;
        };
        let ranked = self.shares_of_users(id);
        self.node_mut(id).users.ranked = ranked;
    }

    fn shares_of_users(&self, id: QueueId) -> BTreeMap<UserId, u64> {
        let node = self.node(id);
        if !node.orders_users() {
            return BTreeMap::new();
        }
        let charged = node.own.owners.users.keys();
        let users: BTreeSet<&Arc<str>> = charged.chain(node.users.decayed.keys()).collect();
        let shares = users.into_iter().filter_map(|user| {
            let usage = node.usage_of(user);
            let counted = match node.users.decayed.get(user) {
                Some(past) => Cow::Owned(past.counted(&usage)),
                None => usage,
            };
            let share = self.part_of_queue(node, &counted).scaled();
            Some((*self.users.ids.get(user)?, share))
        });
        shares.filter(|(_, share)| *share > 0).collect()
    }

    /// Advances the past usage of a user before its usage changes.
    pub(super) fn decay_user(&mut self, id: QueueId, user: &Arc<str>) {
        let now = self.now;
        let node = self.node_mut(id);
        let Some(half_life) = node.half_life().filter(|_| node.orders_users()) else {
            return;
        };
        let usage = node.usage_of(user).into_owned();
        let past = node.users.decayed.entry(Arc::clone(user));
        let past = past.or_insert_with(|| DecayedUsage::from(now));
        past.advance(now, half_life, &usage);
    }

    /// Advances the past usage of all users of a queue, and forgets what has decayed to nothing.
    pub(super) fn decay_users(&mut self, id: QueueId) {
        let users: Vec<Arc<str>> = self.node(id).users.decayed.keys().cloned().collect();
        for user in &users {
            self.decay_user(id, user);
        }
        let QueueNode { users, own, .. } = self.node_mut(id);
        let charged = &own.owners.users;
        users
            .decayed
            .retain(|user, past| charged.contains_key(user) || !past.is_nothing());
    }

    /// Starts or stops to count the past usage of users after a change of the policy.
    pub(super) fn sync_users(&mut self, id: QueueId) {
        let node = self.node(id);
        if !node.orders_users() {
            self.node_mut(id).users = QueueUsers::default();
            return;
        }
        if node.half_life().is_none() {
            self.node_mut(id).users.decayed.clear();
            return;
        }
        let charged: Vec<Arc<str>> = node.own.owners.users.keys().cloned().collect();
        for user in &charged {
            self.decay_user(id, user);
        }
    }

    /// The past usage of the users of all queues, for a snapshot.
    pub(crate) fn decayed_users(&self) -> Vec<UserUsageSnapshot> {
        let nodes = self.iter();
        let users = nodes.flat_map(|(queue, node)| {
            let users = node.users.decayed.iter();
            users.map(|(user, past)| UserUsageSnapshot {
                user: Arc::clone(user),
                usage: self.decayed_snapshot(queue, past),
            })
        });
        users.collect()
    }

    /// Restores the past usage of users, after objects and charges.
    pub(crate) fn restore_decayed_users(&mut self, snapshots: Vec<UserUsageSnapshot>) {
        let mut restored = BTreeMap::<QueueId, BTreeMap<_, _>>::new();
        for UserUsageSnapshot { user, usage } in snapshots {
            self.number_user(&user);
            if let Some((id, past)) = self.decayed_of(&usage) {
                restored.entry(id).or_default().insert(user, past);
            }
        }
        for (id, decayed) in restored {
            self.node_mut(id).users.decayed = decayed;
            self.schedule_decay_of(id);
            self.unranked.insert(id);
        }
    }

    /// Queues whose users are ranked otherwise than their usage says.
    pub(super) fn audit_users(&self) -> impl Iterator<Item = String> {
        let ids = self.iter().filter_map(|(name, _)| self.id(name));
        ids.filter_map(|id| {
            let (is, should) = (&self.node(id).users.ranked, self.shares_of_users(id));
            let name = self.name(id);
            (*is != should)
                .then(|| format!("queue {name}: users are ranked {is:?}, should be {should:?}"))
        })
    }
}

/// A share in percent, rounded to the nearest.
fn percent(share: u64) -> u64 {
    let percent = (u128::from(share) * 100 + (1 << 31)) >> 32;
    u64::try_from(percent).unwrap_or(u64::MAX)
}
