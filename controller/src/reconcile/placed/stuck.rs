//! Jobs that make no progress: their heartbeat is older than they say it may be. They are evicted and queued again,
//! as after a fault that no rule knows.
//!
//! A job that hangs holds its devices and ends by nothing: no exit code, no condition. Only the job knows what
//! progress is, so it says so itself.

use crate::reconcile::JobPass;
use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::placed::Placed;
use engine::faults::FaultClass;
use engine::{Progress, Reason};

/// Evicts a running job that is stuck.
pub(crate) fn check_heartbeat(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let runs = placed.progress == Progress::Running && !placed.record.adopted;
    let template = pass.mirror.template_of(pass.binding).filter(|_| runs);
    let Some(heartbeat) = template.map(|template| template.heartbeat) else {
        pass.in_flight.timers.runs_since = None;
        return CheckResult::Continue;
    };
    // Neither the wait for nodes nor the pull of an image is the job's own.
    let begun = *pass.in_flight.timers.runs_since.get_or_insert(pass.now);
    let Some(stuck_at) = heartbeat.stuck_at(begun, pass.now) else {
        return CheckResult::Continue;
    };
    if pass.now < stuck_at {
        pass.out.work_queue.add_at(pass.key, stuck_at);
        return CheckResult::Continue;
    }
    let message = format!(
        "it has had no heartbeat for {} s, and says that it needs one every {} s: a fault of class {}; it is \
         queued again",
        pass.now
            .millis_since(heartbeat.at.unwrap_or(begun).max(begun))
            / 1000,
        heartbeat.timeout_ms.unwrap_or_default() / 1000,
        FaultClass::Unknown,
    );
    pass.in_flight.timers.runs_since = None;
    EvictionCause::new(Reason::NoProgress, message).into()
}
