//! On which nodes of a cluster a job would start soonest.

use crate::backfill::expected_start;
use crate::backfill::plan::reserved_on;
use crate::capacity::Sites;
use crate::placement::put::put_all;
use crate::placement::ways::{Unreserved, ways};
use crate::reservation::store::ReservedNode;
use crate::state::Inputs;
use facts::{ClusterName, Demand, Time};

/// Starts that are less than this away are as good as each other, in milliseconds.
const SOON_MS: i64 = 10 * 60_000;

/// How soon a start is, in octaves of the time until then; the largest number if it is not known.
pub(crate) fn octave(inputs: Inputs<'_>, start: Option<Time>) -> u32 {
    let parts = start.map(|start| start.millis_since(inputs.now) / SOON_MS);
    parts.map_or(u32::MAX, |parts| (parts + 1).ilog2())
}

/// Returns true if a job starts so much sooner that its reservation moves: in less than seven tenths of the time that
/// is left until the start that it has. Ends err, and each move gives up nodes that are free already.
pub(crate) fn is_clearly_sooner(
    inputs: Inputs<'_>,
    found: Option<Time>,
    kept: Option<Time>,
) -> bool {
    let left = |start: Time| i128::from(start.millis_since(inputs.now).max(0));
    match (found, kept) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(found), Some(kept)) => {
            left(kept) >= i128::from(SOON_MS) && 10 * left(found) < 7 * left(kept)
        }
    }
}

/// Nodes for all pods of a job.
pub(crate) struct FoundNodes {
    pub(crate) nodes: Vec<ReservedNode>,
    /// What has to become free there.
    pub(crate) cost: i128,
    /// When all of them will be free, as far as that is known.
    pub(crate) start: Option<Time>,
}

impl FoundNodes {
    /// The nodes of `sites`, at a cost.
    pub(crate) fn on(inputs: Inputs<'_>, cost: i128, sites: &Sites<'_>) -> Self {
        let nodes = reserved_on(sites);
        let start = expected_start::start_on(inputs, &nodes);
        Self { nodes, cost, start }
    }
}

/// The best nodes of a cluster for all pods of a job: those on which it starts much sooner, or else where the least has
/// to become free.
pub(crate) fn best_in<'a>(
    inputs: Inputs<'a>,
    demand: &'a Demand,
    cluster: &'a ClusterName,
    left: Unreserved<'_>,
) -> Option<FoundNodes> {
    let filled = ways(inputs, demand, cluster, left).into_iter();
    let choices = filled.filter_map(|mut sites| {
        let cost = put_all(&inputs.capacity, demand, &mut sites)?;
        Some(FoundNodes::on(inputs, cost, &sites))
    });
    choices.min_by_key(|found| (octave(inputs, found.start), found.cost))
}
