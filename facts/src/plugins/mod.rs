//! The names of the plugins that choose clusters, and which of them a policy chooses.
//!
//! Filters decide which clusters may take a job, scores which of them is best. The engine has their code
//! (`engine/src/plugins`), in the order of the lists here; all others know plugins by these lists alone:
//! CapacityPolicies, the simulator and the documents.

mod filters;
mod scores;

pub use filters::{
    API_ENABLEMENT, CLUSTER_AFFINITY, CLUSTER_PAUSED, CLUSTER_READY, DATA_REGION, FILTERS, Filters,
    Holds, SPREAD_CONSTRAINT, TAINT_TOLERATION,
};
pub use scores::{DATA, FRAGMENTATION, IMAGES, NETWORK, PRICE, PlacementWeights, SCORES, SPREAD};

/// The description of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plugin<U> {
    /// Its name in a CapacityPolicy.
    pub name: &'static str,
    /// Its purpose, in a sentence.
    pub about: &'static str,
    /// Its default: the weight of a score, or when a filter applies.
    pub unset: U,
}

/// A name in a CapacityPolicy that no plugin has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no {what}; one of {known} is needed")]
pub struct UnknownPlugin {
    what: &'static str,
    name: String,
    known: String,
}

impl UnknownPlugin {
    fn new(what: &'static str, name: &str, known: impl Iterator<Item = &'static str>) -> Self {
        Self {
            what,
            name: name.to_owned(),
            known: known.collect::<Vec<_>>().join(", "),
        }
    }
}
