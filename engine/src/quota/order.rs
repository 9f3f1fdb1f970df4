//! Who goes first between queues.
//!
//! Level by level from the root down, queues are compared by priority, then by [`DominantShare`]: those
//! below what they deserve first, by how much of it they hold; then the others, by what they
//! borrow relative to what they may have and to their weight (of the resources of which they or
//! their siblings name what they deserve, where there are such); where that is equal, those that
//! deserve something first. Where queues do not differ, who stands first of all in each
//! decides, then their names: so no two siblings are equal, and the order is one order (no
//! circles) whatever the depth of the tree. Shares are compared as exact fractions.

use crate::api::ids::QueueName;
use crate::engine::Engine;
use crate::jobs::job::QueueOrder;
use crate::quota::accounts::Claims;
use crate::quota::measure::{ResourceId, Sums};
use crate::quota::queues::{QueueId, QueueNode, Queues};
use crate::quota::scopes::OVERALL;
use smallvec::SmallVec;
use std::cmp::{Ordering, Reverse};

/// A fraction of integers, neither negative; a zero denominator is infinity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fraction {
    pub(crate) num: u128,
    pub(crate) den: u128,
}

impl Fraction {
    pub(crate) const ZERO: Self = Self { num: 0, den: 1 };

    /// `num / den`, what is negative taken as zero.
    pub(crate) fn new(num: i128, den: i128) -> Self {
        Self {
            num: num.max(0).unsigned_abs(),
            den: den.max(0).unsigned_abs(),
        }
    }

    /// Compares exactly: by cross products where those cannot overflow, else by continued
    /// fractions.
    pub(crate) fn compare(self, other: Self) -> Ordering {
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
            // Equal whole parts: the rests, turned over, compare the other way round.
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

/// How much a queue holds of what is fair: the order of the variants, and of their fields, is
/// the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DominantShare {
    /// It deserves something, and of all that it deserves it holds less: the largest part that
    /// it holds of any.
    Below(Fraction),
    /// It deserves nothing, or has reached it for some resource.
    Above {
        /// The largest part that it borrows of any resource that it shares: what it holds beyond what it
        /// deserves, of its capability where that names the resource and of the fleet where
        /// not, over its weight.
        borrowed: Fraction,
        /// Those that deserve something go first.
        deserves_nothing: bool,
    },
}

/// What a queue is compared with its siblings by: the policy is the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FairShareKey {
    /// Higher priority first.
    priority: Reverse<i32>,
    share: DominantShare,
}

impl Queues {
    pub(crate) fn fair_share(&self, id: QueueId) -> FairShareKey {
        let node = self.node(id);
        FairShareKey {
            priority: Reverse(node.fact.as_ref().map_or(0, |fact| fact.priority)),
            share: self.share(node),
        }
    }

    /// Pod slots are no resource that queues compete for.
    pub(crate) fn share(&self, node: &QueueNode) -> DominantShare {
        let counted = node.counted();
        let mut largest = Fraction::ZERO;
        let (mut deserves, mut reached) = (false, false);
        for (scope, account) in &node.accounts {
            let held = if *scope == OVERALL {
                &*counted
            } else {
                &account.charged
            };
            let deserved = account.bounds.deserved.iter();
            for (resource, deserved) in deserved.filter(|(id, _)| self.units.competes(*id)) {
                let held = held.get(resource);
                deserves |= deserved > 0;
                reached |= held >= deserved && held > 0;
                largest = largest.max(Fraction::new(held, deserved.max(1)));
            }
        }
        if deserves && !reached {
            return DominantShare::Below(largest);
        }
        DominantShare::Above {
            borrowed: self.borrowed_share(node, &counted),
            deserves_nothing: !deserves,
        }
    }

