//! `price`: the price of a device-hour.

use crate::plugins::Plugin;
use crate::plugins::score::{Score, ScoredJob, Site};

/// See the module.
pub(crate) struct Price;

impl Score for Price {
    fn plugin(&self) -> Plugin<u32> {
        Plugin {
            name: "price",
            about: "To be cheap (muster.io/price of the Cluster)",
            unset: 1,
        }
    }

    fn of_cluster(&self, _: &ScoredJob<'_>, site: &Site<'_>) -> i64 {
        site.price
    }
}
