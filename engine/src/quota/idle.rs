//! Idle guarantees: what is withheld of an account for the queues below it.
//!
//! A queue may borrow up to its real capability; but two siblings, each within its own, could
//! together take what a third is guaranteed. So each account also knows how much of its guarantee
//! is not charged (its *idle guarantee*: of its own, or of those below it together, whichever is
//! more), and the sum over those directly below. What is charged and what is withheld that way is
//! together no more than the real capability (`check.rs`). A charge, or another guarantee, changes
//! one idle guarantee on each level: O(depth), however many siblings there are.
//!
//! A charge that only takes up what is guaranteed on its own way down changes nothing of that sum:
//! it is admitted even where guarantees together are more than there is.

use crate::amounts::resource_ids::{ResourceId, ResourceVec};
use crate::overlay::Overlay;
use crate::quota::accounts::Account;
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::scopes::ScopeId;
use crate::quota::store::Quota;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// What is withheld for guarantees at one queue, were a charge added to one below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct IdleGuarantee {
    /// The idle guarantees of those directly below, with the charge.
    pub(super) idle: i128,
    /// What of the charge is not guaranteed on its way down from here.
    pub(super) beyond: i128,
}

/// From the queue up to the root.
type Levels = SmallVec<[IdleGuarantee; 8]>;

/// The same for each resource of a charge to one queue, worked out once.
pub(super) struct IdleGuarantees<'a> {
    queues: &'a Quota,
    id: QueueId,
    overlay: &'a Overlay,
    /// True if anything is guaranteed to any queue.
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

    /// What is withheld at the queue `level` levels above, were `needs` of a resource added.
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
        // The idle guarantee of the queue on the way, without the charge and with it.
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

    /// By how much the overlay changes the idle guarantees below each queue.
    fn changes_by_overlay(&self, scope: ScopeId, resource: ResourceId) -> BTreeMap<QueueId, i128> {
        let mut changes = BTreeMap::new();
        let touched = self
            .overlay
            .queues()
            .filter_map(|name| self.queues.id(name));
        let path = |id| self.queues.path_of(id).into_iter().enumerate();
        let touched: BTreeSet<(usize, QueueId)> = touched.flat_map(path).collect();
        // Those furthest down first.
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
    /// What of its guarantee, or of those below it, would be idle if it were charged `more`, those
    /// below it having `below` idle. Nothing is withheld for a queue that claims nothing.
    fn idle_of(&self, account: &Account, resource: ResourceId, more: i128, below: i128) -> i128 {
        if self.is_inactive() {
            return 0;
        }
        let held = account.charged.get(resource) + more;
        let own = account.contributed.guarantee.get(resource) - held;
        own.max(below).max(0)
    }
}

impl Quota {
    /// True if anything of a resource is guaranteed to any queue.
    fn guarantees(&self, scope: ScopeId, resource: ResourceId) -> bool {
        let root = self.node(QueueId::ROOT).account(scope);
        root.is_some_and(|root| root.below.guarantee.get(resource) > 0)
    }

    /// The queues directly below one that have an idle guarantee, largest first, with how much.
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

    /// Updates the idle guarantees of a queue and all above it after a charge of these resources.
    pub(super) fn charge_idle(&mut self, id: QueueId, scope: ScopeId, charge: &ResourceVec) {
        let met = |account: &Account| {
            let sums = [
                &account.contributed.guarantee,
                &account.idle,
                &account.idle_below,
            ];
            if sums.iter().all(|sum| sum.is_empty()) {
                return SmallVec::new();
            }
            let charged = charge.iter().map(|(resource, _)| resource);
            let met = charged.filter(|id| sums.iter().any(|sum| sum.get(*id) != 0));
            met.collect()
        };
        self.update_idle_of(id, scope, met, false);
    }

    /// Updates the idle guarantees of a queue and all above it after any change.
    pub(super) fn update_idle(&mut self, id: QueueId, scope: ScopeId) {
        let all = |account: &Account| {
            let sums = [
                &account.contributed.guarantee,
                &account.idle,
                &account.idle_below,
            ];
            let ids = sums
                .into_iter()
                .flat_map(ResourceVec::iter)
                .map(|(id, _)| id);
            let mut ids: SmallVec<[ResourceId; 8]> = ids.collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        self.update_idle_of(id, scope, all, true);
    }

    /// The same in every scope.
    pub(super) fn update_idle_everywhere(&mut self, id: QueueId) {
        let root = self.node(QueueId::ROOT).accounts.iter();
        let scopes: Vec<ScopeId> = root.map(|(scope, _)| *scope).collect();
        for scope in scopes {
            self.update_idle(id, scope);
        }
    }

    /// Drops the idle guarantee of a queue that leaves its place.
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

    /// Updates the idle guarantees of the resources that `met` names, from a queue upwards. After a
    /// change of guarantees (`bounds`), jobs that one stopped may start though nothing was freed.
    fn update_idle_of(
        &mut self,
        id: QueueId,
        scope: ScopeId,
        met: impl Fn(&Account) -> SmallVec<[ResourceId; 8]>,
        bounds: bool,
    ) {
        let mut at = id;
        while let Some(parent) = self.node(at).parent {
            let node = self.node(at);
            let mut moved: SmallVec<[(ResourceId, i128); 8]> = SmallVec::new();
            if let Some(account) = node.account(scope) {
                for resource in met(account) {
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
                if bounds {
                    self.bounds_changed.insert(parent);
                }
            }
            at = parent;
        }
    }
}
