//! Exact sums of resources: charges, usage, free capacity.
//!
//! A [`ResourceTotals`] is a sum of facts, updated incrementally. It counts in 128 bits, which no
//! number of 63-bit facts can overflow. It may be negative (a node whose pods request more than
//! it has). It is not a bound: an absent resource is zero.

use facts::small_map::SmallMap;
use facts::{Amount, ResourceName, Resources};

/// Exact amounts by resource, without zeros, so that equal sums are equal values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResourceTotals(SmallMap<ResourceName, i128>);

impl ResourceTotals {
    /// The amount of `name`, zero if it is absent.
    pub(crate) fn get(&self, name: &ResourceName) -> i128 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Adds `times × resources`; `times` may be negative.
    pub(crate) fn add(&mut self, resources: &Resources, times: i64) {
        for (name, amount) in resources.iter() {
            self.add_amount(name, i128::from(amount.0) * i128::from(times));
        }
    }

    /// Adds `times × other`.
    pub(crate) fn add_totals(&mut self, other: &Self, times: i64) {
        for (name, amount) in other.0.iter() {
            self.add_amount(name, amount * i128::from(times));
        }
    }

    pub(crate) fn add_amount(&mut self, name: &ResourceName, amount: i128) {
        if amount == 0 {
            return;
        }
        if let Some(entry) = self.0.get_mut(name) {
            *entry += amount;
            if *entry == 0 {
                self.0.remove(name);
            }
        } else {
            self.0.insert(name.clone(), amount);
        }
    }

    /// The amounts other than zero, in order of name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ResourceName, i128)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Keeps only amounts above zero.
    pub(crate) fn drop_negative(&mut self) {
        self.0.retain(|amount| *amount > 0);
    }

    /// Returns true if every amount is zero.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of pods with `request` that fit into these amounts, at most `most`.
    pub(crate) fn fits(&self, request: &Resources, most: u32) -> u32 {
        request
            .iter()
            .filter(|(_, amount)| amount.0 > 0)
            .map(|(name, amount)| self.get(name) / i128::from(amount.0))
            .min()
            .map_or(most, |pods| {
                u32::try_from(pods.clamp(0, i128::from(most))).unwrap_or(most)
            })
    }

    /// The amounts above zero, each capped at 63 bits: for output.
    pub(crate) fn to_resources(&self) -> Resources {
        self.iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|(name, amount)| (name.clone(), clamp(amount)))
            .collect()
    }
}

/// `amount` capped to 63 bits: for output.
pub(crate) fn clamp(amount: i128) -> Amount {
    Amount(i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX }))
}

impl From<&Resources> for ResourceTotals {
    fn from(resources: &Resources) -> Self {
        let mut totals = Self::default();
        totals.add(resources, 1);
        totals
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn totals(amounts: &[(&str, i128)]) -> ResourceTotals {
        let mut totals = ResourceTotals::default();
        for (name, amount) in amounts {
            totals.add_amount(&ResourceName::new(name), *amount);
        }
        totals
    }

    #[test]
    fn reported_amounts_are_above_zero_and_capped() {
        let beyond = i128::from(i64::MAX) + 1;
        let mut sums = totals(&[("cpu", -1), ("gpu", 3), ("memory", beyond)]);
        let capped = Resources::parse([("gpu", "3"), ("memory", "9223372036854775807")]);
        assert_eq!(sums.to_resources(), capped.unwrap());
        assert_eq!(clamp(-beyond - 1), Amount(i64::MIN));
        sums.drop_negative();
        assert_eq!(sums, totals(&[("gpu", 3), ("memory", beyond)]));
    }

    #[test]
    fn the_scarcest_resource_limits_the_pods() {
        let free = totals(&[("cpu", 8_000), ("gpu", 3), ("memory", -1)]);
        for (request, pods) in [
            (&[("cpu", "2"), ("gpu", "1")][..], 3),
            (&[("cpu", "3"), ("gpu", "1"), ("memory", "0")], 2),
            (&[("gpu", "4")], 0),
            (&[("memory", "1")], 0),
            (&[("memory", "0")], 9),
        ] {
            let request = Resources::parse(request.iter().copied()).unwrap();
            assert_eq!(free.fits(&request, 9), pods, "{request}");
        }
    }
}
