//! Request shapes, for tests of the store.

use crate::pending::shapes::RequestShape;
use facts::Demand;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The shape of a job with this demand and no wishes.
pub(crate) fn shape(demand: Demand) -> RequestShape {
    RequestShape {
        total: demand.total().unwrap_or_default(),
        demand: Arc::new(demand),
        duration: None,
        user: None,
        namespace: None,
        max_clusters: None,
        avoid: BTreeSet::new(),
        preempts: true,
    }
}
