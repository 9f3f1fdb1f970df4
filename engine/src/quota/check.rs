//! The quota gate: may this much more be charged to a queue and all above it?
//!
//! The bound is the real capability of each account on the path (`accounts.rs`): what is
//! neither named nor guaranteed to a sibling is unbounded, an explicit zero is none, and a job
//! that asks for nothing of a resource is never stopped by it. An account that may have as much
//! as the one above it is not asked: the one above is.
//!
//! What is charged below an account, and what is guaranteed there and idle (`idle.rs`), is together
//! no more than its bound either: queues that borrow leave each other's guarantees alone, all of
//! them together too. What takes up no more than is guaranteed on its own way is not stopped by
//! that, nor by what is kept for jobs further ahead.

use crate::amounts::quantity::Amount;
use crate::amounts::resources::{ResourceName, Resources};
use crate::amounts::tally::{Tally, clamp};
use crate::api::ids::{ClusterName, PoolClass, QueueName};
use crate::quota::accounts::Account;
use crate::quota::idle::{Promised, Promises};
use crate::quota::measure::{ResourceId, Sums};
use crate::quota::queues::{Pools, QueueNode, Queues};
use crate::quota::scopes::{OVERALL, ScopeId};
use std::collections::{BTreeMap, BTreeSet};

/// What is kept for jobs further ahead.
#[derive(Debug, Clone, Default)]
pub(crate) struct Withheld {
    /// Headroom, by queue on the path of its holder.
    pub(crate) headroom: BTreeMap<QueueName, Tally>,
    /// The same by pool, where the holder's pools are planned.
    pub(crate) pools: BTreeMap<QueueName, BTreeMap<(ClusterName, PoolClass), Tally>>,
    /// Whether nothing counts as charged: what may be then may be some day.
    pub(crate) idle: bool,
    /// Whether less than nothing counts as nothing: what is leaving makes up for what is kept,
    /// but is charged until it has left.
    pub(crate) floored: bool,
    /// Whether some of what is charged counts as gone, as far as not `floored`.
    pub(crate) supposes: bool,
}

impl Withheld {
    fn counted(&self, kept: i128) -> i128 {
        if self.floored { kept.max(0) } else { kept }
    }

    /// Whether what is charged is at least all that is charged. What is kept for a job may be less
    /// at one queue than below it, where it waits for the ends of others: so beside that, idle
    /// guarantees have to be left alone as if nothing were kept.
    fn is_real(&self) -> bool {
        let keeps = !self.headroom.is_empty() || !self.pools.is_empty();
        keeps && (!self.supposes || self.floored)
    }

