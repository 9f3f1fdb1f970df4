//! Plugins that choose clusters: filters decide which clusters may take a job, scores which of
//! them is best.
//!
//! A placement runs `FILTERS` in order. Then `SCORES` compare placements over equally many
//! clusters, with the weights of the queue's CapacityPolicy. A plugin is one file below `filters/`
//! or `scores/` and one line in the list; CapacityPolicies, the simulator and the docs then know
//! it. It must give the same result for the same facts: no clock, no I/O, no random numbers.
//!
//! Rules on single nodes are not plugins: [`crate::capacity`] packs by classes of pools, node
//! affinity, taints of nodes and topology domains.

mod distance;
mod filter;
mod filters;
mod score;
mod scores;

pub use filter::{Filters, Holds, filters};
pub use score::{PlacementWeights, scores};

pub(crate) use filter::{Question, refusal, selects, takes_objects};
pub(crate) use score::{FRAGMENTATION, ScoredJob, Site};

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
