//! Jobs on nodes that end: they are evicted shortly before, so that they can save their work.

use crate::ending_nodes::MOVE_BEFORE_MS;
use crate::reconcile::JobPass;
use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::placed::Placed;
use crds::record::{AdmissionRecord, timestamp};
use engine::{ClusterName, JobKey, NodeName, Reason, Time};

/// Milliseconds before the end of a node by which a job has to declare its own end to stay there.
const SPARE_MS: i64 = 60_000;

/// Evicts a job that has pods on a node which ends soon, unless it declares to end before.
pub(crate) fn check_ending_node(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let record = &placed.record;
    if record.adopted || !pass.fleet.ending_nodes.is_any() {
        return CheckResult::Continue;
    }
    let Some((cluster, node, ends_at)) = ending_node_of(pass, pass.key, record) else {
        return CheckResult::Continue;
    };
    let declared = pass
        .jobs
        .last_facts
        .get(pass.key)
        .and_then(|fact| fact.expected_duration_ms);
    let begun = Time(record.time.as_millisecond());
    let own_end = declared.map(|lasts| begun.after(lasts));
    let in_time = |end: &Time| pass.now < *end && end.after(SPARE_MS) <= ends_at;
    if let Some(end) = own_end.filter(in_time) {
        pass.out.work_queue.add_at(pass.key, end);
        return CheckResult::Continue;
    }
    let message = format!(
        "node {node} of {cluster} ends at {}, and pods on it have {} s to save their work; it is queued again",
        timestamp(ends_at),
        ends_at.millis_since(pass.now).min(MOVE_BEFORE_MS) / 1000,
    );
    EvictionCause::new(Reason::NodeEnding, message).into()
}

/// Returns the first node that ends soon on which a job has pods, and when that is.
fn ending_node_of(
    pass: &JobPass<'_>,
    job: &JobKey,
    record: &AdmissionRecord,
) -> Option<(ClusterName, NodeName, Time)> {
    record.clusters.iter().find_map(|share| {
        let cluster = &share.name;
        let mut nodes = pass.fleet.ending_nodes.to_leave(cluster, pass.now);
        let (node, ends_at) =
            nodes.find(|(node, _)| pass.engine.fleet().jobs_on(cluster, node).contains(job))?;
        let node = node.clone();
        Some((cluster.clone(), node, ends_at))
    })
}
