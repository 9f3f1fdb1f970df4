//! Evicting between queues: who is entitled to, from whom, and what must stay.
//!
//! Volcano's reclaim, exactly where it is exact, and closed where it let queues pull at each
//! other for ever (its issue 4947). A queue is *entitled* for a job if, for at least one
//! resource that the job asks for in an account with a deserved amount, what it holds and the
//! job together stay within that amount, and within the real capability everywhere. It may take
//! from another queue what that one holds above its own deserved amount, of that resource.
//! Both are asked on the level of the tree where the two queues' paths part: of the two
//! siblings there, each with all that is below it. Never taken is a job whose own queue could in
//! turn take it back from the preemptor (on another resource).
//!
//! Nothing is taken from a queue that holds no more than it is guaranteed. From one that holds more
//! a job may be taken though less than guaranteed is left: the rest stays kept for the queue
//! (`idle.rs`), so that the preemptor gets only what is beyond. One guaranteed device would else
//! protect a gang of any size (as it does in Volcano).
//!
//! A [`UsageOverlay`] is the tree with some charges moved in thought: victims gone, preemptors come. It
//! holds the differences only, and changes nothing.

use crate::amounts::resources::{ResourceName, Resources};
use crate::api::ids::{ClusterName, PoolClass, QueueName};
use crate::preemption::backoff::EntitlementGap;
use crate::quota::check::{Short, Withheld};
use crate::quota::measure::{ResourceId, Sums};
use crate::quota::queues::{Pools, QueueId, QueueNode, Queues};
use crate::quota::scopes::{OVERALL, ScopeId};
use std::collections::{BTreeMap, BTreeSet};

/// What entitles a queue to evict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entitlement {
    /// The queue whose account it is: the request's, or one above it.
    pub(crate) queue: QueueName,
    /// The class of the account; `None` for the one over everything.
    pub(crate) class: Option<PoolClass>,
    /// The clusters that the account counts; `None` for all.
    pub(crate) clusters: Option<BTreeSet<ClusterName>>,
    /// The resource.
    pub(crate) resource: ResourceName,
    /// Deserved of it.
    pub(crate) deserved: i128,
    /// Held of it, the job included.
    pub(crate) holding: i128,
}

impl Entitlement {
    fn by_name(&self) -> impl Ord + '_ {
        (&self.class, &self.clusters, &self.resource)
    }
}

/// Why a victim may not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotPreemptible {
    /// It is in the preemptor's own queue, or in one above or below it.
    SameQueue,
    /// Its queue's object says so (`reclaimable: false`), or one above up to where paths part.
    NotReclaimable,
    /// It holds nothing of what entitles the preemptor that its queue holds beyond its due.
    WithinDeserved,
    /// Its queue, or one above it up to where paths part, holds no more of that than it is
    /// guaranteed.
    Guaranteed,
    /// Its queue could take it back from the preemptor.
    WouldReturn,
}

/// Charges moved in thought.
#[derive(Debug, Clone)]
pub(crate) struct UsageOverlay<'a> {
    queues: &'a Queues,
    moved: BTreeMap<(QueueId, ScopeId), Sums>,
    /// The same by name, for the quota gate.
    kept: Withheld,
}

/// One resource in one account.
type At = (ScopeId, ResourceId);

impl QueueNode {
    /// Whether it deserves anything of some of the pools only.
    fn deserves_in_pools(&self) -> bool {
        let mut accounts = self.accounts.iter();
        accounts.any(|(scope, account)| {
            *scope != OVERALL && account.bounds.deserved.iter().next().is_some()
        })
    }
}

impl Queues {
    /// Whether a queue, or one above it below the root, deserves anything.
    pub(crate) fn deserves(&self, queue: &QueueName) -> bool {
        let Some(id) = self.id(queue) else {
            return false;
        };
        let mut below_root = self.upwards(id).filter(|(_, node)| node.parent.is_some());
        below_root.any(|(_, node)| {
            let mut accounts = node.accounts.iter();
            accounts.any(|(_, account)| account.bounds.deserved.iter().next().is_some())
        })
    }

