//! The eligible clusters of each placement, found once and renewed when a cluster changes.
//!
//! Filters decide ([`crate::plugins`]); only their answers are kept here.

use crate::api::demand::ClusterPlacement;
use crate::api::facts::ClusterFact;
use crate::api::ids::ClusterName;
use crate::api::matching::ClusterRule;
use crate::capacity::{Capacity, Place};
use crate::plugins::{Question, refusal};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Placements that are kept.
pub(crate) const KEPT: usize = 1024;

/// The clusters of one group that may take a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Eligible {
    /// All, in order of name.
    pub(crate) clusters: Vec<ClusterName>,
    /// Those with nodes, by their place in the capacity store.
    pub(crate) places: Vec<Place>,
}

/// What is known of eligibility, by placement and group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Eligibility {
    known: BTreeMap<ClusterPlacement, Vec<Eligible>>,
    /// The places that it speaks of.
    generation: u64,
    /// Prices by place, in thousandths of the dearest.
    prices: Vec<i64>,
    /// The highest price told.
    dearest: u64,
    /// The longest time between clusters that any tells, in microseconds.
    farthest: u64,
}

impl Eligibility {
    /// The groups of a placement, where they are known.
    pub(crate) fn known(&self, placement: &ClusterPlacement) -> Option<&Vec<Eligible>> {
        self.known.get(placement)
    }

    /// The longest time between clusters that any tells, in microseconds; zero where none does.
    pub(crate) fn farthest(&self) -> u64 {
        self.farthest
    }

    /// The price of a cluster in thousandths of the dearest.
    pub(crate) fn price_of(&self, fact: &ClusterFact) -> i64 {
        let price = u128::from(fact.price_milli.unwrap_or(self.dearest)) * 1000;
        i64::try_from(price / u128::from(self.dearest.max(1))).unwrap_or(1000)
    }

    /// Prices by place, in thousandths of the dearest; a cluster that tells none is as dear.
    pub(crate) fn prices(&self, capacity: &Capacity) -> Option<&[i64]> {
        self.is_current(capacity).then_some(&self.prices)
    }

    /// A job with this placement came.
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

    /// A cluster changed, came or went.
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

    /// Whether it still speaks of the clusters that have nodes.
    pub(crate) fn is_current(&self, capacity: &Capacity) -> bool {
        self.generation == capacity.places_generation()
    }

    /// Placements for which what is kept is not what is found again.
    pub(crate) fn is_sound(&self, capacity: &Capacity) -> bool {
        !self.is_current(capacity)
            || self
                .known
                .iter()
                .all(|(placement, known)| *known == find_all(placement, capacity))
    }
}

/// The groups of a placement; one that selects every cluster where it names none.
pub(crate) fn groups_of(placement: &ClusterPlacement) -> Cow<'_, [ClusterRule]> {
    if placement.groups.is_empty() {
        Cow::Owned(vec![ClusterRule::default()])
    } else {
        Cow::Borrowed(&placement.groups)
    }
}

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
