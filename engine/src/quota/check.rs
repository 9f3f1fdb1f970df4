//! The quota gate: may this much more be charged to a queue and all above it?
//!
//! The bound is the real capability of each account on the path (`accounts.rs`): what is neither
//! named nor guaranteed to a sibling is unbounded, an explicit zero is none, and a job that
//! requests nothing of a resource is never stopped by it. An account that may have as much as the
//! one above it is not checked: the one above is.
//!
//! What is charged below an account, and what is guaranteed there and idle (`idle.rs`), is together
//! no more than its bound either: queues that borrow leave each other's guarantees alone, all of
//! them together too. A charge that takes up no more than is guaranteed on its own way down is not
//! stopped by that, nor by what is withheld for jobs further ahead.

use crate::amounts::resource_ids::{ResourceId, ResourceVec};
use crate::api::charge::Pools;
use crate::overlay::Overlay;
use crate::quota::accounts::Account;
use crate::quota::idle::{IdleGuarantee, IdleGuarantees};
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::scopes::{OVERALL, ScopeId};
use crate::quota::shortfall::{Shortfall, ShortfallDetail};
use crate::quota::store::Quota;
use facts::{PoolClass, QueueName, ResourceName, Resources};
use std::borrow::Cow;

/// Amounts of resources, as few as a charge has.
type Amounts<'a> = Cow<'a, [(ResourceId, i128)]>;

impl Quota {
    /// Checks whether `charge` may be added, as far as the overall accounts go.
    ///
    /// # Errors
    /// The bound that would be exceeded: one that can never be met before one that is met later,
    /// else the one nearest to the queue.
    pub(crate) fn check_total(
        &self,
        queue: &QueueName,
        charge: &Resources,
        overlay: &Overlay,
    ) -> Result<(), Shortfall> {
        let charge: Vec<(ResourceId, i128)> = self.resource_ids.known(charge).collect();
        let charge = |_| Cow::Borrowed(charge.as_slice());
        self.check(queue, overlay, &charge, |node| &node.accounts[..1])
    }

    /// Checks whether `charge` may be added, as far as the accounts over some of the pools go.
    ///
    /// # Errors
    /// As [`Self::check_total`].
    pub(crate) fn check_pools(
        &self,
        queue: &QueueName,
        charge: &Pools,
        overlay: &Overlay,
    ) -> Result<(), Shortfall> {
        let charge = |scope| Cow::Owned(self.within(scope, charge).iter().collect());
        self.check(queue, overlay, &charge, |node| &node.accounts[1..])
    }

    /// Checks whether a charge may be added, with or without its pools known.
    ///
    /// # Errors
    /// As [`Self::check_total`].
    pub(crate) fn check_charge(
        &self,
        queue: &QueueName,
        total: &Resources,
        pools: Option<&Pools>,
        overlay: &Overlay,
    ) -> Result<(), Shortfall> {
        self.check_total(queue, total, overlay)?;
        pools.map_or(Ok(()), |pools| self.check_pools(queue, pools, overlay))
    }

