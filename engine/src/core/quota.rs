//! The quota gate: may this much more be charged to a queue and all above it?
//!
//! The bound is the real capability of each account on the path (`accounts.rs`): what is
//! neither named nor guaranteed to a sibling is unbounded, an explicit zero is none, and a job
//! that asks for nothing of a resource is never stopped by it. An account that may have as much
//! as the one above it is not asked: the one above is.

use super::accounts::Account;
use super::measure::{ResourceId, Sums};
use super::queues::{Pools, QueueNode, Queues};
use super::scopes::{OVERALL, ScopeId};
use crate::ids::{ClusterName, PoolClass, QueueName};
use crate::quantity::Amount;
use crate::resources::{ResourceName, Resources};
use crate::tally::{Tally, clamp};
use std::collections::{BTreeMap, BTreeSet};

/// What is kept for jobs further ahead.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    /// Headroom, by queue on the path of its holder.
    pub(crate) headroom: BTreeMap<QueueName, Tally>,
    /// The same by pool, where the holder's pools are planned.
    pub(crate) pools: BTreeMap<QueueName, BTreeMap<(ClusterName, PoolClass), Tally>>,
    /// Whether nothing counts as charged: what may be then may be some day.
    pub(crate) idle: bool,
    /// Whether less than nothing counts as nothing: what is leaving makes up for what is kept,
    /// but is charged until it has left.
    pub(crate) floored: bool,
}

impl Kept {
    fn counted(&self, kept: i128) -> i128 {
        if self.floored { kept.max(0) } else { kept }
    }

    /// Keeps what `other` keeps too.
    pub(crate) fn add(&mut self, other: &Self) {
        for (queue, tally) in &other.headroom {
            let kept = self.headroom.entry(queue.clone()).or_default();
            kept.add_tally(tally, 1);
        }
        for (queue, pools) in &other.pools {
            let kept = self.pools.entry(queue.clone()).or_default();
            for (pool, tally) in pools {
                kept.entry(pool.clone()).or_default().add_tally(tally, 1);
            }
        }
    }
}

/// A bound that a charge would pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Short {
    /// Whose bound.
    pub(crate) queue: QueueName,
    /// The class that it bounds; `None` for the queue's overall capability.
    pub(crate) class: Option<PoolClass>,
    /// The resource that is short.
    pub(crate) resource: ResourceName,
    pub(crate) capability: i128,
    pub(crate) charged: i128,
    pub(crate) needs: i128,
    pub(crate) detail: Box<Detail>,
}

/// What else there is to say of a bound that a charge would pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Detail {
    /// Kept for jobs further ahead.
    pub(crate) kept: i128,
    /// The clusters that it counts together; `None` for all.
    pub(crate) clusters: Option<BTreeSet<ClusterName>>,
    /// What it would allow more if nothing were guaranteed to others.
    pub(crate) guaranteed: i128,
}

impl Short {
    /// Whether it could not be even with nothing charged.
    pub(crate) fn never(&self) -> bool {
        self.needs > self.capability
    }

    /// Whether what is charged in a pool counts towards the bound.
    pub(crate) fn counts(&self, cluster: &ClusterName, class: &PoolClass) -> bool {
        let clusters = self.detail.clusters.as_ref();
        self.class.as_ref().is_none_or(|bounded| bounded == class)
            && clusters.is_none_or(|clusters| clusters.contains(cluster))
    }

    /// ` of class gpu in a, b`, or nothing.
    fn scope(&self) -> String {
        let Some(class) = &self.class else {
            return String::new();
        };
        let clusters = self.detail.clusters.iter().flatten();
        let clusters: Vec<&str> = clusters.map(ClusterName::as_str).collect();
        let among = if clusters.is_empty() { "" } else { " in " };
        format!(" of class {class}{among}{}", clusters.join(", "))
    }

    /// In words.
    pub(crate) fn message(&self) -> String {
        let text = |amount: i128| self.resource.format(clamp(amount));
        let guaranteed = if self.detail.guaranteed > 0 {
            format!(
                " ({} more is guaranteed to others)",
                text(self.detail.guaranteed)
            )
        } else {
            String::new()
        };
        let head = format!(
            "needs {} {}; queue {} may use {}{}{guaranteed}",
            self.resource,
            text(self.needs),
            self.queue,
            text(self.capability),
            self.scope(),
        );
        if self.never() {
            let until = if self.detail.guaranteed > 0 {
                "have while that stands"
            } else {
                "ever have"
            };
            return format!(
                "{head}: {} more than it may {until}",
                text(self.needs - self.capability)
            );
        }
        let kept = if self.detail.kept > 0 {
            format!(" and {} kept for a job ahead", text(self.detail.kept))
        } else {
            String::new()
        };
        let short = self.needs + self.charged + self.detail.kept - self.capability;
        format!(
            "{head} and has {} charged{kept}: short by {}",
            text(self.charged),
            text(short)
        )
    }

    /// What is free of the bound, for people.
    pub(crate) fn free(&self) -> Amount {
        clamp((self.capability - self.charged - self.detail.kept).max(0))
    }
}

