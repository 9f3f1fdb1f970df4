//! Resources as small numbers, so that what nodes have free is added and compared without
//! names.
//!
//! Names become dimensions in the order in which they are first seen; a [`Row`] holds an amount
//! for each. The numbers differ between an engine and its restored copy, so no order that can
//! be seen may follow from them.

use crate::amounts::resources::{ResourceName, Resources};
use crate::amounts::totals::ResourceTotals;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of a resource.
pub(crate) type Dim = usize;

/// `cpu`.
pub(crate) const CPU: Dim = 0;
/// `memory`.
pub(crate) const MEMORY: Dim = 1;

/// Every resource that a node or pod has named.
#[derive(Debug, Clone)]
pub(crate) struct ResourceIds {
    names: Arc<[ResourceName]>,
    numbers: BTreeMap<ResourceName, Dim>,
}

impl Default for ResourceIds {
    fn default() -> Self {
        let mut resource_ids = Self {
            names: Arc::from([]),
            numbers: BTreeMap::new(),
        };
        for name in [ResourceName::CPU, ResourceName::MEMORY, ResourceName::PODS] {
            resource_ids.intern(&ResourceName::new(name));
        }
        resource_ids
    }
}

impl ResourceIds {
    /// The number of `name`, given now if it has none.
    pub(crate) fn intern(&mut self, name: &ResourceName) -> Dim {
        if let Some(dim) = self.numbers.get(name) {
            return *dim;
        }
        let dim = self.names.len();
        self.names = self.names.iter().chain([name]).cloned().collect();
        self.numbers.insert(name.clone(), dim);
        dim
    }

    /// The number of `name`, if anything has named it.
    pub(crate) fn get(&self, name: &ResourceName) -> Option<Dim> {
        self.numbers.get(name).copied()
    }

    /// The name of a number that was given.
    pub(crate) fn name(&self, dim: Dim) -> &ResourceName {
        &self.names[dim]
    }

    /// The names by number.
    pub(crate) fn names(&self) -> &Arc<[ResourceName]> {
        &self.names
    }

    /// Amounts as a row; names not seen before get a number.
    pub(crate) fn row(&mut self, resources: &Resources) -> Row {
        let mut row = Row::default();
        for (name, amount) in resources.iter() {
            row.add(self.intern(name), i128::from(amount.0));
        }
        row
    }

    /// Amounts as a row; what no node or pod has named is left out.
    pub(crate) fn row_of(&self, totals: &ResourceTotals) -> Row {
        let mut row = Row::default();
        for (name, amount) in totals.iter() {
            if let Some(dim) = self.get(name) {
                row.add(dim, amount);
            }
        }
        row
    }

    /// What a pod asks for, to be compared with rows.
    pub(crate) fn ask(&self, request: &Resources) -> Ask {
        let mut ask = Ask::default();
        for (name, amount) in request.iter().filter(|(_, amount)| amount.0 > 0) {
            match self.get(name) {
                Some(dim) => ask.amounts.push((dim, amount.0)),
                None => ask.nowhere = true,
            }
        }
        ask
    }
}

/// Amounts by dimension; equal amounts are equal rows. CPU, memory, pods and one device, which is
/// what most nodes have, need no allocation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Row(SmallVec<[i128; 4]>);

impl Row {
    /// The amount of one dimension.
    pub(crate) fn get(&self, dim: Dim) -> i128 {
        self.0.get(dim).copied().unwrap_or_default()
    }

    /// Adds to one dimension.
    pub(crate) fn add(&mut self, dim: Dim, amount: i128) {
        if amount == 0 {
            return;
        }
        if self.0.len() <= dim {
            self.0.resize(dim + 1, 0);
        }
        self.0[dim] += amount;
        self.trim();
    }

