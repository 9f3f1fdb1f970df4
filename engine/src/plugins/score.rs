//! Scores: which of several placements is the better one.
//!
//! Each counts one aim in thousandths, less being better, and is weighed as the queue's policy
//! says. Before them stand what no weight changes: the fewest clusters, whole topology domains,
//! the queue's preferred clusters.

use super::scores::{Data, Fragmentation, Network, Price, Spread};
use super::{Plugin, UnknownPlugin};
use crate::api::facts::ClusterFact;
use crate::capacity::{FittingPods, PackEffect};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All scores. The order means nothing but where their weights are kept.
const SCORES: &[&dyn Score] = &[&Fragmentation, &Data, &Network, &Price, &Spread];

/// The place of the one that tells equal clusters apart before any is looked at.
pub(crate) const FRAGMENTATION: usize = 0;

const COUNT: usize = SCORES.len();

/// What is the same for all placements of a job.
pub(crate) struct ScoredJob<'a> {
    /// The clusters that hold its data.
    pub(crate) data: Vec<&'a ClusterFact>,
    /// The longest time between clusters that any tells, in microseconds.
    pub(crate) farthest: u64,
    /// What each pod of its largest role asks for, of what [`Site::fitting`] counts in.
    pub(crate) each: i64,
}

/// A cluster that takes a job, or one of its parts, whatever nodes of it are used.
pub(crate) struct Site<'a> {
    /// `None` where no score that counts asks for it.
    pub(crate) fact: Option<&'a ClusterFact>,
    pub(crate) fitting: FittingPods,
    /// In thousandths of the dearest cluster's.
    pub(crate) price: i64,
}

/// One aim. What it does not say of a cluster, a packing or a set of clusters is 0.
pub(crate) trait Score: Sync {
    /// Its name and what it is for.
    fn plugin(&self) -> Plugin<u32>;

    /// Of a cluster, whatever nodes of it are used.
    fn of_cluster(&self, _job: &ScoredJob<'_>, _site: &Site<'_>) -> i64 {
        0
    }

    /// Of the nodes that are used.
    fn of_nodes(&self, _effect: &PackEffect) -> i128 {
        0
    }

    /// Of the clusters of one job.
    fn of_clusters(&self, _job: &ScoredJob<'_>, _clusters: &[&ClusterFact]) -> i64 {
        0
    }

    /// Likely what it says of a cluster and its nodes together: only to look at likely clusters
    /// first.
    fn guess(&self, job: &ScoredJob<'_>, site: &Site<'_>) -> i64 {
        self.of_cluster(job, site)
    }

    /// Whether it reads [`Site::fact`] for this job.
    fn reads_cluster(&self, _job: &ScoredJob<'_>) -> bool {
        false
    }
}

/// What people read of each score.
pub fn scores() -> impl Iterator<Item = Plugin<u32>> {
    SCORES.iter().map(|score| score.plugin())
}

/// How much each score counts: relative whole numbers, zero for not at all.
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
    /// The same with another weight for the score of this name.
    ///
    /// # Errors
    /// Where no score has that name.
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
            r#"{"data": 10, "fragmentation": 100, "network": 10, "price": 7, "spread": 0}"#
        );
        assert_eq!(PlacementWeights::try_from(named), Ok(weights));
        assert_eq!(SCORES[FRAGMENTATION].plugin().name, "fragmentation");
        assert_eq!(
            weights.with("cost", 1).unwrap_err().to_string(),
            "\"cost\" is no score; one of fragmentation, data, network, price, spread is needed"
        );
    }
}