impl Queues {
    /// Whether `charge` may be added, as far as the overall accounts go.
    ///
    /// # Errors
    /// The bound that would be passed: one that can never be met before one that is met later,
    /// else the one nearest to the queue.
    pub(crate) fn check_total(
        &self,
        queue: &QueueName,
        charge: &Resources,
        kept: &Kept,
    ) -> Result<(), Short> {
        let Some(id) = self.id(queue) else {
            return Ok(());
        };
        let asked: Vec<(ResourceId, i128)> = self.units.known(charge).collect();
        let mut found: Option<Short> = None;
        let idle = kept.idle;
        for (_, node) in self.upwards(id) {
            let account = node.overall();
            if account.bounds.binding.is_empty() {
                continue;
            }
            for (resource, needs) in asked.iter().copied() {
                let kept = || {
                    let here = kept.headroom.get(&node.name);
                    let here = here.map_or(0, |here| here.get(self.units.name(resource)));
                    kept.counted(here)
                };
                let short = self.short(node, (OVERALL, account), (resource, needs), idle, kept);
                worse(&mut found, short);
            }
        }
        found.map_or(Ok(()), Err)
    }

    /// Whether `charge` may be added, as far as the accounts over some of the pools go.
    ///
    /// # Errors
    /// As [`Self::check_total`].
    pub(crate) fn check_pools(
        &self,
        queue: &QueueName,
        charge: &Pools,
        kept: &Kept,
    ) -> Result<(), Short> {
        let Some(id) = self.id(queue) else {
            return Ok(());
        };
        let mut found: Option<Short> = None;
        let idle = kept.idle;
        for (_, node) in self.upwards(id) {
            for (scope, account) in node.accounts.iter().filter(|(scope, _)| *scope != OVERALL) {
                if account.bounds.binding.is_empty() {
                    continue;
                }
                for (resource, needs) in self.within(*scope, charge).iter() {
                    let kept = || {
                        let here = kept.pools.get(&node.name).into_iter().flatten();
                        let within = here.filter(|(pool, _)| self.scopes.get(*scope).counts(pool));
                        let name = self.units.name(resource);
                        kept.counted(within.map(|(_, here)| here.get(name)).sum())
                    };
                    let short = self.short(node, (*scope, account), (resource, needs), idle, kept);
                    worse(&mut found, short);
                }
            }
        }
        found.map_or(Ok(()), Err)
    }

    /// Whether some of the pools are bounded on the path of a queue.
    pub(crate) fn bounds_pools(&self, queue: &QueueName) -> bool {
        let Some(id) = self.id(queue) else {
            return false;
        };
        self.upwards(id)
            .any(|(_, node)| node.accounts.iter().any(|(scope, _)| *scope != OVERALL))
    }

    /// How much may still be charged of a bound of a queue, as far as it alone goes; of a
    /// class that is bounded more than once, of the loosest.
    pub(crate) fn headroom(
        &self,
        queue: &QueueName,
        class: Option<&PoolClass>,
        resource: &ResourceName,
    ) -> i128 {
        let Some(node) = self.id(queue).map(|id| self.node(id)) else {
            return i128::MAX;
        };
        let of_class = |scope: &ScopeId| self.scopes.get(*scope).class.as_ref() == class;
        let accounts = node.accounts.iter().filter(|(scope, _)| of_class(scope));
        let resource = self.units.find(resource);
        let free = accounts.map(|(_, account)| {
            let bound = resource.and_then(|id| Some((id, account.bounds.binding.get(id)?)));
            bound.map_or(i128::MAX, |(id, bound)| bound - account.charged.get(id))
        });
        free.max().unwrap_or(i128::MAX)
    }

    /// What of `charge` a scope counts.
    pub(super) fn within(&self, scope: ScopeId, charge: &Pools) -> Sums {
        let scope = self.scopes.get(scope);
        let mut sums = Sums::default();
        for (_, resources) in charge.iter().filter(|(pool, _)| scope.counts(pool)) {
            for (resource, amount) in self.units.known(resources) {
                sums.add(resource, amount);
            }
        }
        sums
    }

    /// How one account would be passed, if it would be.
    fn short(
        &self,
        node: &QueueNode,
        (scope, account): (ScopeId, &Account),
        (resource, needs): (ResourceId, i128),
        idle: bool,
        kept: impl FnOnce() -> i128,
    ) -> Option<Short> {
        let capability = account.bounds.binding.get(resource)?;
        let charged = if idle {
            0
        } else {
            account.charged.get(resource)
        };
        if needs == 0 {
            return None;
        }
        let kept = kept();
        if needs + charged + kept <= capability {
            return None;
        }
        let above = node
            .parent
            .and_then(|parent| self.node(parent).account(scope));
        let above = above.and_then(|above| above.bounds.real.get(resource));
        let own = account.named.capability.get(resource);
        let without = [above, own].into_iter().flatten().min();
        let scope = self.scopes.get(scope);
        Some(Short {
            queue: node.name.clone(),
            class: scope.class.clone(),
            resource: self.units.name(resource).clone(),
            capability,
            charged,
            needs,
            detail: Box::new(Detail {
                kept,
                clusters: scope.clusters.clone(),
                guaranteed: without.map_or(0, |without| without - capability),
            }),
        })
    }
}

/// Keeps the bound that binds: one that can never be met before one that is met later, else
/// the one nearest to the leaf, else the first by name.
fn worse(found: &mut Option<Short>, short: Option<Short>) {
    let Some(short) = short else { return };
    let worse = found.as_ref().is_none_or(|known| {
        let same = short.never() == known.never() && short.queue == known.queue;
        let by_name = |short: &Short| {
            let clusters = short.detail.clusters.clone();
            (short.class.clone(), clusters, short.resource.clone())
        };
        (short.never() && !known.never()) || (same && by_name(&short) < by_name(known))
    });
    if worse {
        *found = Some(short);
    }
}