    fn check<'c>(
        &self,
        queue: &QueueName,
        overlay: &Overlay,
        charge: &dyn Fn(ScopeId) -> Amounts<'c>,
        accounts: fn(&QueueNode) -> &[(ScopeId, Account)],
    ) -> Result<(), Shortfall> {
        let Some(id) = self.id(queue) else {
            return Ok(());
        };
        let mut found: Option<Shortfall> = None;
        let mut idle = IdleGuarantees::new(self, id, overlay);
        for (level, (_, node)) in self.upwards(id).enumerate() {
            for (scope, account) in accounts(node).iter().filter(|(_, a)| a.stops()) {
                for (resource, needs) in charge(*scope).iter().copied() {
                    let idle = idle.at(level, (*scope, resource), needs);
                    let needs = (resource, needs);
                    let short = self.short(node, (*scope, account), needs, overlay, idle);
                    Shortfall::keep_worse(&mut found, short);
                }
            }
        }
        match found {
            Some(short) => Err(short),
            // What is withheld for a job may be less at one queue than below it, where it waits for the
            // ends of others. Idle guarantees are left alone as if nothing were withheld, too.
            None if overlay.only_withholds() => {
                self.check(queue, &Overlay::default(), charge, accounts)
            }
            None => Ok(()),
        }
    }

    /// Returns what an overlay adds to the usage at a queue.
    pub(super) fn assumed_at(
        &self,
        overlay: &Overlay,
        node: &QueueNode,
        (scope, resource): (ScopeId, ResourceId),
    ) -> i128 {
        let name = self.resource_ids.name(resource);
        if scope == OVERALL {
            return overlay.overall_at(&node.name, name);
        }
        let scope = self.scopes.get(scope);
        overlay.in_pools_at(&node.name, name, |(cluster, class)| {
            scope.pools.counts(cluster, class)
        })
    }

    /// How much may still be charged within a bound of a queue beyond what is guaranteed below it,
    /// as far as that bound alone goes; of a class that is bounded more than once, within the
    /// loosest.
    pub(crate) fn headroom(
        &self,
        queue: &QueueName,
        class: Option<&PoolClass>,
        resource: &ResourceName,
    ) -> i128 {
        let Some(node) = self.get(queue) else {
            return i128::MAX;
        };
        let of_class = |scope: &ScopeId| self.scopes.get(*scope).pools.class.as_ref() == class;
        let accounts = node.accounts.iter().filter(|(scope, _)| of_class(scope));
        let resource = self.resource_ids.find(resource);
        let free = accounts.map(|(_, account)| {
            let bound = resource.and_then(|id| {
                let (bounds, idle) = (&account.bounds, account.idle_below.get(id));
                let real = bounds.real.get(id).filter(|_| idle > 0);
                let bound = bounds.effective.get(id).or(real)?;
                Some(bound - account.charged.get(id) - idle)
            });
            bound.unwrap_or(i128::MAX)
        });
        free.max().unwrap_or(i128::MAX)
    }

    /// By how much a charge would exceed the bound that was short, with an overlay;
    /// never below zero.
    pub(crate) fn still_short(
        &self,
        queue: &QueueName,
        short: &Shortfall,
        overlay: &Overlay,
    ) -> i128 {
        let still = || {
            let (id, resource) = self
                .id(queue)
                .zip(self.resource_ids.find(&short.resource))?;
            let scope = self.scope_of(short)?;
            let mut up = self.upwards(id).enumerate();
            let (level, (_, node)) = up.find(|(_, (_, node))| node.name == short.queue)?;
            let idle = &mut IdleGuarantees::new(self, id, overlay);
            let idle = idle.at(level, (scope, resource), short.needs);
            let at = (scope, node.account(scope)?);
            self.short(node, at, (resource, short.needs), overlay, idle)
        };
        still().map_or(0, |short| short.excess())
    }

    /// The queues from that of a request up to the one below the queue that is short, which are guaranteed any
    /// of what is short: when one of them is charged less, more of the request may be guaranteed. While a queue
    /// uses all that it is guaranteed, its guarantee covers nothing of the request.
    pub(crate) fn guaranteed_below(&self, queue: &QueueName, short: &Shortfall) -> Vec<QueueName> {
        let known = self.id(queue).zip(self.resource_ids.find(&short.resource));
        let Some(((id, resource), scope)) = known.zip(self.scope_of(short)) else {
            return Vec::new();
        };
        let below = self
            .upwards(id)
            .take_while(|(_, node)| node.name != short.queue);
        let guaranteed = below.filter(|(_, node)| {
            let account = node.account(scope);
            account.is_some_and(|account| account.contributed.guarantee.get(resource) > 0)
        });
        guaranteed.map(|(_, node)| node.name.clone()).collect()
    }

    /// Returns true if anything is guaranteed to a queue or to one above it, the root left out.
    pub(crate) fn is_guaranteed_any(&self, queue: &QueueName) -> bool {
        let guaranteed = |account: &Account| {
            let mut amounts = account.contributed.guarantee.iter();
            amounts.any(|(_, amount)| amount > 0)
        };
        let path = self.id(queue).into_iter().flat_map(|id| self.upwards(id));
        let mut path = path.filter(|(id, _)| *id != QueueId::ROOT);
        path.any(|(_, node)| node.accounts.iter().any(|(_, account)| guaranteed(account)))
    }

    /// How much of what a queue is guaranteed over everything it does not use; negative if it uses more.
    pub(crate) fn unused_guarantee(&self, queue: &QueueName, resource: &ResourceName) -> i128 {
        let found = self.get(queue).zip(self.resource_ids.find(resource));
        let unused = found.and_then(|(node, id)| {
            let account = node.account(OVERALL)?;
            Some(account.contributed.guarantee.get(id) - account.charged.get(id))
        });
        unused.unwrap_or_default()
    }

    /// The bound nearest to the queue that what is charged exceeds already, in a resource of
    /// `charge`, in words: it was lowered, or more was charged than was admitted.
    pub(crate) fn exceeded_bound(&self, queue: &QueueName, charge: &Pools) -> Option<String> {
        let up = self.upwards(self.id(queue)?);
        let mut accounts = up.flat_map(|(_, node)| {
            let accounts = node.accounts.iter();
            accounts.map(move |(scope, account)| (node, *scope, account))
        });
        accounts.find_map(|(node, scope, account)| {
            let of_charge = self.within(scope, charge);
            let (resource, capability) = of_charge.iter().find_map(|(resource, _)| {
                let bound = account.bounds.effective.get(resource)?;
                (account.charged.get(resource) > bound).then_some((resource, bound))
            })?;
            let amounts = (capability, account.charged.get(resource), 0);
            let at = (scope, resource);
            let short = self.shortfall(node, at, amounts, ShortfallDetail::default());
            Some(short.exceeded())
        })
    }

    /// The scope of the account whose bound is short.
    pub(super) fn scope_of(&self, short: &Shortfall) -> Option<ScopeId> {
        self.scopes.find(&short.detail.pools)
    }

    /// Returns what of `charge` a scope counts.
    pub(super) fn within(&self, scope: ScopeId, charge: &Pools) -> ResourceVec {
        let counted = &self.scopes.get(scope).pools;
        let mut sums = ResourceVec::default();
        let pools = charge.iter();
        for (_, resources) in pools.filter(|((cluster, class), _)| counted.counts(cluster, class)) {
            for (resource, amount) in self.resource_ids.known(resources) {
                sums.add(resource, amount);
            }
        }
        sums
    }

    /// How one account would be exceeded, if it would be.
    pub(super) fn short(
        &self,
        node: &QueueNode,
        (scope, account): (ScopeId, &Account),
        (resource, needs): (ResourceId, i128),
        overlay: &Overlay,
        IdleGuarantee { idle, beyond }: IdleGuarantee,
    ) -> Option<Shortfall> {
        if needs == 0 {
            return None;
        }
        let charged = if overlay.is_of_empty_fleet() {
            0
        } else {
            account.charged.get(resource)
        };
        let withheld = self.assumed_at(overlay, node, (scope, resource));
        // What is guaranteed on the way down is there for the request, and for no job ahead.
        let (withheld, idle) = if beyond > 0 {
            (withheld, idle)
        } else {
            (withheld.min(0), 0)
        };
        let all = needs + charged + withheld;
        let effective = account.bounds.effective.get(resource);
        let capability = effective.filter(|bound| all > *bound).or_else(|| {
            let real = account.bounds.real.get(resource);
            real.filter(|real| all <= *real && all + idle > *real)
        })?;
        let above = node
            .parent
            .and_then(|parent| self.node(parent).account(scope));
        let above = above.and_then(|above| above.bounds.real.get(resource));
        let own = account.named.capability.get(resource);
        let without = [above, own].into_iter().flatten().min();
        let detail = ShortfallDetail {
            withheld,
            guaranteed: without.map_or(0, |without| without - capability),
            idle,
            beyond,
            ..ShortfallDetail::default()
        };
        let amounts = (capability, charged, needs);
        Some(self.shortfall(node, (scope, resource), amounts, detail))
    }

    /// A bound of `node` over a scope, and what there is to it, by name.
    fn shortfall(
        &self,
        node: &QueueNode,
        (scope, resource): (ScopeId, ResourceId),
        (capability, charged, needs): (i128, i128, i128),
        detail: ShortfallDetail,
    ) -> Shortfall {
        let scope = self.scopes.get(scope);
        Shortfall {
            queue: node.name.clone(),
            resource: self.resource_ids.name(resource).clone(),
            capability,
            charged,
            needs,
            detail: Box::new(ShortfallDetail {
                pools: scope.pools.clone(),
                ..detail
            }),
        }
    }
}

impl Account {
    /// True if it may stop anything.
    fn stops(&self) -> bool {
        !self.bounds.effective.is_empty() || !self.idle_below.is_empty()
    }
}
