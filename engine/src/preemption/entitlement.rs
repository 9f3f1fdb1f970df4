//! Reclaim between queues: which queue is entitled to it, from which, and what must stay.
//!
//! Volcano's reclaim, exactly where it is exact, and closed where it let queues pull at each
//! other for ever (its issue 4947). A queue is *entitled* for a job if, for at least one
//! resource that the job requests in an account with a deserved amount, its usage and the job
//! together stay within that amount, and within the real capability everywhere.
//!
//! It may reclaim a victim of another queue if, in this order,
//! 1. neither queue is above the other; the two siblings where their paths diverge are compared,
//!    each with all that is below it;
//! 2. the victim's queue, and all above it up to that sibling, are reclaimable;
//! 3. the sibling uses more than it deserves of a resource that entitles and that the victim has;
//! 4. the victim's queue, and all above it up to that sibling, use more of that resource than they
//!    are guaranteed, even where they are invalid;
//! 5. the sibling could not in turn reclaim the victim (on another resource).
//!
//! A queue that uses more than it is guaranteed may be left with less: the rest stays withheld for
//! it (`quota/idle.rs`), so that the preemptor gets only what is beyond. One guaranteed device
//! would else protect a gang of any size (as it does in Volcano).

use crate::amounts::totals::clamp;
use crate::api::charge::Pools;
use crate::overlay::Overlay;
use crate::pending::inadmissible::QueueNeed;
use crate::quota::{QueueId, Quota, ScopedResource};
use facts::{QueueName, Resources};

/// Why a victim may not be reclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotPreemptible {
    /// It is in the preemptor's own queue, or in one above or below it.
    SameQueue,
    /// Its queue's object says so (`reclaimable: false`), or one above, up to where paths diverge.
    NotReclaimable,
    /// It has nothing of what entitles the preemptor and its queue uses beyond its deserved amount.
    WithinDeserved,
    /// Its queue, or one above it, up to where paths diverge, uses no more of that than it is
    /// guaranteed.
    Guaranteed,
    /// Its queue could reclaim it from the preemptor.
    WouldThrash,
}

/// A job that would reclaim, and the usage without what is terminating and with what is nominated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reclaim<'a> {
    pub(crate) quota: &'a Quota,
    pub(crate) usage: &'a Overlay,
    pub(crate) queue: &'a QueueName,
    /// What the job would be charged.
    pub(crate) total: &'a Resources,
    /// The same by pool, once it is planned. Without it only the accounts over everything entitle.
    pub(crate) pools: Option<&'a Pools>,
}

impl<'a> Reclaim<'a> {
    /// The account by which the queue is entitled: its own, or one of a queue above it. `None` also
    /// if the job would exceed a real capability.
    pub(crate) fn entitlement(&self) -> Option<(QueueId, ScopedResource)> {
        let (queue, total) = (self.queue, self.total);
        let within = self
            .quota
            .check_charge(queue, total, self.pools, self.usage);
        within.ok()?;
        let mut up = self.quota.below_root(self.queue);
        up.find_map(|id| Some((id, *self.entitling(id).first()?)))
    }

    /// True if the queue may be entitled once the pools of the job are known.
    pub(crate) fn could_be_entitled(&self) -> bool {
        let mut up = self.quota.below_root(self.queue);
        up.any(|id| self.quota.deserves_in_pools(id) || !self.entitling(id).is_empty())
    }

    /// True if a queue may have something that can be reclaimed once the pools of the job are
    /// known.
    pub(crate) fn could_reclaim_from(&self, victims: &QueueName) -> bool {
        let Some((own, other)) = self.siblings(victims) else {
            return false;
        };
        let mut entitling = self.entitling(own).into_iter();
        self.quota.deserves_in_pools(own) || entitling.any(|of| self.over_deserved(other, of))
    }

