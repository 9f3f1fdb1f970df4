//! Resources by number, and sums of them as short vectors, without names.
//!
//! A store numbers resources in the order in which it first sees them. The numbers differ between a
//! store and its restored copy: no order that can be seen may follow from them. Sums have 128 bits,
//! so that no number of 63-bit facts can overflow them.

use crate::amounts::totals::ResourceTotals;
use facts::{Amount, ResourceName, Resources};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A resource by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResourceId(u16);

/// `cpu`.
pub(crate) const CPU: ResourceId = ResourceId(0);
/// `memory`.
pub(crate) const MEMORY: ResourceId = ResourceId(1);
/// `pods`: slots of nodes, for which queues do not compete.
pub(crate) const PODS: ResourceId = ResourceId(2);

impl ResourceId {
    fn index(self) -> usize {
        usize::from(self.0)
    }

    /// True if queues compete for it.
    pub(crate) fn competes(self) -> bool {
        self != PODS
    }
}

/// The resources that a store has seen.
#[derive(Debug, Clone)]
pub(crate) struct ResourceIds {
    names: Vec<ResourceName>,
    ids: BTreeMap<ResourceName, ResourceId>,
}

impl Default for ResourceIds {
    fn default() -> Self {
        let mut resource_ids = Self {
            names: Vec::new(),
            ids: BTreeMap::new(),
        };
        for name in [ResourceName::CPU, ResourceName::MEMORY, ResourceName::PODS] {
            resource_ids.intern(&ResourceName::new(name));
        }
        resource_ids
    }
}

impl ResourceIds {
    /// The number of `name`, which gets one if it has none. Past 65,535 resources all further ones
    /// share the last number; no fleet has a thousandth of that.
    pub(crate) fn intern(&mut self, name: &ResourceName) -> ResourceId {
        if let Some(id) = self.find(name) {
            return id;
        }
        let id = ResourceId(u16::try_from(self.names.len()).unwrap_or(u16::MAX));
        self.names.push(name.clone());
        self.ids.insert(name.clone(), id);
        id
    }

    /// The number of `name`, if it was seen.
    pub(crate) fn find(&self, name: &ResourceName) -> Option<ResourceId> {
        self.ids.get(name).copied()
    }

    /// The name of a number.
    pub(crate) fn name(&self, id: ResourceId) -> &ResourceName {
        &self.names[id.index()]
    }

    /// `resources` by number; names that were not seen before get one.
    pub(crate) fn vector(&mut self, resources: &Resources) -> ResourceVec {
        let mut sums = ResourceVec::default();
        for (name, amount) in resources.iter() {
            sums.add(self.intern(name), i128::from(amount.0));
        }
        sums
    }

    /// `totals` by number; what was never seen is left out.
    pub(crate) fn vector_of(&self, totals: &ResourceTotals) -> ResourceVec {
        let mut sums = ResourceVec::default();
        for (name, amount) in totals.iter() {
            if let Some(id) = self.find(name) {
                sums.add(id, amount);
            }
        }
        sums
    }

    /// `resources` by number, zeros included; what was never seen is left out.
    pub(crate) fn known<'a>(
        &'a self,
        resources: &'a Resources,
    ) -> impl Iterator<Item = (ResourceId, i128)> + 'a {
        let known = |(name, amount): (_, Amount)| Some((self.find(name)?, i128::from(amount.0)));
        resources.iter().filter_map(known)
    }

    /// Returns what a pod requests, to be compared with what is free.
    pub(crate) fn request(&self, request: &Resources) -> PodRequest {
        let mut pod = PodRequest::default();
        for (name, amount) in request.iter().filter(|(_, amount)| amount.0 > 0) {
            match self.find(name) {
                Some(id) => pod.amounts.push((id, amount.0)),
                None => pod.nowhere = true,
            }
        }
        pod
    }

    /// Sums by name.
    pub(crate) fn totals(&self, sums: &ResourceVec) -> ResourceTotals {
        let mut totals = ResourceTotals::default();
        for (id, amount) in sums.iter() {
            totals.add_amount(self.name(id), amount);
        }
        totals
    }

    /// For output: what is above zero.
    pub(crate) fn resources(&self, sums: &ResourceVec) -> Resources {
        self.totals(sums).to_resources()
    }
}

/// Sums by resource; what is absent is zero, and equal sums are equal vectors. CPU, memory, pods and
/// one device, which is what most nodes have, need no allocation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct ResourceVec(SmallVec<[i128; 4]>);

