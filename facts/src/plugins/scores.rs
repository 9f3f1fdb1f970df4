//! Scores by name, and the weights that a CapacityPolicy gives them.

use super::{Plugin, UnknownPlugin};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Devices that become unusable for the usual jobs (FGD).
pub const FRAGMENTATION: Plugin<u32> = Plugin {
    name: "fragmentation",
    about: "To leave few devices that no usual job can use",
    unset: 100,
};

/// The distance to the job's data.
pub const DATA: Plugin<u32> = Plugin {
    name: "data",
    about: "To be near the clusters that hold its data (muster.io/data-clusters)",
    unset: 10,
};

/// The longest distance between two clusters of one job.
pub const NETWORK: Plugin<u32> = Plugin {
    name: "network",
    about: "To keep the clusters of one job near each other (muster.io/network of the \
            Clusters, else their zones, region and provider)",
    unset: 10,
};

/// The price of a device-hour.
pub const PRICE: Plugin<u32> = Plugin {
    name: "price",
    about: "To be cheap (muster.io/price of the Cluster)",
    unset: 1,
};

/// The part of a cluster that is in use, in pods of the job that fit.
pub const SPREAD: Plugin<u32> = Plugin {
    name: "spread",
    about: "To use clusters evenly",
    unset: 0,
};

/// The nodes that have to pull images of the job.
pub const IMAGES: Plugin<u32> = Plugin {
    name: "images",
    about: "To use nodes that have its images, of those of 256 MiB or more; 100 where all have to pull",
    unset: 1,
};

/// All scores. [`PlacementWeights`] has their weights in the same order.
pub const SCORES: [Plugin<u32>; 6] = [FRAGMENTATION, DATA, NETWORK, PRICE, SPREAD, IMAGES];

/// The weight of each score, relative to the others; zero for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, u32>", into = "BTreeMap<String, u32>")]
pub struct PlacementWeights([u32; SCORES.len()]);

impl Default for PlacementWeights {
    fn default() -> Self {
        Self(SCORES.map(|score| score.unset))
    }
}

impl PlacementWeights {
    /// These weights with another weight for the score `name`.
    ///
    /// # Errors
    /// If no score has that name.
    pub fn with(mut self, name: &str, weight: u32) -> Result<Self, UnknownPlugin> {
        let place = SCORES.iter().position(|plugin| plugin.name == name);
        let known = || SCORES.iter().map(|plugin| plugin.name);
        let place = place.ok_or_else(|| UnknownPlugin::new("score", name, known()))?;
        self.0[place] = weight;
        Ok(self)
    }

    /// The weights, in the order of [`SCORES`].
    #[inline]
    #[must_use]
    pub fn in_order(&self) -> [u32; SCORES.len()] {
        self.0
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
        let named = SCORES.into_iter().zip(weights.0);
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
        assert_eq!(
            weights.with("cost", 1).unwrap_err().to_string(),
            "\"cost\" is no score; one of fragmentation, data, network, price, spread, images is needed"
        );
    }
}
