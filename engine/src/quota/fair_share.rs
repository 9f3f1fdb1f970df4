//! Fair sharing: the order of sibling queues.
//!
//! Two queues are compared at the children of their least common ancestor: by priority, then by
//! [`DominantShare`], then by the first pending job of each, then by name. No two siblings are
//! equal, so the order is total for any depth of the tree. Shares are compared as exact fractions.

use crate::amounts::resource_ids::{ResourceId, ResourceVec};
use crate::api::job::QueueOrder;
use crate::quota::accounts::SubtreeQuota;
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::scopes::OVERALL;
use crate::quota::store::Quota;
use facts::QueueName;
use smallvec::SmallVec;
use std::cmp::{Ordering, Reverse};

/// A fraction of non-negative integers. A zero denominator means infinity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fraction {
    pub(super) num: u128,
    pub(super) den: u128,
}

impl Fraction {
    pub(super) const ZERO: Self = Self { num: 0, den: 1 };

    /// `num / den`, where negative values count as zero.
    pub(super) fn new(num: i128, den: i128) -> Self {
        Self {
            num: num.max(0).unsigned_abs(),
            den: den.max(0).unsigned_abs(),
        }
    }

    /// The value in 2⁻³² of the whole, rounded down.
    pub(super) fn scaled(self) -> u64 {
        let scaled = self.num.saturating_mul(1 << 32).checked_div(self.den);
        scaled.map_or(u64::MAX, |scaled| u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Compares exactly: by cross products if they cannot overflow, else by continued fractions.
    pub(super) fn compare(self, other: Self) -> Ordering {
        const SMALL: u128 = u64::MAX as u128;
        let small = |fraction: Self| fraction.num <= SMALL && fraction.den <= SMALL;
        if small(self) && small(other) && self.den > 0 && other.den > 0 {
            return (self.num * other.den).cmp(&(other.num * self.den));
        }
        self.compare_large(other)
    }

    fn compare_large(self, other: Self) -> Ordering {
        let (mut a, mut b) = (self, other);
        let mut flipped = false;
        loop {
            let order = match (a.den == 0, b.den == 0) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => (a.num / a.den).cmp(&(b.num / b.den)),
            };
            if order != Ordering::Equal || a.den == 0 {
                return if flipped { order.reverse() } else { order };
            }
            // The whole parts are equal: compare the inverted remainders, in reverse.
            (a, b) = (
                Self {
                    num: a.den,
                    den: a.num % a.den,
                },
                Self {
                    num: b.den,
                    den: b.num % b.den,
                },
            );
            flipped = !flipped;
        }
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Fraction {}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(*other)
    }
}

/// The usage of a queue relative to its fair share. The order of the variants and of their fields
/// is the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DominantShare {
    /// Its usage of every resource is below its deserved amount. The value is the largest part of
    /// a deserved amount that it uses.
    Below(Fraction),
    /// It deserves nothing, or its usage of some resource has reached the deserved amount.
    Above {
        /// The largest part that it borrows of a shared resource, divided by its weight: usage
        /// beyond the deserved amount, relative to its capability in that resource, or to the
        /// fleet if it has none.
        borrowed: Fraction,
        /// Queues that deserve something come first.
        deserves_nothing: bool,
    },
}

/// The usage of a queue beside the amounts that it deserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UsedOfDeserved {
    DeservesNothing,
    /// Below the deserved amount of every resource. The value is the largest part that it uses.
    Below(Fraction),
    /// It has reached the deserved amount of some resource.
    Reached,
}

/// Sort key of a queue among its siblings. The order of the fields is the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FairShareKey {
    /// Higher priority first.
    priority: Reverse<i32>,
    share: DominantShare,
}

impl Quota {
    pub(super) fn fair_share(&self, id: QueueId) -> FairShareKey {
        let node = self.node(id);
        FairShareKey {
            priority: Reverse(node.priority()),
            share: self.share(node),
        }
    }