impl ResourceVec {
    /// The amount of one resource.
    pub(crate) fn get(&self, id: ResourceId) -> i128 {
        self.0.get(id.index()).copied().unwrap_or_default()
    }

    /// Adds to one resource.
    pub(crate) fn add(&mut self, id: ResourceId, amount: i128) {
        if amount == 0 {
            return;
        }
        if self.0.len() <= id.index() {
            self.0.resize(id.index() + 1, 0);
        }
        self.0[id.index()] += amount;
        self.trim();
    }

    /// Sets the amount of one resource.
    pub(crate) fn set(&mut self, id: ResourceId, amount: i128) {
        self.add(id, amount - self.get(id));
    }

    /// Adds `times × other`.
    pub(crate) fn add_all(&mut self, other: &Self, times: i64) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, amount) in self.0.iter_mut().zip(&other.0) {
            *mine += amount * i128::from(times);
        }
        self.trim();
    }

    /// Adds the requests of `times` pods; below zero, takes them off.
    pub(crate) fn add_pods(&mut self, pod: &PodRequest, times: i64) {
        for (id, amount) in &pod.amounts {
            self.add(*id, i128::from(*amount) * i128::from(times));
        }
    }

    /// Those that are not zero.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ResourceId, i128)> {
        let all = self.0.iter().zip(0_u16..);
        let some = all.filter(|(amount, _)| **amount != 0);
        some.map(|(amount, id)| (ResourceId(id), *amount))
    }

    /// True if all are zero.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if any amount is below zero.
    pub(crate) fn overdrawn(&self) -> bool {
        self.0.iter().any(|amount| *amount < 0)
    }

    /// True if any amount is greater than in `other`.
    pub(crate) fn exceeds_somewhere(&self, other: &Self) -> bool {
        let ids = (0_u16..).map(ResourceId);
        let mut ids = ids.take(self.0.len().max(other.0.len()));
        ids.any(|id| self.get(id) > other.get(id))
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

/// What one pod requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodRequest {
    amounts: Vec<(ResourceId, i64)>,
    /// True if it requests something that no node has.
    nowhere: bool,
}

impl PodRequest {
    /// How much it requests of one resource.
    pub(crate) fn get(&self, id: ResourceId) -> i64 {
        let entry = self.amounts.iter().find(|(known, _)| *known == id);
        entry.map_or(0, |(_, amount)| *amount)
    }

    /// True if one such pod fits into `free`.
    pub(crate) fn fits(&self, free: &ResourceVec) -> bool {
        let mut amounts = self.amounts.iter();
        !self.nowhere && amounts.all(|(id, amount)| free.get(*id) >= i128::from(*amount))
    }

    /// How many such pods fit into `free`, at most `most`.
    pub(crate) fn count_in(&self, free: &ResourceVec, most: u32) -> u32 {
        if !self.fits(free) || most < 2 {
            return u32::from(self.fits(free)).min(most);
        }
        let amounts = self.amounts.iter();
        let counts = amounts.map(|(id, each)| times(free.get(*id), *each));
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
    fn vectors_of_equal_amounts_are_equal_whatever_they_had_before() {
        let vector = |amounts: &[i128]| {
            let mut vector = ResourceVec::default();
            for (amount, id) in amounts.iter().zip(0..) {
                vector.add(ResourceId(id), *amount);
            }
            vector
        };
        let mut sum = vector(&[1, 0, 2]);
        sum.add_all(&vector(&[0, 3]), 1);
        assert_eq!(sum, vector(&[1, 3, 2]));
        sum.add_all(&vector(&[0, 1, 1]), -2);
        assert_eq!(sum, vector(&[1, 1]));
        sum.add_all(&vector(&[1, 1]), -1);
        assert!(sum.is_empty() && sum == ResourceVec::default());
        // True if an amount is below zero; true if one is above zero.
        for (amounts, overdrawn, more) in [
            (&[][..], false, false),
            (&[0, 2], false, true),
            (&[1, -1], true, true),
            (&[0, 0, -1], true, false),
        ] {
            let vector = vector(amounts);
            assert_eq!(vector.overdrawn(), overdrawn, "{vector:?}");
            assert_eq!(
                vector.exceeds_somewhere(&ResourceVec::default()),
                more,
                "{vector:?}"
            );
            assert!(!vector.exceeds_somewhere(&vector), "{vector:?}");
        }
    }
}
