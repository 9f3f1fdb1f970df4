//! `spread`: the part of a cluster that is in use, in pods of the job that fit.

use crate::plugins::score::{Score, ScoredJob, Site};

/// See the module.
pub(crate) struct Spread;

impl Score for Spread {
    fn of_cluster(&self, _: &ScoredJob<'_>, site: &Site<'_>) -> i64 {
        let (now, empty) = (site.fitting.now, site.fitting.empty);
        let used = u128::from(empty.saturating_sub(now)) * 1000;
        i64::try_from(used / u128::from(empty.max(1))).unwrap_or(1000)
    }
}
