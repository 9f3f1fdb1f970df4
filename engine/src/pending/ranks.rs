//! The pending jobs of a queue in order, by user where their order is by users.
//!
//! Each user has a sequence of its own, in which a job keeps its place whatever its user is charged. The order
//! of all is that of [`TurnOrder`]: to merge or to count it costs one step for each user with pending jobs. In
//! a queue whose order is not by users there is one sequence.

use crate::api::job::{QueueOrder, TurnOrder, UserId};
use crate::pending::position_index::PositionIndex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};

/// The ranks of one user, and the share by which they come among those of others.
#[derive(Debug, Clone, Default)]
struct OfUser {
    ranks: PositionIndex,
    share: u64,
}

/// All ranks of a queue; no user is without any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranks(BTreeMap<UserId, OfUser>);

impl Ranks {
    /// Adds a rank that is not there yet.
    pub(super) fn insert(&mut self, rank: QueueOrder) {
        self.0.entry(rank.user).or_default().ranks.insert(rank);
    }

    /// Takes a rank out.
    pub(super) fn remove(&mut self, rank: &QueueOrder) {
        if let Some(of_user) = self.0.get_mut(&rank.user) {
            of_user.ranks.remove(rank);
            if of_user.ranks.is_empty() {
                self.0.remove(&rank.user);
            }
        }
    }

    /// The share of a user; 0 if it has no jobs here.
    pub(super) fn share(&self, user: UserId) -> u64 {
        self.0.get(&user).map_or(0, |of_user| of_user.share)
    }

    /// Sets the share of a user. Whether it was another.
    pub(super) fn set_share(&mut self, user: UserId, share: u64) -> bool {
        let known = self.0.get_mut(&user);
        known.is_some_and(|of_user| std::mem::replace(&mut of_user.share, share) != share)
    }

    /// The users with jobs.
    pub(crate) fn users(&self) -> impl Iterator<Item = UserId> {
        self.0.keys().copied()
    }

    /// How many users other than this one have jobs, and how many of these have a smaller share.
    pub(crate) fn others(&self, user: UserId) -> (usize, usize) {
        let own = self.share(user);
        let others = self.0.iter().filter(|(other, _)| **other != user);
        others.fold((0, 0), |(all, less), (_, of_user)| {
            (all + 1, less + usize::from(of_user.share < own))
        })
    }

    /// The place of a rank, 1 being the first.
    pub(crate) fn position(&self, rank: &QueueOrder) -> Option<usize> {
        let own = self.0.get(&rank.user)?;
        let at = own.ranks.position(rank)?;
        let target = TurnOrder::of(rank, own.share);
        let others = self.0.iter().filter(|(user, _)| **user != rank.user);
        let before = others.map(|(_, other)| {
            let is_before =
                |rank: &QueueOrder| TurnOrder::compare(rank, other.share, &target).is_lt();
            other.ranks.count_while(is_before)
        });
        Some(at + before.sum::<usize>())
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueueOrder> {
        let users = self.0.values();
        let firsts = users.filter_map(|of_user| {
            let mut ranks = of_user.ranks.iter();
            let first = TurnOrder::of(ranks.next()?, of_user.share);
            Some((first, ranks))
        });
        let mut heads: BTreeMap<TurnOrder<'_>, _> = firsts.collect();
        std::iter::from_fn(move || {
            let (first, mut ranks) = heads.pop_first()?;
            if let Some(next) = ranks.next() {
                heads.insert(TurnOrder::of(next, first.share), ranks);
            }
            Some(first.rank)
        })
    }

    /// User by user, those after a rank, or all: what is inserted behind the rank meanwhile is among them.
    pub(crate) fn by_user_after<'a>(
        &'a self,
        rank: Option<&'a QueueOrder>,
    ) -> impl Iterator<Item = &'a QueueOrder> {
        let from = rank.map_or(Unbounded, |rank| Included(rank.user));
        let users = self.0.range((from, Unbounded));
        users.flat_map(move |(user, of_user)| {
            let after = rank.filter(|rank| rank.user == *user);
            let rest = after.into_iter().flat_map(|rank| of_user.ranks.after(rank));
            let all = after.is_none().then(|| of_user.ranks.iter());
            rest.chain(all.into_iter().flatten())
        })
    }

    /// The first rank.
    pub(crate) fn first(&self) -> Option<&QueueOrder> {
        let users = self.0.values();
        let firsts = users.filter_map(|of_user| {
            let first = of_user.ranks.first()?;
            Some(TurnOrder::of(first, of_user.share))
        });
        firsts.min().map(|first| first.rank)
    }

    /// The first rank by the order of one user.
    pub(crate) fn earliest(&self) -> Option<&QueueOrder> {
        let users = self.0.values();
        users.filter_map(|of_user| of_user.ranks.first()).min()
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All as a set, for the audit.
    pub(super) fn sorted(&self) -> BTreeSet<&QueueOrder> {
        let users = self.0.values();
        users.flat_map(|of_user| of_user.ranks.iter()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use facts::{JobKey, Time};
    use proptest::prelude::*;
    use std::cmp::Reverse;

    fn rank((priority, at, user): (i32, i64, usize)) -> QueueOrder {
        QueueOrder {
            priority: Reverse(priority),
            at: Time(at),
            key: JobKey::new("ns", &format!("{priority}-{at}-{user}")),
            user: UserId::numbered(user),
        }
    }

    proptest! {
        #[test]
        fn all_users_together_are_in_the_order_of_their_turns(
            jobs in proptest::collection::btree_set((0..3_i32, 0..40_i64, 1..6_usize), 1..150),
            gone in proptest::collection::btree_set((0..3_i32, 0..40_i64, 1..6_usize), 0..50),
            shares in proptest::collection::vec(0..3_u64, 6),
        ) {
            let mut ranks = Ranks::default();
            for job in &jobs {
                ranks.insert(rank(*job));
            }
            for job in &gone {
                ranks.remove(&rank(*job));
            }
            for (user, share) in shares.iter().enumerate() {
                ranks.set_share(UserId::numbered(user), *share);
            }
            let left = jobs.difference(&gone).map(|job| (rank(*job), shares[job.2]));
            let left: Vec<(QueueOrder, u64)> = left.collect();
            let mut turns: Vec<TurnOrder<'_>> = left.iter().map(|(rank, share)| TurnOrder::of(rank, *share)).collect();
            turns.sort();
            let sorted: Vec<&QueueOrder> = turns.iter().map(|turn| turn.rank).collect();
            prop_assert!(ranks.iter().eq(sorted.iter().copied()));
            prop_assert_eq!(ranks.first(), sorted.first().copied());
            prop_assert_eq!(ranks.is_empty(), sorted.is_empty());
            prop_assert_eq!(ranks.earliest(), sorted.iter().copied().min());
            let mut by_user: Vec<&QueueOrder> = ranks.by_user_after(None).collect();
            for (index, rank) in by_user.iter().enumerate() {
                prop_assert!(ranks.by_user_after(Some(rank)).eq(by_user[index + 1..].iter().copied()));
            }
            by_user.sort_unstable_by_key(|rank| TurnOrder::of(rank, ranks.share(rank.user)));
            prop_assert_eq!(&by_user, &sorted);
            for (index, rank) in sorted.iter().enumerate() {
                prop_assert_eq!(ranks.position(rank), Some(index + 1));
            }
        }
    }
}
