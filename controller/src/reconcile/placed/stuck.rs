//! Jobs that make no progress: their heartbeat is older than they say it may be. They are evicted and queued again,
//! as after a fault that no rule knows.
//!
//! A job that hangs holds its devices and ends by nothing: no exit code, no condition. Only the job knows what
//! progress is, so it says so itself.

use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::record::AdmissionRecord;
use engine::faults::FaultClass;
use engine::{Progress, Reason, Time};

impl Reconciler {
    /// Evicts a running job that is stuck. Returns true if it did.
    pub(crate) fn left_without_progress(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        record: &AdmissionRecord,
        progress: Progress,
    ) -> bool {
        let runs = progress == Progress::Running && !record.adopted;
        let template = self.mirror.template_of(&ctx.binding).filter(|_| runs);
        let Some(heartbeat) = template.map(|template| template.heartbeat) else {
            return self.begins_to_run(ctx, None);
        };
        // Neither the wait for nodes nor the pull of an image is the job's own.
        let begun = self.in_flight_of(ctx.key).runs_since;
        let begun = begun.unwrap_or(ctx.now);
        self.begins_to_run(ctx, Some(begun));
        let Some(stuck_at) = heartbeat.stuck_at(begun, ctx.now) else {
            return false;
        };
        if ctx.now < stuck_at {
            self.requeue_at(ctx.key, stuck_at);
            return false;
        }
        let message = format!(
            "it has had no heartbeat for {} s, and says that it needs one every {} s: a fault of class {}; it is \
             queued again",
            ctx.now
                .millis_since(heartbeat.at.unwrap_or(begun).max(begun))
                / 1000,
            heartbeat.timeout_ms.unwrap_or_default() / 1000,
            FaultClass::Unknown,
        );
        self.apply_ending(ctx, Reason::NoProgress, &message);
        self.evict(ctx, record, Reason::NoProgress, &message);
        self.begins_to_run(ctx, None);
        true
    }

    /// Notes since when this process sees the job run. Returns false.
    fn begins_to_run(&mut self, ctx: &ReconcileCtx<'_>, since: Option<Time>) -> bool {
        self.in_flight_of(ctx.key).runs_since = since;
        false
    }
}
