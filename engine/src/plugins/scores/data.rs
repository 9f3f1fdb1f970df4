//! `data`: the distance to the job's data.

use crate::plugins::distance::distance;
use crate::plugins::score::{Score, ScoredJob, Site};

/// See the module.
pub(crate) struct Data;

impl Score for Data {
    fn of_cluster(&self, job: &ScoredJob<'_>, site: &Site<'_>) -> i64 {
        let Some(fact) = site.fact else { return 0 };
        let data = job.data.iter();
        let distances = data.map(|data| distance(fact, data, job.farthest));
        distances.min().unwrap_or(0)
    }

    fn reads_cluster(&self, job: &ScoredJob<'_>) -> bool {
        !job.data.is_empty()
    }
}
