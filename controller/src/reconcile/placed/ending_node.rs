//! Jobs on nodes that end: they are evicted shortly before, so that they can save their work.

use crate::ending_nodes::MOVE_BEFORE_MS;
use crate::reconcile::Reconciler;
use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::placed::Placed;
use crds::record::{AdmissionRecord, timestamp};
use engine::{ClusterName, JobKey, NodeName, Reason, Time};

/// Milliseconds between two looks at the jobs on nodes that end.
const LOOK_MS: i64 = 5_000;
/// Milliseconds before the end of a node by which a job has to declare its own end to stay there.
const SPARE_MS: i64 = 60_000;

impl Reconciler {
    /// Tells the engine for how long nodes are left, and reconciles the jobs on those that end soon.
    pub(crate) fn leave_ending_nodes(&mut self, now: Time) {
        for (cluster, node) in self.ending_nodes.changed(now) {
            if let Some(mut fact) = self.engine.fleet().node(&cluster, &node).cloned() {
                self.ending_nodes.mark(&mut fact, now);
                self.apply(engine::Event::NodeUpserted(fact));
            }
        }
        let is_recent = |at: Time| now.millis_since(at) < LOOK_MS;
        if self.looked_at_ends.is_some_and(is_recent) {
            return;
        }
        self.looked_at_ends = Some(now);
        for (cluster, node) in self.ending_nodes.all_to_leave(now) {
            self.work_queue
                .extend(self.engine.fleet().jobs_on(cluster, node));
        }
    }

    /// Evicts a job that has pods on a node which ends soon, unless it declares to end before.
    pub(crate) fn check_ending_node(&mut self, placed: &Placed<'_>) -> CheckResult {
        let (ctx, record) = (placed.ctx, &placed.record);
        if record.adopted || !self.ending_nodes.is_any() {
            return CheckResult::Continue;
        }
        let Some((cluster, node, ends_at)) = self.ending_node_of(ctx.key, record, ctx.now) else {
            return CheckResult::Continue;
        };
        let declared = self
            .last_facts
            .get(ctx.key)
            .and_then(|fact| fact.expected_duration_ms);
        let begun = Time(record.time.as_millisecond());
        let own_end = declared.map(|lasts| begun.after(lasts));
        let in_time = |end: &Time| ctx.now < *end && end.after(SPARE_MS) <= ends_at;
        if let Some(end) = own_end.filter(in_time) {
            self.work_queue.add_at(ctx.key, end);
            return CheckResult::Continue;
        }
        let message = format!(
            "node {node} of {cluster} ends at {}, and pods on it have {} s to save their work; it is queued again",
            timestamp(ends_at),
            ends_at.millis_since(ctx.now).min(MOVE_BEFORE_MS) / 1000,
        );
        EvictionCause::new(Reason::NodeEnding, message).into()
    }

    /// Returns the first node that ends soon on which a job has pods, and when that is.
    fn ending_node_of(
        &self,
        job: &JobKey,
        record: &AdmissionRecord,
        now: Time,
    ) -> Option<(ClusterName, NodeName, Time)> {
        record.clusters.iter().find_map(|share| {
            let cluster = &share.name;
            let mut nodes = self.ending_nodes.to_leave(cluster, now);
            let (node, ends_at) =
                nodes.find(|(node, _)| self.engine.fleet().jobs_on(cluster, node).contains(job))?;
            let node = node.clone();
            Some((cluster.clone(), node, ends_at))
        })
    }
}
