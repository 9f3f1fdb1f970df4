//! Plugins that choose clusters: filters decide which clusters may take a job, scores which of
//! them is best.
//!
//! A placement runs `FILTERS` in order. Then `SCORES` compare placements over equally many
//! clusters, with the weights of the queue's CapacityPolicy. A plugin is one file below `filters/`
//! or `scores/`, one line in the list, and its description in [`facts::plugins`], from which CapacityPolicies, the
//! simulator and the docs know it. It must give the same result for the same facts: no clock, no I/O, no random
//! numbers.
//!
//! Rules on single nodes are not plugins: [`crate::capacity`] packs by classes of pools, node
//! affinity, taints of nodes and topology domains.

mod distance;
mod filter;
mod filters;
mod score;
mod scores;

pub(crate) use filter::{Question, refusal, selects, takes_objects};
pub(crate) use score::{FRAGMENTATION, ScoredJob, Site, weighted};