    fn borrowed_share(&self, node: &QueueNode, held: &Sums) -> Fraction {
        let weight = i128::from(node.weight());
        let fleet = &self.scopes.get(OVERALL).fleet;
        let named = &node.overall().named.capability;
        let shared = self.shared_beside(node);
        let is_shared = |id| match shared.is_empty() {
            true => self.units.competes(id),
            false => shared.contains(&id),
        };
        let mut largest = Fraction::ZERO;
        for (resource, held) in held.iter().filter(|(id, _)| is_shared(*id)) {
            let of = named.get(resource).unwrap_or_else(|| fleet.get(resource));
            let borrowed = held - node.covered(resource);
            largest = largest.max(Fraction::new(borrowed, of.saturating_mul(weight)));
        }
        largest
    }

    /// What a queue and its siblings share out by what they deserve: the resources of which any
    /// of them names what it deserves. Of others all that is held would count as borrowed: the CPU
    /// of running pods would put a queue that has just what it deserves of GPUs behind an empty one
    /// that deserves nothing.
    fn shared_beside(&self, node: &QueueNode) -> SmallVec<[ResourceId; 8]> {
        let above = node.parent.map(|parent| self.node(parent).accounts.iter());
        let claims = above
            .into_iter()
            .flatten()
            .map(|(_, account)| &account.below);
        let shared = claims.flat_map(Claims::resources);
        shared.filter(|id| self.units.competes(*id)).collect()
    }
}

impl QueueNode {
    fn weight(&self) -> u32 {
        let policy = self
            .policy
            .as_ref()
            .and_then(|policy| policy.fair_share.weight);
        let named = policy.or_else(|| self.fact.as_ref().map(|fact| fact.weight));
        named.unwrap_or(1).max(1)
    }

    /// What of a resource it deserves to hold: over everything, or what it deserves and holds
    /// of the pools that its policy bounds, if that is more.
    pub(crate) fn covered(&self, resource: crate::quota::measure::ResourceId) -> i128 {
        let pools = self.accounts.iter().filter(|(scope, _)| *scope != OVERALL);
        let in_pools = pools.map(|(_, account)| {
            let deserved = account.bounds.deserved.get(resource).unwrap_or_default();
            account.charged.get(resource).min(deserved).max(0)
        });
        let overall = self.overall().bounds.deserved.get(resource);
        overall.unwrap_or_default().max(in_pools.sum())
    }
}

impl Engine {
    /// Whether the job at `a` goes before the one at `b`.
    pub(crate) fn compare(
        &self,
        a: (&QueueName, &QueueOrder),
        b: (&QueueName, &QueueOrder),
    ) -> Ordering {
        let queues = if a.0 == b.0 {
            Ordering::Equal
        } else {
            self.quota.compare(a.0, b.0)
        };
        queues.then_with(|| a.1.cmp(b.1))
    }
}

impl Queues {
    /// As the ladder ranks the two queues where the paths part, except that those who sleep
    /// stand in line here too: a holder of a reservation sleeps.
    fn compare(&self, a: &QueueName, b: &QueueName) -> Ordering {
        let (Some(a), Some(b)) = (self.id(a), self.id(b)) else {
            return Ordering::Equal;
        };
        let Some((a, b)) = self.parting(a, b) else {
            return Ordering::Equal;
        };
        let lines = |id| {
            let line = self.first_in_line(id);
            (line.is_none(), line, &self.node(id).name)
        };
        let standings = self.fair_share(a).cmp(&self.fair_share(b));
        standings.then_with(|| lines(a).cmp(&lines(b)))
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
    fn what_no_cross_product_holds_compares_exactly_too() {
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
    fn nothing_granted_is_an_infinite_share() {
        let infinite = Fraction { num: 1, den: 0 };
        let one = Fraction { num: 1, den: 1 };
        assert_eq!(infinite.compare(one), Ordering::Greater);
        assert_eq!(one.compare(infinite), Ordering::Less);
        assert_eq!(infinite.compare(infinite), Ordering::Equal);
        // Of nothing, too.
        let nothing = Fraction { num: 0, den: 0 };
        assert_eq!(nothing.compare(one), Ordering::Greater);
        assert_eq!(one.compare(nothing), Ordering::Less);
        assert_eq!(nothing.compare(infinite), Ordering::Equal);
    }
}
