//! The search for the cheapest victims with which a job really starts.
//!
//! The functions that place jobs say whether it fits with the victims gone, so that nothing is evicted
//! that does not help. From all candidates, and from those of each cluster that looks cheapest, victims
//! are taken in order until the job fits. Those that turn out needless are put back in reverse order
//! (Kueue's fill back), then single victims are swapped for cheaper candidates. If there are few
//! candidates, all sets are tried. Victims of other queues must be valid (`entitlement.rs`) one by one and
//! together. Nothing here changes anything.

use crate::amounts::bisect::boundary;
use crate::amounts::hashed::Hashed;
use crate::api::charge::{Pools, pools_of};
use crate::capacity::leading;
use crate::overlay::Overlay;
use crate::placement::plan;
use crate::placement::request::Request;
use crate::preemption::candidates::Candidates;
use crate::preemption::chain::Chain;
use crate::preemption::entitlement::Reclaim;
use crate::preemption::victims::Item;
use crate::state::Inputs;
use facts::{ClusterName, Reason, ResourceName, Share};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// Most clusters that are searched one by one.
const CLUSTERS: usize = 8;

/// Most candidates of which all sets are tried.
pub(crate) const EXACT: usize = 14;

/// Most placements that are tried to improve a set.
const TRIES: u32 = 400;

/// The largest sets of which is kept where the job goes without them.
const KNOWN: usize = 64;

/// A set of candidates, by their places.
pub(crate) type VictimSet = BTreeSet<usize>;

/// A search for victims.
pub(crate) struct Search<'a> {
    pub(crate) inputs: Inputs<'a>,
    pub(crate) request: Request<'a>,
    /// The candidates, in order.
    pub(super) items: &'a [Item<'a>],
    /// True if some are left out.
    is_partial: bool,
    /// The leading resource of the job.
    leads: Option<&'a ResourceName>,
    /// Capacity and usage as they will be without any of the candidates gone.
    pub(super) overlay: &'a Overlay,
    /// True if the job must be entitled to reclaim from other queues.
    reclaims: bool,
    tries: Cell<u32>,
    /// True if the search came to candidates that are left out.
    misses: Cell<bool>,
    /// Where the job goes without small sets that were tried. The first of a cluster are often the first of all.
    known: RefCell<Hashed<VictimSet, Option<Vec<Share>>>>,
}

/// What a set costs: the work that is lost, whole jobs, candidates.
type VictimCost = (i128, usize, usize);

/// A set with its price, and where the job goes then.
type Found = (VictimCost, VictimSet, Vec<Share>);

impl<'a> Search<'a> {
    pub(crate) fn new(
        inputs: Inputs<'a>,
        request: Request<'a>,
        candidates: &'a Candidates<'a>,
        overlay: &'a Overlay,
        reclaims: bool,
    ) -> Self {
        Self {
            inputs,
            request,
            items: &candidates.items,
            is_partial: candidates.is_partial,
            leads: leading(&request.shape.total),
            overlay,
            reclaims,
            // That nobody is evicted was tried before.
            tries: Cell::new(1),
            misses: Cell::new(false),
            known: RefCell::default(),
        }
    }

    /// The cheapest set that was found, with where the job goes then. `None` also if some candidates are left out and
    /// the set may be another one with them.
    pub(crate) fn cheapest(&self) -> Option<(VictimSet, Vec<Share>)> {
        self.cheapest_listed().filter(|_| !self.misses.get())
    }

    fn cheapest_listed(&self) -> Option<(VictimSet, Vec<Share>)> {
        let all: Vec<usize> = (0..self.items.len()).collect();
        let reclaims = self.reclaims && all.iter().any(|index| self.is_reclaimed(*index));
        let without_all = || self.fits(&all.iter().copied().collect());
        // Only what may be reclaimed from other queues depends on where the job would go, and only by bounds on
        // pools. To free thousands of candidates for nothing else is most of a search.
        let by_pools = reclaims && self.inputs.quota.bounds_pools(self.request.queue);
        // Whether that is enough depends on all candidates: none may be left out.
        debug_assert!(!(by_pools && self.is_partial));
        let pools = if by_pools {
            pools_of(&without_all()?)
        } else {
            Pools::new()
        };
        let mut best = None;
        let found = self.try_order(all.clone(), true, &pools, &mut best);
        if self.misses.get() {
            return None;
        }
        if !found && (!reclaims || (!by_pools && without_all().is_none())) {
            return None;
        }
        self.try_by_size(&all, &pools, &mut best);
        if self.may_be_cheaper(&all, best.as_ref()) {
            for group in self.by_cluster(&all) {
                if self.may_be_cheaper(&group, best.as_ref()) {
                    self.try_order(group.clone(), true, &pools, &mut best);
                    self.try_by_size(&group, &pools, &mut best);
                }
            }
        }
        self.note_missing(self.is_partial && self.items.len() <= EXACT);
        if self.items.len() <= EXACT && !self.misses.get() {
            self.exact(0, &VictimSet::new(), &mut best);
        }
        best.map(|(_, chosen, shares)| (chosen, shares))
    }

