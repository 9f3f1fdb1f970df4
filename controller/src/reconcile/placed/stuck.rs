//! Jobs that make no progress: their heartbeat is older than they say it may be. They are evicted and queued again,
//! as after a fault that no rule knows.
//!
//! A job that hangs holds its devices and ends by nothing: no exit code, no condition. Only the job knows what
//! progress is, so it says so itself.

use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::record::AdmissionRecord;
use engine::faults::FaultClass;
use engine::{Progress, Reason, Time};

/// What a job says of its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Heartbeat {
    /// Its last heartbeat, if there was one.
    pub(crate) at: Option<Time>,
    /// Milliseconds after which it is stuck without another one; `None` if it never is.
    pub(crate) timeout_ms: Option<i64>,
}

impl Heartbeat {
    /// Returns when the attempt that runs since `begun` is stuck. A heartbeat of an earlier attempt, or of a clock
    /// that is ahead, counts as one at the nearest time of this attempt.
    fn stuck_at(self, begun: Time, now: Time) -> Option<Time> {
        let last = self.at.map_or(begun, |at| at.min(now)).max(begun);
        Some(last.after(self.timeout_ms?))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_counts_within_its_attempt_only() {
        let stuck_at = |at: Option<i64>, timeout_ms| {
            let heartbeat = Heartbeat {
                at: at.map(Time),
                timeout_ms,
            };
            heartbeat.stuck_at(Time(100), Time(200)).map(|at| at.0)
        };
        assert_eq!(stuck_at(Some(150), Some(50)), Some(200));
        assert_eq!(
            stuck_at(Some(10), Some(50)),
            Some(150),
            "an earlier attempt"
        );
        assert_eq!(
            stuck_at(Some(900), Some(50)),
            Some(250),
            "a clock that is ahead"
        );
        assert_eq!(stuck_at(None, Some(50)), Some(150));
        assert_eq!(stuck_at(Some(150), None), None);
    }
}
