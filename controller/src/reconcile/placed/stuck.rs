//! Jobs that make no progress: their heartbeat is older than they say it may be. They are evicted and queued again,
//! as after a fault that no rule knows.
//!
//! A job that hangs holds its devices and ends by nothing: no exit code, no condition. Only the job knows what
//! progress is, so it says so itself.

use crate::reconcile::Reconciler;
use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::placed::Placed;
use engine::faults::FaultClass;
use engine::{Progress, Reason};

impl Reconciler {
    /// Evicts a running job that is stuck.
    pub(crate) fn check_heartbeat(&mut self, placed: &Placed<'_>) -> CheckResult {
        let ctx = placed.ctx;
        let runs = placed.progress == Progress::Running && !placed.record.adopted;
        let template = self.mirror.template_of(&ctx.binding).filter(|_| runs);
        let Some(heartbeat) = template.map(|template| template.heartbeat) else {
            self.in_flight_of(ctx.key).runs_since = None;
            return CheckResult::Continue;
        };
        // Neither the wait for nodes nor the pull of an image is the job's own.
        let begun = *self.in_flight_of(ctx.key).runs_since.get_or_insert(ctx.now);
        let Some(stuck_at) = heartbeat.stuck_at(begun, ctx.now) else {
            return CheckResult::Continue;
        };
        if ctx.now < stuck_at {
            self.work_queue.add_at(ctx.key, stuck_at);
            return CheckResult::Continue;
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
        self.in_flight_of(ctx.key).runs_since = None;
        EvictionCause::new(Reason::NoProgress, message).into()
    }
}
