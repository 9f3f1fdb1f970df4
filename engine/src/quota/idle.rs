//! Idle guarantees: the part of an account that is withheld for the queues below it.
//!
//! A queue may borrow up to its real capability, but two siblings within theirs could together use
//! what is guaranteed to a third. Each account therefore has an *idle guarantee*: the uncharged
//! part of its guarantee, or the idle guarantees of its children together, if that is more. It
//! also has the sum over its children. Charge and idle guarantees together must stay within the
//! real capability (`check.rs`). A charge or a change of a guarantee updates one idle guarantee on
//! each level, in O(depth) for any number of siblings.
//!
//! A charge within the guarantees on its path does not change the sums. It is admitted even if the
//! guarantees together exceed the fleet.

use crate::amounts::resource_ids::{ResourceId, ResourceVec};
use crate::overlay::Overlay;
use crate::quota::accounts::Account;
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::scopes::ScopeId;
use crate::quota::store::Quota;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// The idle guarantees at one queue after a hypothetical charge to a queue below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct IdleGuarantee {
    /// The idle guarantees of its children together.
    pub(super) idle: i128,
    /// The part of the charge that exceeds the guarantees on the path below this queue.
    pub(super) beyond: i128,
}

/// From the queue up to the root.
type Levels = SmallVec<[IdleGuarantee; 8]>;

/// The idle guarantees for each resource of a hypothetical charge to one queue, computed once.
pub(super) struct IdleGuarantees<'a> {
    queues: &'a Quota,
    id: QueueId,
    overlay: &'a Overlay,
    /// True if any queue has a guarantee.
    any: bool,
    known: SmallVec<[(ScopeId, ResourceId, Levels); 4]>,
}

impl<'a> IdleGuarantees<'a> {
    pub(super) fn new(queues: &'a Quota, id: QueueId, overlay: &'a Overlay) -> Self {
        let mut accounts = queues.node(QueueId::ROOT).accounts.iter();
        Self {
            queues,
            id,
            overlay,
            any: !overlay.is_of_empty_fleet()
                && accounts.any(|(_, root)| !root.below.guarantee.is_empty()),
            known: SmallVec::new(),
        }
    }

    /// The idle guarantee at the queue `level` levels up, if `needs` of a resource were charged.
    pub(super) fn at(
        &mut self,
        level: usize,
        (scope, resource): (ScopeId, ResourceId),
        needs: i128,
    ) -> IdleGuarantee {
        let nothing = IdleGuarantee {
            idle: 0,
            beyond: needs,
        };
        if !self.any || !self.queues.guarantees(scope, resource) {
            return nothing;
        }
        let same =
            |(of, what, _): &&(ScopeId, ResourceId, Levels)| (*of, *what) == (scope, resource);
        let known = self.known.iter().find(same);
        let known = known.and_then(|(.., levels)| levels.get(level).copied());
        known.unwrap_or_else(|| {
            let levels = self.levels((scope, resource), needs);
            let found = levels.get(level).copied();
            self.known.push((scope, resource, levels));
            found.unwrap_or(nothing)
        })
    }

    fn levels(&self, (scope, resource): (ScopeId, ResourceId), needs: i128) -> Levels {
        let changes = self.changes_by_overlay(scope, resource);
        let mut levels = Levels::new();
        // The idle guarantee of the level below, without the charge and with it.
        let (mut without, mut with) = (0, 0);
        for (id, node) in self.queues.upwards(self.id) {
            let account = node.account(scope);
            let below = account.map_or(0, |account| account.idle_below.get(resource));
            let below = below + changes.get(&id).copied().unwrap_or_default();
            let idle = below - without + with;
            levels.push(IdleGuarantee {
                idle,
                beyond: needs - (without - with),
            });
            let more = self
                .queues
                .assumed_at(self.overlay, node, (scope, resource));
            let own = |more, below| {
                account.map_or(0, |account| node.idle_of(account, resource, more, below))
            };
            (without, with) = (own(more, below), own(more + needs, idle));
        }
        levels
    }

    /// The changes of the idle guarantees below each queue through what is withheld for
    /// reservations, or through charges that count as gone.
    fn changes_by_overlay(&self, scope: ScopeId, resource: ResourceId) -> BTreeMap<QueueId, i128> {
        let mut changes = BTreeMap::new();
        let touched = self
            .overlay
            .queues()
            .filter_map(|name| self.queues.id(name));
        let path = |id| self.queues.path_of(id).into_iter().enumerate();
        let touched: BTreeSet<(usize, QueueId)> = touched.flat_map(path).collect();
        // From the bottom up.
        for (_, id) in touched.into_iter().rev() {
            let node = self.queues.node(id);
            let (Some(parent), Some(account)) = (node.parent, node.account(scope)) else {
                continue;
            };
            let below = account.idle_below.get(resource);
            let below = below + changes.get(&id).copied().unwrap_or_default();
            let more = self
                .queues
                .assumed_at(self.overlay, node, (scope, resource));
            let idle = node.idle_of(account, resource, more, below);
            *changes.entry(parent).or_default() += idle - account.idle.get(resource);
        }
        changes
    }
}

