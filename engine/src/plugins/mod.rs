//! What decides about clusters, by name: filters say which may take a job at all, scores which
//! of those that could is the best.
//!
//! A placement asks them in the order of their lists: `FILTERS`, then, among
//! placements over equally many clusters, `SCORES`, each weighed as the queue's
//! CapacityPolicy says. Facts flow in; a refusal in words or a number flows out. Each stands in a
//! file of its own below `filters/` and `scores/`: another one is another file and its line in
//! the list, and is then known to CapacityPolicies, to the simulator and to the docs.
//!
//! What depends on single nodes is not here: classes of pools, node affinity, taints of nodes
//! and topology domains are what [`crate::capacity`] packs by. A plugin must never read a clock, do
//! I/O or draw at random, and must say the same of the same facts.

mod distance;
mod filter;
mod filters;
mod score;
mod scores;

pub use filter::{Filters, Holds, filters};
pub use score::{PlacementWeights, scores};

pub(crate) use filter::{Question, refusal, selects};
pub(crate) use score::{FRAGMENTATION, ScoredJob, Site};

/// What people read of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plugin<U> {
    /// Its name in a CapacityPolicy.
    pub name: &'static str,
    /// What it is for, in a sentence.
    pub about: &'static str,
    /// What holds of it where a policy says nothing.
    pub unset: U,
}

/// A name that no plugin has which could stand there.
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