    /// True if a set from a group, in order, may cost less than the best that was found: each costs at least
    /// as much as the first of the group.
    fn may_be_cheaper(&self, group: &[usize], best: Option<&Found>) -> bool {
        let least = group.first().map(|index| self.price_alone(*index));
        best.is_none_or(|best| least.is_some_and(|least| least < best.0))
    }

    /// Looks for a cheaper set in the order of size, largest first, if not all have the same size.
    fn try_by_size(&self, group: &[usize], pools: &Pools, best: &mut Option<Found>) {
        if self.may_be_cheaper(group, best.as_ref())
            && let Some(by_size) = self.by_size(group)
        {
            self.try_order(by_size, false, pools, best);
        }
    }

    /// Notes whether candidates that are left out would be looked at now.
    pub(super) fn note_missing(&self, missing: bool) {
        self.misses.set(self.misses.get() || missing);
    }

    /// Looks for a cheaper set in this order, which is that of the candidates if it `is_forward`, else that of their
    /// size. True if all of it would do.
    fn try_order(
        &self,
        order: Vec<usize>,
        is_forward: bool,
        pools: &Pools,
        best: &mut Option<Found>,
    ) -> bool {
        if self.misses.get() {
            return false;
        }
        let mut chain = Chain::new(self, order, is_forward, pools);
        let Some(found) = self.shortest(&mut chain) else {
            return false;
        };
        let found = self.filled_back(found, &chain.taken);
        let found = self.swapped(found);
        let shares = self.fits(&found);
        let shares = shares.filter(|shares| self.is_valid(&found, shares));
        let price = self.price(&found);
        let better = best.as_ref().is_none_or(|best| price < best.0);
        if let Some(shares) = shares.filter(|_| better) {
            *best = Some((price, found, shares));
        }
        true
    }

    /// Where the job goes with `chosen` gone, if it fits.
    pub(crate) fn fits(&self, chosen: &VictimSet) -> Option<Vec<Share>> {
        self.tries.set(self.tries.get().saturating_add(1));
        if chosen.len() > KNOWN {
            return self.placed_without(chosen);
        }
        if let Some(known) = self.known.borrow().get(chosen) {
            return known.clone();
        }
        let found = self.placed_without(chosen);
        let mut known = self.known.borrow_mut();
        known.insert(chosen.clone(), found.clone());
        found
    }

    fn placed_without(&self, chosen: &VictimSet) -> Option<Vec<Share>> {
        let (inputs, request) = (self.inputs, self.request);
        let mut overlay = self.overlay.clone();
        for item in chosen.iter().filter_map(|index| self.items.get(*index)) {
            inputs
                .quota
                .assume(&mut overlay, item.queue, item.charge(), -1);
            overlay.free(&item.nodes(&inputs.capacity));
        }
        let total = &request.shape.total;
        let headroom = inputs.quota.check_total(request.queue, total, &overlay);
        headroom.ok()?;
        plan::plan(inputs, request.gang(), &overlay).ok()
    }

