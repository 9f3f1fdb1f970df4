//! The cache of eligible clusters by placement, renewed when a cluster changes.
//!
//! The filters of [`crate::plugins`] decide which clusters are eligible.

use crate::capacity::{Capacity, Place};
use crate::plugins::{Question, refusal};
use facts::matching::ClusterRule;
use facts::{ClusterFact, ClusterName, ClusterPlacement};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The most placements in the cache; it is cleared when it is full.
pub(crate) const KEPT: usize = 1024;

/// The clusters of one group that may take a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Eligible {
    /// All of them, in order of name.
    pub(crate) clusters: Vec<ClusterName>,
    /// Those with nodes, as cluster indexes of the capacity.
    pub(crate) places: Vec<Place>,
}

/// The eligible clusters by placement and group, and prices and distances of the fleet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Eligibility {
    known: BTreeMap<ClusterPlacement, Vec<Eligible>>,
    /// The generation of the cluster indexes in `known` and `prices`.
    generation: u64,
    /// Prices by cluster index, in thousandths of the highest.
    prices: Vec<i64>,
    /// The highest known price.
    dearest: u64,
    /// The longest known round-trip time between clusters, in microseconds.
    farthest: u64,
}

impl Eligibility {
    /// The eligible clusters of each group of a placement, if they are known.
    pub(crate) fn known(&self, placement: &ClusterPlacement) -> Option<&Vec<Eligible>> {
        self.known.get(placement)
    }

    /// The longest known round-trip time between clusters, in microseconds; zero if none is known.
    pub(crate) fn farthest(&self) -> u64 {
        self.farthest
    }

    /// The price of a cluster in thousandths of the highest, which a cluster without a price has.
    pub(crate) fn price_of(&self, fact: &ClusterFact) -> i64 {
        let price = u128::from(fact.price_milli.unwrap_or(self.dearest)) * 1000;
        i64::try_from(price / u128::from(self.dearest.max(1))).unwrap_or(1000)
    }

    /// Prices by cluster index as in [`Self::price_of`], unless they are out of date.
    pub(crate) fn prices(&self, capacity: &Capacity) -> Option<&[i64]> {
        self.is_current(capacity).then_some(&self.prices)
    }

    /// Adds `placement`, which an observed job has.
    pub(crate) fn note(&mut self, placement: &ClusterPlacement, capacity: &Capacity) {
        if self.known.contains_key(placement) {
            return;
        }
        if self.known.len() >= KEPT {
            self.known.clear();
        }
        let found = find_all(placement, capacity);
        self.known.insert(placement.clone(), found);
    }

    /// Renews everything after a cluster has changed.
    pub(crate) fn renew(&mut self, capacity: &Capacity) {
        let clusters = capacity.cluster_facts();
        self.generation = capacity.places_generation();
        for (placement, known) in &mut self.known {
            *known = find_all(placement, capacity);
        }
        let prices = clusters.values().filter_map(|fact| fact.price_milli);
        self.dearest = prices.max().unwrap_or(0);
        let times = clusters.values().flat_map(|fact| fact.network.values());
        self.farthest = times.copied().max().unwrap_or(0);
        let fact = |name: &ClusterName| clusters.get(name);
        let price = |name| fact(name).map_or(0, |fact| self.price_of(fact));
        self.prices = capacity.places().iter().map(price).collect();
    }

    /// Returns true if its cluster indexes are those of `capacity`.
    pub(crate) fn is_current(&self, capacity: &Capacity) -> bool {
        self.generation == capacity.places_generation()
    }

    /// Returns true if the cache equals a new one, unless it is out of date.
    pub(crate) fn is_sound(&self, capacity: &Capacity) -> bool {
        !self.is_current(capacity)
            || self
                .known
                .iter()
                .all(|(placement, known)| *known == find_all(placement, capacity))
    }
}

/// The groups of a placement; if it has none, one that selects every cluster.
pub(crate) fn groups_of(placement: &ClusterPlacement) -> Cow<'_, [ClusterRule]> {
    if placement.groups.is_empty() {
        Cow::Owned(vec![ClusterRule::default()])
    } else {
        Cow::Borrowed(&placement.groups)
    }
}

/// The eligible clusters of each group of `placement`.
pub(crate) fn find_all(placement: &ClusterPlacement, capacity: &Capacity) -> Vec<Eligible> {
    let clusters = capacity.cluster_facts();
    let find = |group: &ClusterRule| {
        let may = |cluster: &&ClusterFact| {
            let question = Question {
                placement,
                group,
                cluster,
                fleet: clusters,
            };
            refusal(&question).is_none()
        };
        let able = clusters.values().filter(may);
        Eligible::new(able.map(|cluster| cluster.name.clone()).collect(), capacity)
    };
    groups_of(placement).iter().map(find).collect()
}

impl Eligible {
    pub(crate) fn new(clusters: Vec<ClusterName>, capacity: &Capacity) -> Self {
        let place = |cluster: &ClusterName| capacity.places().binary_search(cluster).ok();
        Self {
            places: clusters.iter().filter_map(place).collect(),
            clusters,
        }
    }
}
