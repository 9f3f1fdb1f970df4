//! The order in which a search for victims takes candidates.

use crate::api::charge::Pools;
use crate::overlay::Overlay;
use crate::preemption::choose::{Search, VictimSet};

/// The candidates of an order that may be evicted, each after those before it; found as far as needed.
pub(super) struct Chain<'a> {
    search: &'a Search<'a>,
    pools: &'a Pools,
    usage: Overlay,
    pub(super) taken: Vec<usize>,
    known: VictimSet,
    next: std::vec::IntoIter<usize>,
    is_forward: bool,
    /// True if candidates are left out before the next one.
    gap: bool,
    /// Those that must come after one that was not taken yet. An order by size may name a gang before its
    /// surplus: it is looked at once more.
    pending: Vec<usize>,
    again: bool,
}

impl<'a> Chain<'a> {
    pub(super) fn new(
        search: &'a Search<'a>,
        order: Vec<usize>,
        is_forward: bool,
        pools: &'a Pools,
    ) -> Self {
        Self {
            search,
            pools,
            usage: search.overlay.usage_only(),
            taken: Vec::new(),
            known: VictimSet::new(),
            next: order.into_iter(),
            is_forward,
            gap: false,
            pending: Vec::new(),
            again: false,
        }
    }

    /// True if so many may be evicted.
    pub(super) fn reaches(&mut self, count: usize) -> bool {
        while self.taken.len() < count {
            if self.gap {
                self.search.note_missing(true);
                return false;
            }
            let Some(index) = self.next.next() else {
                if std::mem::replace(&mut self.again, true) {
                    return false;
                }
                self.next = std::mem::take(&mut self.pending).into_iter();
                continue;
            };
            self.look_at(index);
        }
        true
    }

    fn look_at(&mut self, index: usize) {
        let search = self.search;
        let item = &search.items[index];
        self.gap = match self.is_forward {
            true => item.gap_after,
            false => item.gap_before,
        };
        if item
            .after()
            .is_some_and(|before| !self.known.contains(&before))
        {
            self.pending.push(index);
            return;
        }
        let may = || {
            let reclaim = search.reclaim(&self.usage, self.pools);
            reclaim.check_victim(item.queue, item.charge())
        };
        if !search.is_reclaimed(index) || may().is_ok() {
            let quota = &search.inputs.quota;
            quota.assume(&mut self.usage, item.queue, item.charge(), -1);
            self.known.insert(index);
            self.taken.push(index);
        }
    }
}