    /// Adds `times × other`.
    pub(crate) fn add_row(&mut self, other: &Self, times: i64) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, amount) in self.0.iter_mut().zip(&other.0) {
            *mine += amount * i128::from(times);
        }
        self.trim();
    }

    /// Takes `times` pods off.
    pub(crate) fn take(&mut self, ask: &Ask, times: u32) {
        for (dim, amount) in &ask.amounts {
            self.add(*dim, -i128::from(*amount) * i128::from(times));
        }
    }

    /// Gives `times` pods back.
    pub(crate) fn give(&mut self, ask: &Ask, times: u32) {
        for (dim, amount) in &ask.amounts {
            self.add(*dim, i128::from(*amount) * i128::from(times));
        }
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any amount is below zero.
    pub(crate) fn overdrawn(&self) -> bool {
        self.0.iter().any(|amount| *amount < 0)
    }

    /// Whether any amount is greater than in `other`.
    pub(crate) fn exceeds_somewhere(&self, other: &Self) -> bool {
        (0..self.0.len().max(other.0.len())).any(|dim| self.get(dim) > other.get(dim))
    }

    /// By name.
    pub(crate) fn to_totals(&self, names: &[ResourceName]) -> ResourceTotals {
        let mut totals = ResourceTotals::default();
        for (name, amount) in names.iter().zip(&self.0) {
            totals.add_amount(name, *amount);
        }
        totals
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

/// What one pod asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ask {
    amounts: Vec<(Dim, i64)>,
    /// Whether it asks for something that nothing has.
    nowhere: bool,
}

impl Ask {
    /// How much it asks for of one dimension.
    pub(crate) fn get(&self, dim: Dim) -> i64 {
        let entry = self.amounts.iter().find(|(known, _)| *known == dim);
        entry.map_or(0, |(_, amount)| *amount)
    }

    /// Whether one such pod fits into `free`.
    pub(crate) fn fits(&self, free: &Row) -> bool {
        !self.nowhere
            && self
                .amounts
                .iter()
                .all(|(dim, amount)| free.get(*dim) >= i128::from(*amount))
    }

    /// How many such pods fit into `free`, at most `most`.
    pub(crate) fn count_in(&self, free: &Row, most: u32) -> u32 {
        if !self.fits(free) || most < 2 {
            return u32::from(self.fits(free)).min(most);
        }
        let counts = self
            .amounts
            .iter()
            .map(|(d, each)| times(free.get(*d), *each));
        let fewest = counts.min().unwrap_or(u64::MAX);
        u32::try_from(fewest).unwrap_or(u32::MAX).min(most)
    }
}

/// How often `each`, above zero, goes into `free`.
pub(crate) fn times(free: i128, each: i64) -> u64 {
    // Nearly always both are small, and dividing 128 bits is slow.
    match u64::try_from(free) {
        Ok(free) => free / each.unsigned_abs().max(1),
        Err(_) if free < 0 => 0,
        Err(_) => u64::try_from(free / i128::from(each.max(1))).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pods_are_counted_however_much_is_free() {
        let beyond = 1_i128 << 65;
        for (free, each, pods) in [
            (-1, 1, 0),
            (0, 3, 0),
            (2, 3, 0),
            (7, 3, 2),
            (beyond, 3, (beyond / 3).try_into().unwrap_or(u64::MAX)),
            (beyond, 1, u64::MAX),
            (-beyond, 3, 0),
        ] {
            assert_eq!(times(free, each), pods, "{each} in {free}");
        }
    }

    #[test]
    fn rows_of_equal_amounts_are_equal_whatever_they_held_before() {
        let row = |amounts: &[i128]| {
            let mut row = Row::default();
            for (dim, amount) in amounts.iter().enumerate() {
                row.add(dim, *amount);
            }
            row
        };
        let mut sum = row(&[1, 0, 2]);
        sum.add_row(&row(&[0, 3]), 1);
        assert_eq!(sum, row(&[1, 3, 2]));
        sum.add_row(&row(&[0, 1, 1]), -2);
        assert_eq!(sum, row(&[1, 1]));
        sum.add_row(&row(&[1, 1]), -1);
        assert!(sum.is_empty() && sum == Row::default());
        // What is below zero somewhere, and whether it holds more of anything than none.
        for (amounts, overdrawn, more) in [
            (&[][..], false, false),
            (&[0, 2], false, true),
            (&[1, -1], true, true),
            (&[0, 0, -1], true, false),
        ] {
            let row = row(amounts);
            assert_eq!(row.overdrawn(), overdrawn, "{row:?}");
            assert_eq!(row.exceeds_somewhere(&Row::default()), more, "{row:?}");
            assert!(!row.exceeds_somewhere(&row), "{row:?}");
        }
    }
}