    /// True if a queue uses less than it deserves.
    pub(crate) fn is_below_deserved(&self, id: QueueId) -> bool {
        let node = self.node(id);
        let used = node.used_of_deserved(&node.counted_usage());
        matches!(used, UsedOfDeserved::Below(_))
    }

    /// The share of a queue, by the resources that queues compete for (not pod slots).
    fn share(&self, node: &QueueNode) -> DominantShare {
        let counted = node.counted_usage();
        let used = node.used_of_deserved(&counted);
        if let UsedOfDeserved::Below(largest) = used {
            return DominantShare::Below(largest);
        }
        DominantShare::Above {
            borrowed: self.borrowed_share(node, &counted),
            deserves_nothing: used == UsedOfDeserved::DeservesNothing,
        }
    }

    fn borrowed_share(&self, node: &QueueNode, usage: &ResourceVec) -> Fraction {
        let weight = i128::from(node.weight());
        self.largest_part(node, usage, weight, |id| node.deserved_usage(id))
    }

    /// The largest part that a usage is of what a queue may use of a shared resource.
    pub(super) fn part_of_queue(&self, node: &QueueNode, usage: &ResourceVec) -> Fraction {
        self.largest_part(node, usage, 1, |_| 0)
    }

    /// The largest part of a shared resource that a usage takes beyond what is `free`, divided by `weight`: relative
    /// to the capability of a queue in that resource, or to the fleet if it has none.
    fn largest_part(
        &self,
        node: &QueueNode,
        usage: &ResourceVec,
        weight: i128,
        free: impl Fn(ResourceId) -> i128,
    ) -> Fraction {
        let fleet = &self.scopes.get(OVERALL).fleet;
        let named = &node.overall().named.capability;
        let shared = self.shared_beside(node);
        let is_shared = |id: ResourceId| match shared.is_empty() {
            true => id.competes(),
            false => shared.contains(&id),
        };
        let mut largest = Fraction::ZERO;
        for (resource, used) in usage.iter().filter(|(id, _)| is_shared(*id)) {
            let of = named.get(resource).unwrap_or_else(|| fleet.get(resource));
            let beyond = used - free(resource);
            largest = largest.max(Fraction::new(beyond, of.saturating_mul(weight)));
        }
        largest
    }

    /// The resources that a queue and its siblings share: those in which any of them names a
    /// deserved amount or guarantee. All usage of other resources would count as borrowed: its CPU
    /// would put a queue that uses its deserved GPUs behind an empty queue that deserves nothing.
    fn shared_beside(&self, node: &QueueNode) -> SmallVec<[ResourceId; 8]> {
        let above = node.parent.map(|parent| self.node(parent).accounts.iter());
        let below = above.into_iter().flatten();
        let below = below.map(|(_, account)| &account.below);
        let shared = below.flat_map(SubtreeQuota::resources);
        shared.filter(|id| id.competes()).collect()
    }
}

impl QueueNode {
    /// The usage of a queue beside the amounts that it deserves, by its own accounts and what counts of it
    /// overall.
    fn used_of_deserved(&self, counted: &ResourceVec) -> UsedOfDeserved {
        let mut largest = Fraction::ZERO;
        let (mut deserves, mut reached) = (false, false);
        for (scope, account) in &self.accounts {
            let usage = if *scope == OVERALL {
                counted
            } else {
                &account.charged
            };
            let deserved = account.bounds.deserved.iter();
            for (resource, deserved) in deserved.filter(|(id, _)| id.competes()) {
                let used = usage.get(resource);
                deserves |= deserved > 0;
                reached |= used >= deserved && used > 0;
                largest = largest.max(Fraction::new(used, deserved.max(1)));
            }
        }
        match (deserves, reached) {
            (false, _) => UsedOfDeserved::DeservesNothing,
            (true, false) => UsedOfDeserved::Below(largest),
            (true, true) => UsedOfDeserved::Reached,
        }
    }

    fn weight(&self) -> u32 {
        let policy = self
            .policy
            .as_ref()
            .and_then(|policy| policy.fair_share.weight);
        let named = policy.or_else(|| self.fact.as_ref().map(|fact| fact.weight));
        named.unwrap_or(1).max(1)
    }

