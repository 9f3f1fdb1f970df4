//! The tree of queues as the rules state it: bounds, who is before whom. Everything is computed
//! anew from the stated values each time it is asked.

use crate::case::{Amounts, Bounds, Queue};
use crate::fraction::Fraction;
use std::cmp::Ordering;

/// The queues and what is charged to each, its children included.
pub struct Tree<'a> {
    pub queues: &'a [Queue],
    pub allocated: &'a [Amounts],
    /// What the usable nodes have together.
    pub fleet: Amounts,
}

impl Tree<'_> {
    pub fn children(&self, parent: Option<usize>) -> Vec<usize> {
        let all = 0..self.queues.len();
        all.filter(|at| self.queues[*at].parent == parent).collect()
    }

    /// From the queue up to the one directly below the root.
    pub fn path(&self, queue: usize) -> Vec<usize> {
        std::iter::successors(Some(queue), |at| self.queues[*at].parent).collect()
    }

    /// What the queue may have at most in a dimension; `None` where nothing bounds it.
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

    /// What everybody may have together in a dimension.
    pub fn root(&self, dim: usize) -> Option<i64> {
        let guaranteed = (0..self.queues.len()).any(|at| self.guarantee(at, dim) > 0);
        guaranteed.then_some(self.fleet[dim])
    }

    /// What a queue names or, where it names nothing, what those below it are guaranteed.
    fn guarantee(&self, queue: usize, dim: usize) -> i64 {
        let below = || {
            let children = self.children(Some(queue)).into_iter();
            children.map(|child| self.guarantee(child, dim)).sum()
        };
        self.queues[queue].guarantee[dim].unwrap_or_else(below)
    }

    /// The same of what is deserved; `None` where nobody names anything.
    fn claimed(&self, queue: usize, dim: usize) -> Option<i64> {
        let children = self.children(Some(queue)).into_iter();
        let below = children.filter_map(|child| self.claimed(child, dim));
        self.queues[queue].deserved[dim].or_else(|| below.reduce(|sum, part| sum + part))
    }

    /// What the queue gets back when it needs it, per dimension in which it claims anything: what
    /// it names, within what it may have, and no less than it is guaranteed.
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

    /// How much of its deserved share the queue has: the most over the dimensions it names.
    /// `None` where it deserves nothing, as things are.
    pub fn share(&self, queue: usize) -> Option<Fraction> {
        let deserved = self.deserved(queue);
        if deserved.iter().flatten().all(|deserved| *deserved == 0) {
            return None;
        }
        let dims = deserved.into_iter().zip(self.allocated[queue]);
        let shares = dims.filter_map(|(deserved, has)| Some(Fraction::new(has, deserved?)));
        shares.max()
    }

    /// What the queue has above its deserved share: the most over all dimensions, as a part of
    /// what it may have, by its weight.
    pub fn borrowed(&self, queue: usize) -> Fraction {
        let stated = &self.queues[queue];
        let deserved = self.deserved(queue);
        let parts = (0..self.fleet.len()).map(|dim| {
            let above = (self.allocated[queue][dim] - deserved[dim].unwrap_or(0)).max(0);
            let of = stated.capability[dim].unwrap_or(self.fleet[dim]);
            Fraction::new(above, of * i64::from(stated.weight))
        });
        parts.max().unwrap()
    }

    /// Which of two siblings goes first, as far as the queues themselves decide it: priority,
    /// then those below their deserved share by how far, then the others by what they borrowed,
    /// then those that deserve something.
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