    /// Checks whether a victim may be reclaimed from its queue. Victims chosen before are gone from the
    /// usage; the job is not in it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_victim(
        &self,
        queue: &QueueName,
        victim: &Pools,
    ) -> Result<(), NotPreemptible> {
        let siblings = self.siblings(queue).zip(self.quota.id(queue));
        let Some(((own, other), id)) = siblings else {
            return Err(NotPreemptible::SameQueue);
        };
        let levels: Vec<QueueId> = self.quota.up_to(id, other).collect();
        if !levels.iter().all(|id| self.quota.is_reclaimable(*id)) {
            return Err(NotPreemptible::NotReclaimable);
        }
        let over = |of: &ScopedResource| {
            self.quota.part_of(victim, *of) > 0 && self.over_deserved(other, *of)
        };
        let over: Vec<ScopedResource> = self.entitling(own).into_iter().filter(over).collect();
        if over.is_empty() {
            return Err(NotPreemptible::WithinDeserved);
        }
        let beyond = |of: &ScopedResource| {
            let mut levels = levels.iter();
            levels.all(|id| self.quota.exceeds_guarantees(self.usage, *id, *of, victim))
        };
        if !over.iter().any(beyond) {
            return Err(NotPreemptible::Guaranteed);
        }
        if self.thrashes(own, other, victim, true) {
            return Err(NotPreemptible::WouldThrash);
        }
        Ok(())
    }

    /// True if, all victims gone and the job there, this victim could be reclaimed from the job's
    /// queue again. To be checked for each victim when the set is complete.
    pub(crate) fn would_thrash(&self, queue: &QueueName, victim: &Pools) -> bool {
        let siblings = self.siblings(queue);
        siblings.is_some_and(|(own, other)| self.thrashes(own, other, victim, false))
    }

    /// The queue of the job and the one of a victim, or those above them, where paths diverge.
    fn siblings(&self, victims: &QueueName) -> Option<(QueueId, QueueId)> {
        let (own, other) = self.quota.id(self.queue).zip(self.quota.id(victims))?;
        self.quota.lca_children(own, other)
    }

    /// Where a queue would use no more than it deserves with the job.
    fn entitling(&self, id: QueueId) -> Vec<ScopedResource> {
        let requested = self.quota.requested(id, self.total, self.pools);
        let within = requested.into_iter().filter(|(of, amount)| {
            let deserved = self.quota.deserved_of(id, *of);
            deserved.is_some_and(|deserved| self.usage_of(id, *of) + amount <= deserved)
        });
        within.map(|(of, _)| of).collect()
    }

    fn usage_of(&self, id: QueueId, of: ScopedResource) -> i128 {
        self.quota.usage_with(self.usage, id, of)
    }

    /// True if a queue uses more than it deserves.
    fn over_deserved(&self, id: QueueId, of: ScopedResource) -> bool {
        let deserved = self.quota.deserved_of(id, of);
        self.usage_of(id, of) > deserved.unwrap_or_default()
    }

    /// True if the victim's queue, without it, would be entitled to reclaim it, and the job's would
    /// use more than it deserves of what entitles it.
    fn thrashes(
        &self,
        own: QueueId,
        other: QueueId,
        victim: &Pools,
        victim_is_there: bool,
    ) -> bool {
        let requested = self.quota.requested(own, self.total, self.pools);
        let mut parts = self.quota.deserved_parts(other, victim);
        parts.any(|(of, amount)| {
            let there = if victim_is_there { 0 } else { amount };
            let deserved = self.quota.deserved_of(other, of).unwrap_or_default();
            let entitled = amount > 0 && self.usage_of(other, of) + there <= deserved;
            let takes = requested.iter().filter(|(at, _)| *at == of);
            let takes: i128 = takes.map(|(_, amount)| *amount).sum();
            let due = self.quota.deserved_of(own, of).unwrap_or_default();
            entitled && takes > 0 && self.usage_of(own, of) + takes > due
        })
    }
}

/// True if a queue, or one above it below the root, deserves anything.
pub(crate) fn deserves(quota: &Quota, queue: &QueueName) -> bool {
    quota.below_root(queue).any(|id| quota.deserves_any(id))
}

/// Returns what each queue on the path would have to deserve and not use of what a job requests, for the
/// job to be entitled.
pub(crate) fn entitlement_gaps(
    quota: &Quota,
    queue: &QueueName,
    total: &Resources,
) -> Vec<QueueNeed> {
    let gaps_of = |id| {
        let requested = quota.requested(id, total, None).into_iter();
        let deserved = requested.filter(move |(of, _)| quota.deserved_of(id, *of).is_some());
        deserved.map(move |(of, amount)| QueueNeed {
            queue: quota.name(id).clone(),
            class: None,
            resource: quota.resource_of(of).clone(),
            needs: clamp(amount).0.into(),
        })
    };
    quota.below_root(queue).flat_map(gaps_of).collect()
}

#[cfg(test)]
mod tests;
