//! `network`: the longest distance between two clusters of one job.

use crate::plugins::distance::distance;
use crate::plugins::score::{Score, ScoredJob};
use facts::ClusterFact;

/// See the module.
pub(crate) struct Network;

impl Score for Network {
    fn of_clusters(&self, job: &ScoredJob<'_>, clusters: &[&ClusterFact]) -> i64 {
        let distances = clusters.iter().flat_map(|one| {
            let others = clusters.iter();
            others.map(|other| distance(one, other, job.farthest))
        });
        distances.max().unwrap_or(0)
    }
}