impl QueueNode {
    /// Its idle guarantee if `more` were charged and the idle guarantees of its children were
    /// `below`. An inactive queue has none.
    fn idle_of(&self, account: &Account, resource: ResourceId, more: i128, below: i128) -> i128 {
        if self.is_inactive() {
            return 0;
        }
        let charged = account.charged.get(resource) + more;
        let own = account.contributed.guarantee.get(resource) - charged;
        own.max(below).max(0)
    }
}

impl Account {
    /// The resources in which it has a guarantee or an idle guarantee, or those of `charge`.
    fn guaranteed(&self, charge: Option<&ResourceVec>) -> SmallVec<[ResourceId; 8]> {
        let sums = [&self.contributed.guarantee, &self.idle, &self.idle_below];
        if let Some(charge) = charge {
            let charged = charge.iter().map(|(id, _)| id);
            return charged
                .filter(|id| sums.iter().any(|sum| sum.get(*id) != 0))
                .collect();
        }
        let ids = sums
            .into_iter()
            .flat_map(ResourceVec::iter)
            .map(|(id, _)| id);
        let mut ids: SmallVec<[ResourceId; 8]> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

impl Quota {
    /// True if any queue has a guarantee of a resource.
    pub(super) fn guarantees(&self, scope: ScopeId, resource: ResourceId) -> bool {
        let root = self.node(QueueId::ROOT).account(scope);
        root.is_some_and(|root| root.below.guarantee.get(resource) > 0)
    }

    /// The children of a queue that have an idle guarantee, with its amount, the largest first.
    pub(super) fn idle_below(
        &self,
        id: QueueId,
        scope: ScopeId,
        resource: ResourceId,
    ) -> Vec<(i128, &QueueNode)> {
        let below = self.node(id).children.iter().map(|id| self.node(*id));
        let idle = below.filter_map(|node| {
            let idle = node.account(scope)?.idle.get(resource);
            (idle > 0).then_some((idle, node))
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
        idle
    }

    /// Updates the idle guarantees of a queue and all above it after a change of guarantees.
    pub(super) fn update_idle(&mut self, id: QueueId, scope: ScopeId) {
        self.update_idle_after(id, scope, None);
    }

    /// Updates the idle guarantees of a queue and all above it in every scope, after a change of
    /// guarantees.
    pub(super) fn update_idle_everywhere(&mut self, id: QueueId) {
        let root = self.node(QueueId::ROOT).accounts.iter();
        let scopes: Vec<ScopeId> = root.map(|(scope, _)| *scope).collect();
        for scope in scopes {
            self.update_idle(id, scope);
        }
    }

    /// Drops the idle guarantee of a queue that leaves its parent.
    pub(super) fn drop_idle(&mut self, id: QueueId, parent: QueueId, scope: ScopeId) {
        let account = self.node_mut(id).account_mut(scope);
        let idle = account.map(|account| std::mem::take(&mut account.idle));
        let Some(idle) = idle.filter(|idle| !idle.is_empty()) else {
            return;
        };
        if let Some(above) = self.node_mut(parent).account_mut(scope) {
            above.idle_below.add_all(&idle, -1);
            self.bounds_changed.insert(parent);
        }
    }

    /// Updates the idle guarantees of a queue and all above it, after `charge` or, if that is
    /// `None`, after a change of guarantees. Then bounds have changed, and jobs that they blocked
    /// may start though nothing was freed.
    pub(super) fn update_idle_after(
        &mut self,
        id: QueueId,
        scope: ScopeId,
        charge: Option<&ResourceVec>,
    ) {
        let mut at = id;
        while let Some(parent) = self.node(at).parent {
            let node = self.node(at);
            let mut moved: SmallVec<[(ResourceId, i128); 8]> = SmallVec::new();
            if let Some(account) = node.account(scope) {
                for resource in account.guaranteed(charge) {
                    let below = account.idle_below.get(resource);
                    let idle = node.idle_of(account, resource, 0, below);
                    let by = idle - account.idle.get(resource);
                    if by != 0 {
                        moved.push((resource, by));
                    }
                }
            }
            for (resource, by) in moved {
                if let Some(account) = self.node_mut(at).account_mut(scope) {
                    account.idle.add(resource, by);
                }
                if let Some(above) = self.node_mut(parent).account_mut(scope) {
                    above.idle_below.add(resource, by);
                }
                if charge.is_none() {
                    self.bounds_changed.insert(parent);
                }
            }
            at = parent;
        }
    }
}
