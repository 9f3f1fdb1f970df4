//! On which nodes of a cluster a job would start soonest.

use crate::api::demand::Demand;
use crate::api::ids::{ClusterName, Time};
use crate::backfill::expected_start;
use crate::backfill::plan::reserved_on;
use crate::placement::put::put_all;
use crate::placement::ways::{Unreserved, ways};
use crate::reservation::store::ReservedNode;
use crate::state::Inputs;

/// Starts that are less than this away are as good as each other, in milliseconds.
const SOON_MS: i64 = 10 * 60_000;

/// How soon a job starts on some nodes, in octaves of the time until then; the largest number if that is not known.
pub(crate) fn octave(inputs: Inputs<'_>, nodes: &[ReservedNode]) -> u32 {
    octave_until(inputs, expected_start::start_on(inputs, nodes))
}

/// The same of a start.
pub(crate) fn octave_until(inputs: Inputs<'_>, start: Option<Time>) -> u32 {
    let parts = start.map(|start| start.millis_since(inputs.now) / SOON_MS);
    parts.map_or(u32::MAX, |parts| (parts + 1).ilog2())
}

/// Whether a job starts so much sooner that its reservation moves: in less than seven tenths of the time that is left
/// until the start that it has. Ends err, and each move gives up nodes that are free already.
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

/// The best nodes of a cluster for all pods of a job: those on which it starts much sooner, or else where the least has
/// to become free. How soon, how much, and which.
pub(crate) fn best_in<'a>(
    inputs: Inputs<'a>,
    demand: &'a Demand,
    cluster: &'a ClusterName,
    left: Unreserved<'_>,
) -> Option<(u32, i128, Vec<ReservedNode>)> {
    let filled = ways(inputs, demand, cluster, left).into_iter();
    let choices = filled.filter_map(|mut sites| {
        let cost = put_all(&inputs.capacity, demand, &mut sites)?;
        let nodes = reserved_on(&sites);
        Some((octave(inputs, &nodes), cost, nodes))
    });
    choices.min_by_key(|(sooner, cost, _)| (*sooner, *cost))
}
