//! `network`: the longest distance between two clusters of one job.

use crate::api::facts::ClusterFact;
use crate::plugins::Plugin;
use crate::plugins::distance::distance;
use crate::plugins::score::{Score, ScoredJob};

/// See the module.
pub(crate) struct Network;

impl Score for Network {
    fn plugin(&self) -> Plugin<u32> {
        Plugin {
            name: "network",
            about: "To keep the clusters of one job near each other (muster.io/network of the \
                    Clusters, else their zones, region and provider)",
            unset: 10,
        }
    }

    fn of_clusters(&self, job: &ScoredJob<'_>, clusters: &[&ClusterFact]) -> i64 {
        let distances = clusters.iter().flat_map(|one| {
            let others = clusters.iter();
            others.map(|other| distance(one, other, job.farthest))
        });
        distances.max().unwrap_or(0)
    }
}