    /// True if a set may be evicted for the job, placed as `shares` say: each victim of another queue may be
    /// reclaimed, smallest first, and none could reclaim in turn.
    pub(crate) fn is_valid(&self, chosen: &VictimSet, shares: &[Share]) -> bool {
        let pools = pools_of(shares);
        let mut order: Vec<usize> = chosen.iter().copied().collect();
        order.sort_by_cached_key(|index| (self.is_reclaimed(*index), self.size(*index), *index));
        let mut usage = self.overlay.usage_only();
        for index in &order {
            let item = &self.items[*index];
            if self.is_reclaimed(*index) {
                let reclaim = self.reclaim(&usage, &pools);
                if reclaim.check_victim(item.queue, item.charge()).is_err() {
                    return false;
                }
            }
            let quota = &self.inputs.quota;
            quota.assume(&mut usage, item.queue, item.charge(), -1);
        }
        let reclaim = self.reclaim(&usage, &pools);
        if self.reclaims && reclaim.entitlement().is_none() {
            return false;
        }
        let thrashes = |index: &usize| {
            let item = &self.items[*index];
            self.is_reclaimed(*index) && reclaim.would_thrash(item.queue, item.again())
        };
        !order.iter().any(thrashes)
    }

    /// The job that reclaims, if it were placed in these pools.
    pub(super) fn reclaim<'b>(&'b self, usage: &'b Overlay, pools: &'b Pools) -> Reclaim<'b> {
        Reclaim {
            quota: &self.inputs.quota,
            usage,
            queue: self.request.queue,
            total: &self.request.shape.total,
            pools: Some(pools),
        }
    }

    pub(super) fn is_reclaimed(&self, index: usize) -> bool {
        self.items[index].reason == Reason::Reclaimed
    }

    /// How much a candidate frees of the job's leading resource.
    fn size(&self, index: usize) -> i64 {
        self.items[index].size
    }

    /// A group with the largest first; `None` if all have the same size.
    fn by_size(&self, group: &[usize]) -> Option<Vec<usize>> {
        let first = self.size(*group.first()?);
        if group.iter().all(|index| self.size(*index) == first) {
            return None;
        }
        let mut by_size = group.to_vec();
        by_size.sort_by_cached_key(|index| std::cmp::Reverse((self.size(*index), *index)));
        Some(by_size)
    }

    fn price(&self, chosen: &VictimSet) -> VictimCost {
        let items = || chosen.iter().map(|index| &self.items[*index]);
        let whole = items().filter(|item| item.cut().is_none()).count();
        (items().map(|item| item.cost()).sum(), whole, chosen.len())
    }

    fn price_alone(&self, index: usize) -> VictimCost {
        let item = &self.items[index];
        (item.cost(), usize::from(item.cut().is_none()), 1)
    }

    /// The candidates of each cluster where enough of them look cheapest; none if all are in one.
    fn by_cluster(&self, all: &[usize]) -> Vec<Vec<usize>> {
        let by_cluster = self.of_clusters(all);
        if by_cluster.len() < 2 {
            return Vec::new();
        }
        let total = &self.request.shape.total;
        let needs = self.leads.map_or(0, |name| total.amount_of(name).0);
        let looks = |group: &[usize]| {
            let (mut cost, mut freed) = (0_i128, 0_i64);
            for index in group {
                if freed >= needs {
                    break;
                }
                cost += self.items[*index].cost();
                freed = freed.saturating_add(self.size(*index));
                self.note_missing(self.items[*index].gap_after && freed < needs);
            }
            cost
        };
        let mut groups: Vec<(i128, &ClusterName, Vec<usize>)> = by_cluster
            .into_iter()
            .map(|(cluster, group)| (looks(&group), cluster, group))
            .collect();
        groups.sort();
        groups.truncate(CLUSTERS);
        groups.into_iter().map(|(.., group)| group).collect()
    }

    /// The candidates of each cluster, in order.
    fn of_clusters(&self, all: &[usize]) -> Vec<(&ClusterName, Vec<usize>)> {
        let mut by_cluster: Vec<(&ClusterName, Vec<usize>)> = Vec::new();
        let mut places: Hashed<&ClusterName, usize> = Hashed::default();
        // Candidates of a group share one charge: its clusters are looked up once.
        let mut known: Hashed<*const Pools, BTreeSet<usize>> = Hashed::default();
        for index in all {
            let charge = self.items[*index].charge();
            let clusters = known.entry(charge).or_insert_with(|| {
                let clusters = charge.keys().map(|(cluster, _)| {
                    *places.entry(cluster).or_insert_with(|| {
                        by_cluster.push((cluster, Vec::new()));
                        by_cluster.len() - 1
                    })
                });
                clusters.collect()
            });
            for place in &*clusters {
                by_cluster[*place].1.push(*index);
            }
        }
        by_cluster
    }

    /// The shortest start of a chain with which the job fits. It is looked for among twice as many
    /// each time, since a few are enough most often.
    fn shortest(&self, chain: &mut Chain<'_>) -> Option<VictimSet> {
        let first = |taken: &[usize], count: usize| -> VictimSet {
            taken[..count].iter().copied().collect()
        };
        // The caller has checked that it does not fit without victims.
        let (mut fails, mut fits) = (0, 1);
        loop {
            let is_whole = !chain.reaches(fits);
            if self.misses.get() {
                return None;
            }
            fits = fits.min(chain.taken.len());
            if fits > fails && self.fits(&first(&chain.taken, fits)).is_some() {
                break;
            }
            if is_whole {
                return None;
            }
            (fails, fits) = (fits, fits * 2);
        }
        let size = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let find = |count: u32| {
            let victims = first(&chain.taken, usize::try_from(count).ok()?);
            self.fits(&victims).map(|_| victims)
        };
        let longest = first(&chain.taken, fits);
        let (_, shortest) = boundary((size(fits), longest), size(fails), find);
        Some(shortest)
    }

    /// Puts needless victims back in reverse order, in blocks while that works.
    fn filled_back(&self, mut chosen: VictimSet, chain: &[usize]) -> VictimSet {
        let order: Vec<usize> = chain.iter().rev().copied().collect();
        let order: Vec<usize> = order.into_iter().filter(|i| chosen.contains(i)).collect();
        self.fill_back(&order, &mut chosen);
        chosen
    }

    fn fill_back(&self, block: &[usize], chosen: &mut VictimSet) {
        let rest: VictimSet = chosen
            .iter()
            .copied()
            .filter(|i| !block.contains(i))
            .collect();
        if block.is_empty() {
            return;
        }
        if self.closed(&rest) && self.fits(&rest).is_some() {
            *chosen = rest;
        } else if block.len() > 1 {
            let (first, second) = block.split_at(block.len() / 2);
            self.fill_back(first, chosen);
            self.fill_back(second, chosen);
        }
    }

    /// True if each candidate is chosen with the one that must be evicted before it.
    fn closed(&self, chosen: &VictimSet) -> bool {
        let before = chosen.iter().filter_map(|index| self.items[*index].after());
        before.into_iter().all(|before| chosen.contains(&before))
    }

    /// Swaps single victims for cheaper candidates while that works.
    fn swapped(&self, mut chosen: VictimSet) -> VictimSet {
        let mut dear: Vec<usize> = chosen.iter().copied().collect();
        dear.sort_by_key(|index| std::cmp::Reverse(self.items[*index].cost()));
        for index in dear {
            // In order of what is lost, surplus first, of which nothing is.
            let cost = self.items[index].cost();
            let cheaper = self.items.partition_point(|other| other.cost() < cost);
            for other in 0..cheaper {
                if self.tries.get() > TRIES || self.misses.get() {
                    return chosen;
                }
                if chosen.contains(&other) {
                    self.note_missing(self.items[other].gap_after);
                    continue;
                }
                let mut tried = chosen.clone();
                tried.remove(&index);
                tried.insert(other);
                let is_valid = |shares: Vec<Share>| self.is_valid(&tried, &shares);
                if self.closed(&tried) && self.fits(&tried).is_some_and(is_valid) {
                    chosen = tried;
                    break;
                }
                self.note_missing(self.items[other].gap_after);
            }
        }
        chosen
    }

    /// Tries all sets from `next` on that could still be cheaper than the best one.
    fn exact(&self, next: usize, chosen: &VictimSet, best: &mut Option<Found>) {
        let price = self.price(chosen);
        let dearer = best.as_ref().is_some_and(|best| price >= best.0);
        if dearer || self.tries.get() > TRIES {
            return;
        }
        if let Some(shares) = self.fits(chosen) {
            if self.is_valid(chosen, &shares) {
                *best = Some((price, chosen.clone(), shares));
                return;
            }
        } else {
            let rest = next..self.items.len();
            let all: VictimSet = chosen.iter().copied().chain(rest).collect();
            if self.fits(&all).is_none() {
                return;
            }
        }
        for index in next..self.items.len() {
            let mut more = chosen.clone();
            more.insert(index);
            if self.closed(&more) {
                self.exact(index + 1, &more, best);
            }
        }
    }
}