    /// What each queue on the path would have to be due of what a job asks for, to be entitled.
    pub(crate) fn gaps_for(&self, queue: &QueueName, total: &Resources) -> Vec<EntitlementGap> {
        let id = self.id(queue);
        let up = id.into_iter().flat_map(|id| self.upwards(id));
        let below_root = up.filter(|(_, node)| node.parent.is_some());
        let mut gaps = Vec::new();
        for (_, node) in below_root {
            let deserved = &node.overall().bounds.deserved;
            for (resource, amount) in total.iter().filter(|(_, amount)| amount.0 > 0) {
                let known = self.units.find(resource);
                let known = known.filter(|id| self.units.competes(*id));
                if known.is_some_and(|id| deserved.get(id).is_some()) {
                    gaps.push(EntitlementGap {
                        queue: node.name.clone(),
                        resource: resource.clone(),
                        amount: amount.0,
                    });
                }
            }
        }
        gaps
    }

    /// What a queue deserves of a resource over everything and does not hold.
    pub(crate) fn due(&self, queue: &QueueName, resource: &ResourceName) -> i128 {
        let node = self.get(queue).map(QueueNode::overall);
        let due = node
            .zip(self.units.find(resource))
            .and_then(|(account, id)| {
                let deserved = account.bounds.deserved.get(id)?;
                Some(deserved - account.charged.get(id))
            });
        due.unwrap_or(i128::MIN)
    }

    /// Nothing moved yet.
    pub(crate) fn shift(&self) -> UsageOverlay<'_> {
        UsageOverlay {
            queues: self,
            moved: BTreeMap::new(),
            kept: Withheld {
                supposes: true,
                ..Withheld::default()
            },
        }
    }
}

