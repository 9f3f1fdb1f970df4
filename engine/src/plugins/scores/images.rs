//! `images`: the nodes that have to pull images of the job.

use crate::plugins::score::{Score, ScoredJob, Site};

/// See the module.
pub(crate) struct Images;

/// What it counts if all nodes have to pull, in thousandths: the pull delays the job by minutes. At the weight of the
/// price, a cluster that is a tenth of the highest price cheaper is as good.
const ALL: i64 = 100;

impl Score for Images {
    fn of_cluster(&self, _: &ScoredJob<'_>, site: &Site<'_>) -> i64 {
        site.without_images * ALL / 1000
    }
}
