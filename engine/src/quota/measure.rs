//! Amounts by resource as short vectors: usage and limits of queues.
//!
//! Resources are numbered in the order in which they were first met, so the numbers mean
//! nothing and never reach output. Sums are kept in 128 bits: no number of 63-bit facts can
//! overflow them.

use crate::amounts::resources::{ResourceName, Resources};
use crate::amounts::totals::{ResourceTotals, clamp};
use std::collections::BTreeMap;

/// A resource by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResourceId(u16);

/// The resources that were met.
#[derive(Debug, Clone, Default)]
pub(super) struct QuotaResourceIds {
    ids: BTreeMap<ResourceName, ResourceId>,
    names: Vec<ResourceName>,
    pods: Option<ResourceId>,
}

impl QuotaResourceIds {
    pub(super) fn find(&self, name: &ResourceName) -> Option<ResourceId> {
        self.ids.get(name).copied()
    }

    /// The number of `name`. Past 65,535 resources all further ones share the last number;
    /// no fleet has a thousandth of that.
    pub(super) fn intern(&mut self, name: &ResourceName) -> ResourceId {
        if let Some(id) = self.find(name) {
            return id;
        }
        let id = ResourceId(u16::try_from(self.names.len()).unwrap_or(u16::MAX));
        if name.as_str() == ResourceName::PODS {
            self.pods = Some(id);
        }
        self.ids.insert(name.clone(), id);
        self.names.push(name.clone());
        id
    }

    pub(super) fn name(&self, id: ResourceId) -> &ResourceName {
        &self.names[usize::from(id.0)]
    }

    /// Whether queues compete for it: pod slots are no such thing.
    pub(super) fn competes(&self, id: ResourceId) -> bool {
        self.pods != Some(id)
    }

    pub(super) fn bounds(&mut self, resources: &Resources) -> Bounds {
        let mut bounds = Bounds::default();
        for (name, amount) in resources.iter() {
            bounds.set(self.intern(name), Some(i128::from(amount.0)));
        }
        bounds
    }

    /// `resources` by number, those that were never met left out.
    pub(super) fn known<'a>(
        &'a self,
        resources: &'a Resources,
    ) -> impl Iterator<Item = (ResourceId, i128)> + 'a {
        resources
            .iter()
            .filter_map(|(name, amount)| Some((self.find(name)?, i128::from(amount.0))))
    }

    pub(super) fn totals(&self, sums: &Sums) -> ResourceTotals {
        let mut totals = ResourceTotals::default();
        for (id, amount) in sums.iter() {
            totals.add_amount(self.name(id), amount);
        }
        totals
    }

    /// For output: what is above zero.
    pub(super) fn resources(&self, sums: &Sums) -> Resources {
        sums.iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|(id, amount)| (self.name(id).clone(), clamp(amount)))
            .collect()
    }

    /// For output: what is named, zeros included.
    pub(super) fn named(&self, bounds: &Bounds) -> Resources {
        bounds
            .iter()
            .map(|(id, amount)| (self.name(id).clone(), clamp(amount)))
            .collect()
    }
}

/// What is absent is zero.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums(Vec<i128>);

impl Sums {
    pub(super) fn get(&self, id: ResourceId) -> i128 {
        self.0.get(usize::from(id.0)).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, id: ResourceId, amount: i128) {
        let index = usize::from(id.0);
        if index >= self.0.len() {
            if amount == 0 {
                return;
            }
            self.0.resize(index + 1, 0);
        }
        self.0[index] += amount;
    }

    pub(super) fn set(&mut self, id: ResourceId, amount: i128) {
        let before = self.get(id);
        self.add(id, amount - before);
    }

    pub(super) fn add_all(&mut self, other: &Self, times: i128) {
        for (id, amount) in other.iter() {
            self.add(id, amount * times);
        }
    }

    /// Those that are not zero.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ResourceId, i128)> {
        self.0
            .iter()
            .zip(0_u16..)
            .filter(|(amount, _)| **amount != 0)
            .map(|(amount, id)| (ResourceId(id), *amount))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl PartialEq for Sums {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Sums {}

/// What is absent is not bounded; an explicit zero is none.
#[derive(Debug, Clone, Default)]
pub(super) struct Bounds(Vec<Option<i128>>);

impl Bounds {
    pub(super) fn get(&self, id: ResourceId) -> Option<i128> {
        self.0.get(usize::from(id.0)).copied().flatten()
    }

    pub(super) fn set(&mut self, id: ResourceId, amount: Option<i128>) {
        let index = usize::from(id.0);
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        self.0[index] = amount;
    }

    /// Those that are named.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ResourceId, i128)> {
        self.0
            .iter()
            .zip(0_u16..)
            .filter_map(|(amount, id)| Some((ResourceId(id), (*amount)?)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Of two for the same thing, resource by resource: `pick` where both name it, else the
    /// one that does.
    pub(super) fn merge(&mut self, other: &Self, pick: impl Fn(i128, i128) -> i128) {
        for (id, amount) in other.iter() {
            let merged = self.get(id).map_or(amount, |known| pick(known, amount));
            self.set(id, Some(merged));
        }
    }
}

impl PartialEq for Bounds {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Bounds {}
