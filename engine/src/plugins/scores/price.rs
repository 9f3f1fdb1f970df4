//! `price`: the price of a device-hour.

use crate::plugins::score::{Score, ScoredJob, Site};

/// See the module.
pub(crate) struct Price;

impl Score for Price {
    fn of_cluster(&self, _: &ScoredJob<'_>, site: &Site<'_>) -> i64 {
        site.price
    }
}
