//! Scores: which of several placements is better.
//!
//! Each score measures one aim in thousandths, where less is better, and has a weight in the
//! queue's policy. Criteria without a weight come first: fewest clusters, whole topology domains,
//! the queue's preferred clusters.

use super::scores::{Data, Fragmentation, Images, Network, Price, Spread};
use crate::capacity::{FittingPods, PackEffect};
use facts::ClusterFact;
use facts::plugins::{self, PlacementWeights, Plugin};

/// All scores, each with its name, in the order of [`plugins::SCORES`].
static SCORES: [(Plugin<u32>, &dyn Score); plugins::SCORES.len()] = [
    (plugins::FRAGMENTATION, &Fragmentation),
    (plugins::DATA, &Data),
    (plugins::NETWORK, &Network),
    (plugins::PRICE, &Price),
    (plugins::SPREAD, &Spread),
    (plugins::IMAGES, &Images),
];

/// The index of the score that is estimated for clusters before nodes are packed.
pub(crate) const FRAGMENTATION: usize = 0;

/// The input of scores that is the same for all placements of a job.
pub(crate) struct ScoredJob<'a> {
    /// The clusters that have its data.
    pub(crate) data: Vec<&'a ClusterFact>,
    /// The longest round-trip time between clusters that is known, in microseconds.
    pub(crate) farthest: u64,
    /// The request of each pod of its largest role, in the resource that [`Site::fitting`] counts.
    pub(crate) each: i64,
}

/// A cluster that could take a job or one of its parts.
pub(crate) struct Site<'a> {
    /// `None` if no score with a weight reads it.
    pub(crate) fact: Option<&'a ClusterFact>,
    pub(crate) fitting: FittingPods,
    /// In thousandths of the most expensive cluster's.
    pub(crate) price: i64,
    /// Of the nodes that it would use, how many have to pull an image of its largest role, in thousandths.
    pub(crate) without_images: i64,
}

/// One aim of placement. The score of a placement is the sum of its methods, which default to 0.
pub(crate) trait Score: Sync {
    /// The score of a cluster, whichever of its nodes are used.
    fn of_cluster(&self, _job: &ScoredJob<'_>, _site: &Site<'_>) -> i64 {
        0
    }

    /// The score of the nodes that are used.
    fn of_nodes(&self, _effect: &PackEffect) -> i128 {
        0
    }

    /// The score of the set of clusters of one job.
    fn of_clusters(&self, _job: &ScoredJob<'_>, _clusters: &[&ClusterFact]) -> i64 {
        0
    }

    /// An estimate of the score of a cluster and its nodes, by which clusters are tried in order.
    fn guess(&self, job: &ScoredJob<'_>, site: &Site<'_>) -> i64 {
        self.of_cluster(job, site)
    }

    /// Returns true if `of_cluster` reads [`Site::fact`] for this job.
    fn reads_cluster(&self, _job: &ScoredJob<'_>) -> bool {
        false
    }
}

/// Each score with its weight.
pub(crate) fn weighted(
    weights: &PlacementWeights,
) -> impl Iterator<Item = (&'static dyn Score, u32)> {
    let scores = SCORES.iter().map(|(_, score)| *score);
    scores.zip(weights.in_order())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_in_the_order_of_their_names() {
        let names = SCORES.iter().map(|(plugin, _)| *plugin);
        assert!(names.eq(plugins::SCORES));
        assert_eq!(SCORES[FRAGMENTATION].0, plugins::FRAGMENTATION);
    }
}
