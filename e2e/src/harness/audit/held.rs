//! The amounts that a job holds at a moment: in total, and the part whose cluster is known.

use std::collections::{BTreeMap, BTreeSet};

use super::footprint::{Classes, resources};
use super::quantity::{self, UNIT};

/// Amounts in total, by class of GPUs, and by cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HeldAmounts {
    total: Classes,
    clusters: BTreeMap<String, Classes>,
}

impl HeldAmounts {
    /// Returns amounts whose clusters are unknown.
    pub(super) fn somewhere(total: Classes) -> Self {
        Self {
            total,
            clusters: BTreeMap::new(),
        }
    }

    /// Returns these amounts in each of these clusters.
    pub(super) fn in_each(clusters: impl IntoIterator<Item = (String, Classes)>) -> Self {
        let mut held = Self::default();
        for (cluster, classes) in clusters {
            add(held.clusters.entry(cluster).or_default(), &classes);
            add(&mut held.total, &classes);
        }
        held
    }

    /// Raises each amount, cluster by cluster, to that of `other` if it is larger.
    pub(super) fn raise(&mut self, other: &Self) {
        for (cluster, classes) in &other.clusters {
            raise(self.clusters.entry(cluster.clone()).or_default(), classes);
        }
        let mut known = Classes::new();
        for classes in self.clusters.values() {
            add(&mut known, classes);
        }
        raise(&mut self.total, &other.total);
        raise(&mut self.total, &known);
    }

    /// Returns the amount of a resource in all classes.
    pub(super) fn all(&self, resource: &str) -> u128 {
        let amounts = self.total.values();
        amounts.filter_map(|amounts| amounts.get(resource)).sum()
    }

    /// Returns the amount of a resource in a class.
    pub(super) fn of_class(&self, class: &str, resource: &str) -> u128 {
        of(&self.total, class, resource)
    }

    /// Returns the amount of a resource in a class in some clusters.
    pub(super) fn in_clusters(
        &self,
        clusters: &BTreeSet<String>,
        class: &str,
        resource: &str,
    ) -> u128 {
        let inside = clusters.iter().filter_map(|name| self.clusters.get(name));
        inside.map(|classes| of(classes, class, resource)).sum()
    }

    /// Returns the resources with an amount.
    pub(super) fn resources(&self) -> BTreeSet<&String> {
        resources(&self.total)
    }

    /// Returns the devices of all kinds, in thousandths.
    pub(super) fn devices(&self) -> u128 {
        let of = |name: &&String| quantity::is_device(name);
        self.resources()
            .into_iter()
            .filter(of)
            .map(|name| self.all(name))
            .sum()
    }
}

/// Converts thousandths of devices × milliseconds to device-seconds.
pub(super) fn device_seconds(thousandths: u128, milliseconds: u128) -> u128 {
    thousandths * milliseconds / (UNIT * 1_000)
}

fn of(classes: &Classes, class: &str, resource: &str) -> u128 {
    let amounts = classes.get(class);
    amounts
        .and_then(|amounts| amounts.get(resource))
        .copied()
        .unwrap_or(0)
}

fn add(to: &mut Classes, more: &Classes) {
    for (class, amounts) in more {
        quantity::add(to.entry(class.clone()).or_default(), amounts, 1);
    }
}

fn raise(to: &mut Classes, other: &Classes) {
    for (class, amounts) in other {
        quantity::raise(to.entry(class.clone()).or_default(), amounts);
    }
}
