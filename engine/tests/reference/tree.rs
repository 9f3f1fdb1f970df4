//! The tree of queues by the documented rules: bounds and order. Everything is computed from the
//! stated values each time.

use crate::case::{Amounts, Bounds, GPU, Queue};
use crate::fraction::Fraction;
use std::cmp::Ordering;

/// The queues, and the charge of each with its children.
pub struct Tree<'a> {
    pub queues: &'a [Queue],
    pub allocated: &'a [Amounts],
    /// The GPUs of the class `gpu` among that.
    pub of_class: &'a [i64],
    /// The total of the usable nodes.
    pub fleet: Amounts,
}

impl Tree<'_> {
    pub fn children(&self, parent: Option<usize>) -> Vec<usize> {
        let all = 0..self.queues.len();
        all.filter(|at| self.queues[*at].parent == parent).collect()
    }

    /// The queues from this one up to the one directly below the root.
    pub fn path(&self, queue: usize) -> Vec<usize> {
        std::iter::successors(Some(queue), |at| self.queues[*at].parent).collect()
    }

    /// Returns what the queue may have at most in a dimension; `None` where nothing bounds it.
    ///
    /// The root may have the fleet, which counts only where something is guaranteed. Below it,
    /// what all siblings are guaranteed is kept back, as far as there is so much, and the own
    /// guarantee added, as far as there is so much.
    pub fn real(&self, queue: usize, dim: usize) -> Option<i64> {
        let stated = &self.queues[queue];
        let above = match stated.parent {
            Some(parent) => self.real(parent, dim),
            None => self.root(dim),
        };
        let siblings = self.children(stated.parent).into_iter();
        let kept: i64 = siblings.map(|at| self.guarantee(at, dim)).sum();
        let left = match (above, kept) {
            (Some(above), 1..) => {
                Some(((above - kept).max(0) + self.guarantee(queue, dim)).min(above))
            }
            (above, _) => above,
        };
        match (stated.capability[dim], left) {
            (Some(own), Some(left)) => Some(own.min(left)),
            (own, left) => own.or(left),
        }
    }

    /// The most of a dimension that all queues may use together.
    pub fn root(&self, dim: usize) -> Option<i64> {
        let guaranteed = (0..self.queues.len()).any(|at| self.guarantee(at, dim) > 0);
        guaranteed.then_some(self.fleet[dim])
    }

    /// The idle guarantee of a queue, or of the queues below it.
    fn idle(&self, queue: usize, dim: usize, allocated: &[Amounts]) -> i64 {
        let children = self.children(Some(queue)).into_iter();
        let below: i64 = children.map(|at| self.idle(at, dim, allocated)).sum();
        let own = self.guarantee(queue, dim) - allocated[queue][dim];
        own.max(below).max(0)
    }

    /// The charge of a queue and the idle guarantees of its children; `None` for the root.
    fn committed(&self, queue: Option<usize>, dim: usize, allocated: &[Amounts]) -> i64 {
        let children = self.children(queue);
        let held = match queue {
            Some(queue) => allocated[queue][dim],
            None => children.iter().map(|at| allocated[*at][dim]).sum(),
        };
        let idle = children.iter().map(|at| self.idle(*at, dim, allocated));
        held + idle.sum::<i64>()
    }

    /// Returns true if a queue may be charged this much more: the bounds of it, of every queue above it and
    /// of the root hold; and charge and idle guarantees of others together are within the bound,
    /// too, unless the request stays within guarantees.
    pub fn fits_quota(&self, queue: usize, asked: Amounts, allocated: &[Amounts]) -> bool {
        let path = self.path(queue);
        let mut after = allocated.to_vec();
        for at in &path {
            after[*at] = crate::room::plus(after[*at], asked, 1);
        }
        let levels = path.into_iter().map(Some).chain([None]);
        let levels: Vec<Option<usize>> = levels.collect();
        let passes = |at: &Option<usize>, dim: usize| {
            let bound = match *at {
                Some(queue) => self.real(queue, dim),
                None => self.root(dim),
            };
            let held = match *at {
                Some(queue) => after[queue][dim],
                None => self.children(None).iter().map(|at| after[*at][dim]).sum(),
            };
            let before = self.committed(*at, dim, allocated);
            let now = self.committed(*at, dim, &after);
            bound.is_none_or(|bound| held <= bound && (now <= bound || now == before))
        };
        let resource_ids = (0..asked.len()).filter(|dim| asked[*dim] > 0);
        resource_ids
            .into_iter()
            .all(|dim| levels.iter().all(|at| passes(at, dim)))
    }

    /// The guarantee that a queue names or, if it names none, those of the queues below it.
    pub fn guarantee(&self, queue: usize, dim: usize) -> i64 {
        let below = || {
            let children = self.children(Some(queue)).into_iter();
            children.map(|child| self.guarantee(child, dim)).sum()
        };
        self.queues[queue].guarantee[dim].unwrap_or_else(below)
    }

    /// The same for deserved amounts; `None` if no queue names any.
    fn claimed(&self, queue: usize, dim: usize) -> Option<i64> {
        let children = self.children(Some(queue)).into_iter();
        let below = children.filter_map(|child| self.claimed(child, dim));
        self.queues[queue].deserved[dim].or_else(|| below.reduce(|sum, part| sum + part))
    }

    /// The amounts that the queue can reclaim, in the dimensions in which it has a quota: what it
    /// names, within its real capability, and at least its guarantee.
    pub fn deserved(&self, queue: usize) -> Bounds {
        std::array::from_fn(|dim| {
            let guarantee = self.guarantee(queue, dim);
            let claimed = self
                .claimed(queue, dim)
                .or(Some(guarantee).filter(|kept| *kept > 0))?;
            let within = self
                .real(queue, dim)
                .map_or(claimed, |real| claimed.min(real));
            Some(within.max(guarantee))
        })
    }

    /// Returns what the queue names as deserved of the class `gpu`; if it names nothing, what those below it do
    /// together.
    fn claimed_of_class(&self, queue: usize) -> Option<i64> {
        let children = self.children(Some(queue)).into_iter();
        let below = children.filter_map(|child| self.claimed_of_class(child));
        self.queues[queue]
            .deserved_of_class
            .or_else(|| below.reduce(|sum, part| sum + part))
    }

    /// The same, within the bounds of its path on the class.
    pub fn deserved_of_class(&self, queue: usize) -> Option<i64> {
        let bounds = self
            .path(queue)
            .into_iter()
            .filter_map(|at| self.queues[at].of_class);
        let most = bounds.min().unwrap_or(i64::MAX);
        self.claimed_of_class(queue)
            .map(|claimed| claimed.min(most))
    }

    /// The usage of a dimension up to which nothing is borrowed: what is deserved of it in all, or what is used of what
    /// is deserved of the class, if that is more.
    pub fn not_borrowed(&self, queue: usize, dim: usize) -> i64 {
        let deserved = self.deserved(queue)[dim].unwrap_or(0);
        let of_class = self.deserved_of_class(queue).filter(|_| dim == GPU);
        deserved.max(of_class.unwrap_or(0).min(self.of_class[queue]))
    }

    /// The part of its deserved amount that the queue uses: the largest over the dimensions and the
    /// class that it names. `None` if it deserves nothing now.
    pub fn share(&self, queue: usize) -> Option<Fraction> {
        let deserved = self.deserved(queue).into_iter();
        let of_class = self.deserved_of_class(queue);
        let deserved: Vec<_> = deserved.chain([of_class]).collect();
        if deserved.iter().flatten().all(|deserved| *deserved == 0) {
            return None;
        }
        let has = self.allocated[queue]
            .into_iter()
            .chain([self.of_class[queue]]);
        let resource_ids = deserved.into_iter().zip(has);
        let shares = resource_ids.filter_map(|(deserved, has)| Some(Fraction::new(has, deserved?)));
        shares.max()
    }

    /// The usage of the queue above its deserved amount, as a part of its capability, divided by
    /// its weight: the largest over the dimensions in which it or a sibling names a deserved
    /// amount; over all, if none of them does.
    pub fn borrowed(&self, queue: usize) -> Fraction {
        let above = std::array::from_fn(|dim| {
            (self.allocated[queue][dim] - self.not_borrowed(queue, dim)).max(0)
        });
        self.part(queue, above, i64::from(self.queues[queue].weight))
    }

    /// The largest part of the capability of a queue, or of the fleet, that a usage is, divided by a weight.
    pub fn part(&self, queue: usize, usage: Amounts, weight: i64) -> Fraction {
        let stated = &self.queues[queue];
        let shared = |dim: &usize| {
            let names = |at: usize| {
                self.claimed(at, *dim).is_some()
                    || self.guarantee(at, *dim) > 0
                    || (*dim == GPU && self.claimed_of_class(at).is_some())
            };
            self.children(stated.parent).into_iter().any(names)
        };
        let all = 0..self.fleet.len();
        let any = all.clone().any(|dim| shared(&dim));
        let parts = all.filter(|dim| !any || shared(dim)).map(|dim| {
            let of = stated.capability[dim].unwrap_or(self.fleet[dim]);
            Fraction::new(usage[dim], of * weight)
        });
        parts.max().unwrap()
    }

    /// The order of two siblings, as far as the queues decide: priority, then those below their
    /// deserved amounts by the part they use, then the others by what they borrow, then those that
    /// deserve something.
    pub fn order(&self, a: usize, b: usize) -> Ordering {
        let (qa, qb) = (&self.queues[a], &self.queues[b]);
        let one = Fraction::whole(1);
        let below = |queue| self.share(queue).filter(|share| *share < one);
        let by_share = match (below(a), below(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.borrowed(a).cmp(&self.borrowed(b)),
        };
        qb.priority
            .cmp(&qa.priority)
            .then(by_share)
            .then(self.share(a).is_none().cmp(&self.share(b).is_none()))
    }
}