    /// Keeps what `other` keeps too.
    pub(crate) fn add(&mut self, other: &Self) {
        self.supposes |= other.supposes;
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Detail {
    /// Kept for jobs further ahead.
    pub(crate) kept: i128,
    /// The clusters that it counts together; `None` for all.
    pub(crate) clusters: Option<BTreeSet<ClusterName>>,
    /// What it would allow more if nothing were guaranteed to others.
    pub(crate) guaranteed: i128,
    /// Guaranteed to queues below it that do not hold it, with the charge.
    pub(crate) idle: i128,
    /// What of the needs is not guaranteed on the way down to who asks.
    pub(crate) beyond: i128,
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
    pub(crate) fn scope(&self) -> String {
        let Some(class) = &self.class else {
            return String::new();
        };
        let clusters = self.detail.clusters.iter().flatten();
        let clusters: Vec<&str> = clusters.map(ClusterName::as_str).collect();
        let among = if clusters.is_empty() { "" } else { " in " };
        format!(" of class {class}{among}{}", clusters.join(", "))
    }

    /// How much more than the bound there would be.
    pub(crate) fn excess(&self) -> i128 {
        let Detail { kept, idle, .. } = *self.detail;
        self.needs + self.charged + kept + idle - self.capability
    }

    /// In words.
    pub(crate) fn message(&self, queues: &Queues) -> String {
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
        let mut beside = Vec::new();
        if self.detail.kept > 0 {
            beside.push(format!("{} kept for a job ahead", text(self.detail.kept)));
        }
        if self.detail.idle > 0 {
            let whose = queues.idle_by_name(self);
            beside.push(format!("{} kept for {whose}", text(self.detail.idle)));
        }
        let beside: String = beside.iter().map(|part| format!(" and {part}")).collect();
        format!(
            "{head} and has {} charged{beside}: short by {}",
            text(self.charged),
            text(self.excess())
        )
    }

    /// What is free of the bound, for people.
    pub(crate) fn free(&self) -> Amount {
        let Detail { kept, idle, .. } = *self.detail;
        clamp((self.capability - self.charged - kept - idle).max(0))
    }
}

impl Queues {
    /// `what queue g is guaranteed`, of the queues whose idle guarantees a bound keeps.
    fn idle_by_name(&self, short: &Short) -> String {
        const SHOWN: usize = 3;
        let at = self.id(&short.queue).zip(self.units.find(&short.resource));
        let idle = at.map(|(id, resource)| {
            let scope = self.scope_of(short);
            scope.map_or_else(Vec::new, |scope| self.idle_below(id, scope, resource))
        });
        let names = idle
            .into_iter()
            .flatten()
            .map(|(_, node)| node.name.to_string());
        let mut names: Vec<String> = names.collect();
        let more = names.len().saturating_sub(SHOWN);
        names.truncate(SHOWN);
        let one = names.len() + more == 1;
        let (what, are) = if one {
            ("queue", "is")
        } else {
            ("queues", "are")
        };
        let names = names.join(", ");
        match more {
            0 => format!("what {what} {names} {are} guaranteed"),
            more => format!("what {what} {names} and {more} more {are} guaranteed"),
        }
    }

    /// Whether `charge` may be added, as far as the overall accounts go.
    ///
    /// # Errors
    /// The bound that would be passed: one that can never be met before one that is met later,
    /// else the one nearest to the queue.
    pub(crate) fn check_total(
        &self,
        queue: &QueueName,
        charge: &Resources,
        kept: &Withheld,
    ) -> Result<(), Short> {
        let Some(id) = self.id(queue) else {
            return Ok(());
        };
        let asked: Vec<(ResourceId, i128)> = self.units.known(charge).collect();
        let mut found: Option<Short> = None;
        let mut promises = Promises::new(self, id, kept);
        for (level, (_, node)) in self.upwards(id).enumerate() {
            let account = node.overall();
            if !account.stops() {
                continue;
            }
            for (resource, needs) in asked.iter().copied() {
                let promised = promises.at(level, (OVERALL, resource), needs);
                let short = self.short(node, (OVERALL, account), (resource, needs), kept, promised);
                worse(&mut found, short);
            }
        }
        match found {
            Some(short) => Err(short),
            None if kept.is_real() => self.check_total(queue, charge, &Withheld::default()),
            None => Ok(()),
        }
    }

    /// Whether `charge` may be added, as far as the accounts over some of the pools go.
    ///
    /// # Errors
    /// As [`Self::check_total`].
    pub(crate) fn check_pools(
        &self,
        queue: &QueueName,
        charge: &Pools,
        kept: &Withheld,
    ) -> Result<(), Short> {
        let Some(id) = self.id(queue) else {
            return Ok(());
        };
        let mut found: Option<Short> = None;
        let mut promises = Promises::new(self, id, kept);
        for (level, (_, node)) in self.upwards(id).enumerate() {
            for (scope, account) in node.accounts.iter().filter(|(scope, _)| *scope != OVERALL) {
                if !account.stops() {
                    continue;
                }
                for (resource, needs) in self.within(*scope, charge).iter() {
                    let at = (*scope, resource);
                    let promised = promises.at(level, at, needs);
                    let short =
                        self.short(node, (*scope, account), (resource, needs), kept, promised);
                    worse(&mut found, short);
                }
            }
        }
        match found {
            Some(short) => Err(short),
            None if kept.is_real() => self.check_pools(queue, charge, &Withheld::default()),
            None => Ok(()),
        }
    }

    /// What is kept at a queue for jobs further ahead, or counts as gone.
    pub(crate) fn kept_in(
        &self,
        kept: &Withheld,
        node: &QueueNode,
        scope: ScopeId,
        resource: ResourceId,
    ) -> i128 {
        let name = self.units.name(resource);
        if scope == OVERALL {
            let here = kept.headroom.get(&node.name);
            return kept.counted(here.map_or(0, |here| here.get(name)));
        }
        let here = kept.pools.get(&node.name).into_iter().flatten();
        let within = here.filter(|(pool, _)| self.scopes.get(scope).counts(pool));
        kept.counted(within.map(|(_, here)| here.get(name)).sum())
    }

    /// Whether some of the pools are bounded on the path of a queue.
    pub(crate) fn bounds_pools(&self, queue: &QueueName) -> bool {
        let Some(id) = self.id(queue) else {
            return false;
        };
        self.upwards(id)
            .any(|(_, node)| node.accounts.iter().any(|(scope, _)| *scope != OVERALL))
    }

    /// How much may still be charged of a bound of a queue beyond what is guaranteed below it, as
    /// far as it alone goes; of a class that is bounded more than once, of the loosest.
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
            let bound = resource.and_then(|id| {
                let (bounds, idle) = (&account.bounds, account.idle_below.get(id));
                let real = bounds.real.get(id).filter(|_| idle > 0);
                let bound = bounds.binding.get(id).or(real)?;
                Some(bound - account.charged.get(id) - idle)
            });
            bound.unwrap_or(i128::MAX)
        });
        free.max().unwrap_or(i128::MAX)
    }

    /// How much a charge would be too much for the bound that was short, with what is kept or
    /// counts as gone now; nothing below zero.
    pub(crate) fn still_short(&self, queue: &QueueName, short: &Short, kept: &Withheld) -> i128 {
        let (Some(id), Some(resource)) = (self.id(queue), self.units.find(&short.resource)) else {
            return 0;
        };
        let Some(scope) = self.scope_of(short) else {
            return 0;
        };
        let mut up = self.upwards(id).enumerate();
        let found = up.find(|(_, (_, node))| node.name == short.queue);
        let here = found.and_then(|(level, (_, node))| {
            let promises = &mut Promises::new(self, id, kept);
            let promised = promises.at(level, (scope, resource), short.needs);
            let account = node.account(scope)?;
            self.short(
                node,
                (scope, account),
                (resource, short.needs),
                kept,
                promised,
            )
        });
        here.map_or(0, |short| short.excess())
    }

    /// The queue below the one that is short, on the way down to who asks, if it is guaranteed any
    /// of what is short: when it holds less, more of what is asked for is guaranteed.
    pub(crate) fn guaranteed_below(&self, queue: &QueueName, short: &Short) -> Option<QueueName> {
        let (id, resource) = (self.id(queue)?, self.units.find(&short.resource)?);
        let scope = self.scope_of(short)?;
        let above = |node: &QueueNode| node.parent.map(|parent| &self.node(parent).name);
        let mut up = self.upwards(id);
        let (_, below) = up.find(|(_, node)| above(node) == Some(&short.queue))?;
        let guaranteed = below.account(scope)?.claimed.guarantee.get(resource) > 0;
        guaranteed.then(|| below.name.clone())
    }

    fn scope_of(&self, short: &Short) -> Option<ScopeId> {
        short.class.as_ref().map_or(Some(OVERALL), |class| {
            let clusters = short.detail.clusters.as_ref();
            self.scopes.find_of(class, clusters)
        })
    }

    /// What of `charge` a scope counts.
    pub(crate) fn within(&self, scope: ScopeId, charge: &Pools) -> Sums {
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
        kept: &Withheld,
        Promised { idle, beyond }: Promised,
    ) -> Option<Short> {
        if needs == 0 {
            return None;
        }
        let charged = if kept.idle {
            0
        } else {
            account.charged.get(resource)
        };
        let kept = self.kept_in(kept, node, scope, resource);
        // What is guaranteed on the way down is there for who asks, and for no job ahead.
        let (kept, idle) = if beyond > 0 {
            (kept, idle)
        } else {
            (kept.min(0), 0)
        };
        let all = needs + charged + kept;
        let binding = account.bounds.binding.get(resource);
        let passed = binding.filter(|bound| all > *bound).or_else(|| {
            let real = account.bounds.real.get(resource);
            real.filter(|real| all <= *real && all + idle > *real)
        });
        let capability = passed?;
        let above = node
            .parent
            .and_then(|parent| self.node(parent).account(scope));
        let above = above.and_then(|above| above.bounds.real.get(resource));
        let own = account.named.capability.get(resource);
        let without = [above, own].into_iter().flatten().min();
        let detail = Detail {
            kept,
            guaranteed: without.map_or(0, |without| without - capability),
            idle,
            beyond,
            clusters: None,
        };
        Some(self.named(
            node,
            (scope, resource),
            (capability, charged, needs),
            detail,
        ))
    }

    /// A bound of `node` over a scope, and what there is to it, by name.
    pub(crate) fn named(
        &self,
        node: &QueueNode,
        (scope, resource): (ScopeId, ResourceId),
        (capability, charged, needs): (i128, i128, i128),
        detail: Detail,
    ) -> Short {
        let scope = self.scopes.get(scope);
        Short {
            queue: node.name.clone(),
            class: scope.class.clone(),
            resource: self.units.name(resource).clone(),
            capability,
            charged,
            needs,
            detail: Box::new(Detail {
                clusters: scope.clusters.clone(),
                ..detail
            }),
        }
    }
}

impl Account {
    /// Whether it may stop anything.
    fn stops(&self) -> bool {
        !self.bounds.binding.is_empty() || !self.idle_below.is_empty()
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
