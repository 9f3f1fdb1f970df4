//! What one placement has before another, where both would do.
//!
//! Each aim is counted in thousandths, and weighed as the queue's policy says: devices made
//! unusable per device taken; distance to the data; distance between the parts of a gang; price
//! against the dearest cluster; how full the cluster is. Lower is better. A cluster that tells
//! no price is taken to be as dear as the dearest.

use super::Engine;
use super::eligible::price_of;
use super::wants::Want;
use crate::facts::{ClusterFact, Demand, PlacementWeights};
use crate::ids::{ClusterName, JobKey, QueueName};
use crate::room::{Effect, Place, Seats};

/// The order among placements over equally many clusters: the policy is the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    /// Innermost domain first.
    pub(crate) tier: u32,
    /// The queue's preferred clusters in their order, then the others: its pods times how far
    /// down the list each is.
    pub(crate) preference: u64,
    /// The weighted sum of the aims.
    pub(crate) weighted: i128,
    /// Pods that its clusters could hold beside, of a gang that is divided.
    pub(crate) spare: u64,
    /// Free devices, then free CPU, left on the nodes that it uses.
    pub(crate) units_left: i128,
    pub(crate) cpu_left: i128,
    /// Then by name, so that no two are equal.
    pub(crate) places: Vec<Place>,
}

/// What a job's queue and demand say of clusters.
pub(crate) struct Aims<'a> {
    weights: PlacementWeights,
    preferred: &'a [ClusterName],
    data: Vec<&'a ClusterFact>,
    dearest: u64,
}

/// How full a cluster is, in thousandths of the seats that it would have empty.
fn fill(seats: Seats) -> i64 {
    let used = u128::from(seats.empty.saturating_sub(seats.now)) * 1000;
    let fill = used / u128::from(seats.empty.max(1));
    i64::try_from(fill).unwrap_or(1000)
}

/// How far apart two clusters are, in thousandths: 0 the same, then the same zone, region,
/// provider, and nothing in common.
fn distance(one: &ClusterFact, other: &ClusterFact) -> i128 {
    let same = |a: &str, b: &str| !a.is_empty() && a == b;
    if one.name == other.name {
        0
    } else if one.zones.iter().any(|zone| other.zones.contains(zone)) {
        250
    } else if same(&one.region, &other.region) {
        500
    } else if same(&one.provider, &other.provider) {
        750
    } else {
        1000
    }
}

impl Engine {
    /// What counts for a job of this queue.
    pub(crate) fn aims<'a>(&'a self, queue: &QueueName, want: &'a Want) -> Aims<'a> {
        let policy = self.queues.policy(queue);
        let data = want.demand.placement.data_clusters.iter();
        Aims {
            weights: policy.map_or_else(PlacementWeights::default, |policy| policy.weights),
            preferred: policy.map_or(&[], |policy| policy.preferred_clusters.as_slice()),
            data: data.filter_map(|name| self.clusters.get(name)).collect(),
            dearest: self.eligibility.dearest(),
        }
    }

    /// A job that had not been submitted before is one more of its kind.
    pub(crate) fn note_submitted(&mut self, key: &JobKey, demand: &Demand) {
        self.eligibility
            .note(&demand.placement, &self.clusters, &self.room);
        let known = self.jobs.get(key).is_some_and(|job| job.demand.is_some());
        if !known {
            self.room.note_demand(demand);
        }
    }
}

impl Aims<'_> {
    /// How far down the queue's list a cluster is.
    pub(crate) fn preference(&self, cluster: &ClusterName) -> u64 {
        let place = self.preferred.iter().position(|name| name == cluster);
        place.unwrap_or(self.preferred.len()) as u64
    }

    /// What counts of a cluster whatever of it is used.
    pub(crate) fn of_cluster(&self, fact: &ClusterFact, seats: Seats) -> i128 {
        let data = self.data.iter().map(|data| distance(fact, data)).min();
        let price = price_of(fact, self.dearest);
        i128::from(self.weights.data) * data.unwrap_or(0)
            + i128::from(self.weights.price) * i128::from(price)
            + i128::from(self.weights.spread) * i128::from(fill(seats))
    }

    /// What a packing makes unusable, weighed.
    pub(crate) fn of_effect(&self, effect: &Effect) -> i128 {
        i128::from(self.weights.fragmentation) * effect.growth
    }

    /// Whether more of a cluster counts than its price and how full it is.
    pub(crate) fn looks_at_facts(&self) -> bool {
        !self.data.is_empty() || !self.preferred.is_empty()
    }

    /// Likely what the weighing will come to, of pods that each ask for `each`: only to look at
    /// likely clusters first. As if the tightest node were taken, and all that it has left were
    /// unusable.
    pub(crate) fn guess(&self, seats: Seats, each: i64, price: i64) -> i64 {
        let left = seats.tightest.saturating_sub(each);
        let left = left.saturating_mul(1000) / each.max(1);
        let weighed = |weight: u32, amount: i64| i64::from(weight).saturating_mul(amount);
        weighed(self.weights.fragmentation.max(1), left)
            .saturating_add(weighed(self.weights.price, price))
            .saturating_add(weighed(self.weights.spread, fill(seats)))
    }

    /// What the data's distance adds to the guess.
    pub(crate) fn guess_of_data(&self, fact: &ClusterFact) -> i64 {
        let data = self.data.iter().map(|data| distance(fact, data)).min();
        let data = i64::try_from(data.unwrap_or(0)).unwrap_or(i64::MAX);
        i64::from(self.weights.data).saturating_mul(data)
    }

    /// The longest distance between clusters of one gang, weighed.
    pub(crate) fn of_network(&self, clusters: &[&ClusterFact]) -> i128 {
        let pairs = clusters
            .iter()
            .flat_map(|one| clusters.iter().map(|other| distance(one, other)));
        i128::from(self.weights.network) * pairs.max().unwrap_or(0)
    }
}