    /// The usage of a resource up to which nothing is borrowed: the overall deserved amount, or the
    /// usage within the deserved amounts of its pools, if that is more.
    pub(super) fn deserved_usage(&self, resource: ResourceId) -> i128 {
        let pools = self.accounts.iter().filter(|(scope, _)| *scope != OVERALL);
        let in_pools = pools.map(|(_, account)| {
            let deserved = account.bounds.deserved.get(resource).unwrap_or_default();
            account.charged.get(resource).min(deserved).max(0)
        });
        let overall = self.overall().bounds.deserved.get(resource);
        overall.unwrap_or_default().max(in_pools.sum())
    }
}

impl Quota {
    /// Compares two jobs, each with its queue: of one queue, by the shares of their users if its order is by users.
    pub(crate) fn compare(
        &self,
        a: (&QueueName, &QueueOrder),
        b: (&QueueName, &QueueOrder),
    ) -> Ordering {
        if a.0 == b.0 {
            return self.turn(a.0, a.1).cmp(&self.turn(b.0, b.1));
        }
        self.compare_queues(a.0, b.0).then_with(|| a.1.cmp(b.1))
    }

    /// Compares the children of the least common ancestor of two queues. Unlike in their sibling
    /// order, inadmissible jobs count: a job with a reservation is inadmissible.
    fn compare_queues(&self, a: &QueueName, b: &QueueName) -> Ordering {
        let siblings = self.id(a).zip(self.id(b));
        let Some((a, b)) = siblings.and_then(|(a, b)| self.lca_children(a, b)) else {
            return Ordering::Equal;
        };
        let firsts = |id| {
            let first = self.first_pending(id);
            (first.is_none(), first, self.name(id))
        };
        let shares = self.fair_share(a).cmp(&self.fair_share(b));
        shares.then_with(|| firsts(a).cmp(&firsts(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fractions_compare_as_their_cross_products_do(
            a in any::<u64>(), b in 1..u64::MAX, c in any::<u64>(), d in 1..u64::MAX, small in any::<bool>(),
        ) {
            let bound = if small { 9 } else { u64::MAX };
            let [a, c] = [a, c].map(|num| u128::from(num % bound));
            let [b, d] = [b, d].map(|den| u128::from(den % bound + 1));
            let left = Fraction { num: a, den: b };
            let right = Fraction { num: c, den: d };
            let exact = (a * d).cmp(&(c * b));
            prop_assert_eq!(left.compare(right), exact);
            prop_assert_eq!(left.compare_large(right), exact);
        }
    }

    #[test]
    fn fractions_whose_cross_products_overflow_compare_exactly() {
        let most = u128::MAX;
        let ascending = [
            (1, most),
            (2, most),
            (most / 2, most),
            (most / 2 + 1, most),
            (most - 1, most),
            (most, most),
            (most, most - 1),
            (3, 2),
            (most, 2),
            (most, 1),
        ];
        for (at, (num, den)) in ascending.into_iter().enumerate() {
            for (than, (of, over)) in ascending.into_iter().enumerate() {
                let order = Fraction { num, den }.compare(Fraction { num: of, den: over });
                assert_eq!(order, at.cmp(&than), "{num}/{den} and {of}/{over}");
            }
        }
    }

    #[test]
    fn a_zero_denominator_is_infinity() {
        let infinite = Fraction { num: 1, den: 0 };
        let one = Fraction { num: 1, den: 1 };
        assert_eq!(infinite.compare(one), Ordering::Greater);
        assert_eq!(one.compare(infinite), Ordering::Less);
        assert_eq!(infinite.compare(infinite), Ordering::Equal);
        // So is 0/0.
        let nothing = Fraction { num: 0, den: 0 };
        assert_eq!(nothing.compare(one), Ordering::Greater);
        assert_eq!(one.compare(nothing), Ordering::Less);
        assert_eq!(nothing.compare(infinite), Ordering::Equal);
    }
}
