//! `fragmentation`: devices that become unusable for the usual jobs (FGD).

use crate::capacity::PackEffect;
use crate::plugins::score::{Score, ScoredJob, Site};

/// See the module.
pub(crate) struct Fragmentation;

impl Score for Fragmentation {
    fn of_nodes(&self, effect: &PackEffect) -> i128 {
        effect.growth
    }

    /// Assumes that the tightest node is used and that all it has left becomes unusable.
    fn guess(&self, job: &ScoredJob<'_>, site: &Site<'_>) -> i64 {
        let left = site.fitting.tightest.saturating_sub(job.each);
        left.saturating_mul(1000) / job.each.max(1)
    }
}
