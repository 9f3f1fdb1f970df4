//! Scores: which of several placements is better.
//!
//! Each score measures one aim in thousandths, where less is better, and has a weight in the
//! queue's policy. Criteria without a weight come first: fewest clusters, whole topology domains,
//! the queue's preferred clusters.

use super::scores::{Data, Fragmentation, Images, Network, Price, Spread};
use super::{Plugin, UnknownPlugin};
use crate::api::facts::ClusterFact;
use crate::capacity::{FittingPods, PackEffect};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All scores. [`PlacementWeights`] has their weights in the same order.
const SCORES: &[&dyn Score] = &[&Fragmentation, &Data, &Network, &Price, &Spread, &Images];

/// The index of the score that is estimated for clusters before nodes are packed.
pub(crate) const FRAGMENTATION: usize = 0;

const COUNT: usize = SCORES.len();

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
    /// Its name and description.
    fn plugin(&self) -> Plugin<u32>;

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

    /// Whether `of_cluster` reads [`Site::fact`] for this job.
    fn reads_cluster(&self, _job: &ScoredJob<'_>) -> bool {
        false
    }
}

/// The descriptions of all scores.
pub fn scores() -> impl Iterator<Item = Plugin<u32>> {
    SCORES.iter().map(|score| score.plugin())
}

/// The weight of each score, relative to the others; zero for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, u32>", into = "BTreeMap<String, u32>")]
pub struct PlacementWeights([u32; COUNT]);

impl Default for PlacementWeights {
    fn default() -> Self {
        let mut weights = [0; COUNT];
        for (weight, score) in weights.iter_mut().zip(SCORES) {
            *weight = score.plugin().unset;
        }
        Self(weights)
    }
}

impl PlacementWeights {
    /// These weights with another weight for the score `name`.
    ///
    /// # Errors
    /// If no score has that name.
    pub fn with(mut self, name: &str, weight: u32) -> Result<Self, UnknownPlugin> {
        let place = scores().position(|plugin| plugin.name == name);
        let known = || scores().map(|plugin| plugin.name);
        let place = place.ok_or_else(|| UnknownPlugin::new("score", name, known()))?;
        self.0[place] = weight;
        Ok(self)
    }

    /// Each score with its weight.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static dyn Score, u32)> {
        SCORES.iter().copied().zip(self.0)
    }
}

impl TryFrom<BTreeMap<String, u32>> for PlacementWeights {
    type Error = UnknownPlugin;

    fn try_from(named: BTreeMap<String, u32>) -> Result<Self, Self::Error> {
        let mut named = named.into_iter();
        named.try_fold(Self::default(), |all, (name, weight)| {
            all.with(&name, weight)
        })
    }
}

impl From<PlacementWeights> for BTreeMap<String, u32> {
    fn from(weights: PlacementWeights) -> Self {
        let named = scores().zip(weights.0);
        named
            .map(|(plugin, weight)| (plugin.name.to_owned(), weight))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn weights_are_kept_by_name() {
        let weights = PlacementWeights::default().with("price", 7).unwrap();
        let named = BTreeMap::from(weights);
        assert_eq!(
            format!("{named:?}"),
            r#"{"data": 10, "fragmentation": 100, "images": 1, "network": 10, "price": 7, "spread": 0}"#
        );
        assert_eq!(PlacementWeights::try_from(named), Ok(weights));
        assert_eq!(SCORES[FRAGMENTATION].plugin().name, "fragmentation");
        assert_eq!(
            weights.with("cost", 1).unwrap_err().to_string(),
            "\"cost\" is no score; one of fragmentation, data, network, price, spread, images is needed"
        );
    }
}