impl UsageOverlay<'_> {
    /// Takes a charge away from a queue and all above it.
    pub(crate) fn take(&mut self, queue: &QueueName, charge: &Pools) {
        self.book(queue, charge, -1);
    }

    /// Adds a charge to a queue and all above it; undoes [`Self::take`].
    pub(crate) fn give(&mut self, queue: &QueueName, charge: &Pools) {
        self.book(queue, charge, 1);
    }

    /// What entitles a queue to evict for a job: on its own level, or on one above it.
    /// Without `pools` only the accounts over everything are asked. `None` also where the job
    /// would pass a real capability.
    pub(crate) fn entitled(
        &self,
        queue: &QueueName,
        total: &Resources,
        pools: Option<&Pools>,
    ) -> Option<Entitlement> {
        let id = self.queues.id(queue)?;
        if self.check(queue, total, pools).is_err() {
            return None;
        }
        let up = self.queues.upwards(id);
        let mut below_root = up.filter(|(_, node)| node.parent.is_some());
        below_root.find_map(|(id, node)| {
            let entitling = self.entitling(id, total, pools).into_iter();
            let all = entitling.map(|at| self.entitlement(id, node, at, total, pools));
            all.min_by(|a, b| a.by_name().cmp(&b.by_name()))
        })
    }

    /// Whether a queue may be entitled for a job, its pools not known yet.
    pub(crate) fn could_be_entitled(&self, queue: &QueueName, total: &Resources) -> bool {
        let Some(id) = self.queues.id(queue) else {
            return false;
        };
        let mut below_root = self
            .queues
            .upwards(id)
            .filter(|(_, node)| node.parent.is_some());
        below_root.any(|(id, node)| {
            node.deserves_in_pools() || !self.entitling(id, total, None).is_empty()
        })
    }

    /// Whether a queue may hold something that another could take for a job, its pools not
    /// known yet.
    pub(crate) fn could_owe(
        &self,
        preemptor: &QueueName,
        total: &Resources,
        giver: &QueueName,
    ) -> bool {
        let ids = (self.queues.id(preemptor), self.queues.id(giver));
        let (Some(preemptor), Some(giver)) = ids else {
            return false;
        };
        let Some((preemptor, giver)) = self.queues.parting(preemptor, giver) else {
            return false;
        };
        let mut entitling = self.entitling(preemptor, total, None).into_iter();
        self.queues.node(preemptor).deserves_in_pools()
            || entitling
                .any(|at| self.held_in(giver, at) > self.deserved(giver, at).unwrap_or_default())
    }

    /// Whether a victim may be taken from its queue for a job of another, `total` and `pools`
    /// being what that job would be charged. Victims taken before are in the shift; the job is
    /// not.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_take(
        &self,
        preemptor: &QueueName,
        (total, pools): (&Resources, Option<&Pools>),
        giver: &QueueName,
        victim: &Pools,
    ) -> Result<(), NotPreemptible> {
        let (Some(preemptor), Some(pending_queue)) =
            (self.queues.id(preemptor), self.queues.id(giver))
        else {
            return Err(NotPreemptible::SameQueue);
        };
        let Some((preemptor, giver)) = self.queues.parting(preemptor, pending_queue) else {
            return Err(NotPreemptible::SameQueue);
        };
        let levels: Vec<(QueueId, &QueueNode)> = self
            .queues
            .upwards(pending_queue)
            .take_while(|(id, _)| Some(*id) != self.queues.node(giver).parent)
            .collect();
        let reclaimable = |node: &QueueNode| node.fact.as_ref().is_none_or(|fact| fact.reclaimable);
        if !levels.iter().all(|(_, node)| reclaimable(node)) {
            return Err(NotPreemptible::NotReclaimable);
        }
        let entitling = self.entitling(preemptor, total, pools).into_iter();
        let mut owed = entitling
            .filter(|at| self.owes(giver, *at, victim))
            .peekable();
        if owed.peek().is_none() {
            return Err(NotPreemptible::WithinDeserved);
        }
        let beyond = |(_, resource): At| {
            let mut levels = levels.iter();
            levels.all(|(id, _)| self.exceeds_guarantees(*id, resource, victim))
        };
        if !owed.any(beyond) {
            return Err(NotPreemptible::Guaranteed);
        }
        if self.would_return(preemptor, (total, pools), giver, victim, true) {
            return Err(NotPreemptible::WouldReturn);
        }
        Ok(())
    }

    /// Whether, all victims gone and the job there, one of them could be evicted from the
    /// job's queue again. To be asked of each victim when the set is complete (all of them
    /// taken in the shift).
    pub(crate) fn returns(
        &self,
        preemptor: &QueueName,
        (total, pools): (&Resources, Option<&Pools>),
        giver: &QueueName,
        victim: &Pools,
    ) -> bool {
        let ids = (self.queues.id(preemptor), self.queues.id(giver));
        let (Some(preemptor), Some(giver)) = ids else {
            return false;
        };
        let parting = self.queues.parting(preemptor, giver);
        parting.is_some_and(|(preemptor, giver)| {
            self.would_return(preemptor, (total, pools), giver, victim, false)
        })
    }

    fn book(&mut self, queue: &QueueName, charge: &Pools, sign: i64) {
        let queues = self.queues;
        let Some(id) = queues.id(queue) else {
            return;
        };
        for (id, node) in queues.upwards(id) {
            for (scope, _) in &node.accounts {
                let within = queues.within(*scope, charge);
                let moved = self.moved.entry((id, *scope)).or_default();
                moved.add_all(&within, i128::from(sign));
            }
            let headroom = self.kept.headroom.entry(node.name.clone()).or_default();
            let pools = self.kept.pools.entry(node.name.clone()).or_default();
            for (pool, resources) in charge {
                headroom.add(resources, sign);
                pools.entry(pool.clone()).or_default().add(resources, sign);
            }
        }
    }

    fn check(
        &self,
        queue: &QueueName,
        total: &Resources,
        pools: Option<&Pools>,
    ) -> Result<(), Short> {
        self.queues.check_total(queue, total, &self.kept)?;
        pools.map_or(Ok(()), |pools| {
            self.queues.check_pools(queue, pools, &self.kept)
        })
    }

    fn holding(&self, id: QueueId, (scope, resource): At) -> i128 {
        let account = self.queues.node(id).account(scope);
        let charged = account.map_or(0, |account| account.charged.get(resource));
        let moved = self.moved.get(&(id, scope));
        charged + moved.map_or(0, |moved| moved.get(resource))
    }

    /// What a queue deserves; `None` for nothing.
    fn deserved(&self, id: QueueId, (scope, resource): At) -> Option<i128> {
        let account = self.queues.node(id).account(scope)?;
        account.bounds.deserved.get(resource)
    }

    /// What a job asks for in each account of a queue, pod slots aside.
    fn asked(&self, id: QueueId, total: &Resources, pools: Option<&Pools>) -> Vec<(At, i128)> {
        let mut asked = Vec::new();
        for (scope, _) in &self.queues.node(id).accounts {
            if *scope == OVERALL {
                let known = self.queues.units.known(total);
                asked.extend(known.map(|(resource, amount)| ((*scope, resource), amount)));
            } else if let Some(pools) = pools {
                let within = self.queues.within(*scope, pools);
                asked.extend(within.iter().map(|(id, amount)| ((*scope, id), amount)));
            }
        }
        asked.retain(|((_, id), amount)| *amount > 0 && self.queues.units.competes(*id));
        asked
    }

    /// Where a queue would hold no more than it deserves with the job.
    fn entitling(&self, id: QueueId, total: &Resources, pools: Option<&Pools>) -> Vec<At> {
        let asked = self.asked(id, total, pools).into_iter();
        let within = asked.filter(|(at, amount)| {
            let deserved = self.deserved(id, *at);
            deserved.is_some_and(|deserved| self.holding(id, *at) + amount <= deserved)
        });
        within.map(|(at, _)| at).collect()
    }

    fn entitlement(
        &self,
        id: QueueId,
        node: &QueueNode,
        at: At,
        total: &Resources,
        pools: Option<&Pools>,
    ) -> Entitlement {
        let asked = self.asked(id, total, pools).into_iter();
        let amount: i128 = asked
            .filter(|(of, _)| *of == at)
            .map(|(_, amount)| amount)
            .sum();
        let scope = self.queues.scopes.get(at.0);
        Entitlement {
            queue: node.name.clone(),
            class: scope.class.clone(),
            clusters: scope.clusters.clone(),
            resource: self.queues.units.name(at.1).clone(),
            deserved: self.deserved(id, at).unwrap_or_default(),
            holding: self.holding(id, at) + amount,
        }
    }

    /// Whether a queue holds more than it deserves of something that the victim holds.
    fn owes(&self, giver: QueueId, at: At, victim: &Pools) -> bool {
        let holds = self.queues.within(at.0, victim).get(at.1) > 0;
        holds && self.held_in(giver, at) > self.deserved(giver, at).unwrap_or_default()
    }

    /// What a queue holds in a scope, also where it has no account for it.
    fn held_in(&self, id: QueueId, (scope, resource): At) -> i128 {
        if self.queues.node(id).account(scope).is_some() {
            return self.holding(id, (scope, resource));
        }
        let mut held = 0;
        for below in self.queues.subtree(id) {
            for (pool, sums) in &self.queues.node(below).own.pools {
                if self
                    .queues
                    .scopes
                    .of_pool(*pool)
                    .binary_search(&scope)
                    .is_ok()
                {
                    held += sums.get(resource);
                }
            }
        }
        let kept = self.kept.pools.get(&self.queues.node(id).name);
        let scope = self.queues.scopes.get(scope);
        let moved = kept
            .into_iter()
            .flatten()
            .filter(|(pool, _)| scope.counts(pool));
        let name = self.queues.units.name(resource);
        held + moved.map(|(_, tally)| tally.get(name)).sum::<i128>()
    }

    /// Whether a queue holds more of a resource than it is guaranteed, wherever the victim counts.
    /// One that does may be left with less by what is taken, for the rest stays kept for it.
    fn exceeds_guarantees(&self, id: QueueId, resource: ResourceId, victim: &Pools) -> bool {
        let accounts = self.queues.node(id).accounts.iter();
        let mut guaranteed = accounts.filter(|(scope, account)| {
            let guarantee = account.bounds.guarantee.get(resource);
            guarantee > 0 && self.queues.within(*scope, victim).get(resource) > 0
        });
        guaranteed.all(|(scope, account)| {
            let guarantee = account.bounds.guarantee.get(resource);
            self.holding(id, (*scope, resource)) > guarantee
        })
    }

    /// Whether the victim's queue, without it, would be entitled to take it back, and the
    /// preemptor's would hold more than it deserves of what entitles it.
    fn would_return(
        &self,
        preemptor: QueueId,
        (total, pools): (&Resources, Option<&Pools>),
        giver: QueueId,
        victim: &Pools,
        victim_is_there: bool,
    ) -> bool {
        let accounts = self.queues.node(giver).accounts.iter();
        let taken = self.asked(preemptor, total, pools);
        accounts.into_iter().any(|(scope, account)| {
            let victim = self.queues.within(*scope, victim);
            let deserved = account.bounds.deserved.iter();
            let mut deserved = deserved.filter(|(id, _)| self.queues.units.competes(*id));
            deserved.any(|(resource, deserved)| {
                let at = (*scope, resource);
                let amount = victim.get(resource);
                let there = if victim_is_there { 0 } else { amount };
                let entitled = amount > 0 && self.holding(giver, at) + there <= deserved;
                let takes = taken.iter().filter(|(of, _)| *of == at);
                let takes: i128 = takes.map(|(_, amount)| *amount).sum();
                let holds = self.held_in(preemptor, at) + takes;
                let due = self.deserved(preemptor, at).unwrap_or_default();
                entitled && takes > 0 && holds > due
            })
        })
    }
}

#[cfg(test)]
mod tests;
