//! Deletes finished jobs whose template says how long they stay after their end. Only the control plane
//! deletes them.
//!
//! If a member deleted its copy, Karmada would create it again, and the job would run again. An override
//! turns the time off in members whose operator applies it. The scheduler writes this override before the
//! placement; this module writes it for a time that was added later.

use crate::facts::holds::over_before;
use crate::messages::action::Effect;
use crate::messages::job_event::JobEvent;
use crate::mirror::Mirror;
use crate::mirror::binding::own_record;
use crate::reconcile::JobPass;
use crate::reconcile::placed::{Placed, outcome, statuses};
use crds::karmada::ResourceBinding;
use engine::{Reason, Time};
use workload::TimeToLive;

/// Milliseconds after which a failed deletion is tried again.
const RETRY_MS: i64 = 30_000;

/// Deletes a finished job once its time is over.
pub(crate) fn expire(pass: &mut JobPass<'_>, placed: &Placed) {
    let record = &placed.record;
    let Some((ttl, version)) = time_to_live(pass.mirror, pass.binding) else {
        return;
    };
    if record.adopted || ttl.by_control_plane {
        return;
    }
    if let Some(path) = ttl.in_members
        && !std::mem::replace(&mut pass.in_flight.end.kept_alive, true)
    {
        let job = pass.bound_job();
        pass.push(Effect::KeepInMembers { job, path });
    }
    if let Some(ended_at) = ended_at(pass.binding) {
        delete_at(pass, ended_at.after(ttl.after_ms), version);
    }
}

/// Deletes a job whose parts were stopped because it had ended, once its time is over. Its parts are gone
/// and report no end, so no other component would delete it.
pub(crate) fn expire_stopped(pass: &mut JobPass<'_>) {
    // An aborted job may be resumed.
    let over = over_before(pass.binding).filter(|over| over.reason != Reason::Aborted);
    let stopped = over.and_then(|_| own_record(pass.binding));
    let ended_at = stopped.and_then(|record| record.evicted_at);
    if let (Some(at), Some((ttl, version))) = (ended_at, time_to_live(pass.mirror, pass.binding)) {
        let over = Time(at.as_millisecond()).after(ttl.after_ms);
        delete_at(pass, over, version);
    }
}

/// Returns how long a job stays and the version of its template, unless it is being deleted.
fn time_to_live(mirror: &Mirror, binding: &ResourceBinding) -> Option<(TimeToLive, String)> {
    let template = mirror.template_of(binding)?;
    let ttl = template.time_to_live.filter(|_| !template.deleting)?;
    Some((ttl, template.resource_version.clone()))
}

fn delete_at(pass: &mut JobPass<'_>, over: Time, version: String) {
    if pass.now < over {
        return pass.out.work_queue.add_at(pass.key, over);
    }
    // The deletion may be refused, or another client may be faster.
    pass.out
        .work_queue
        .add_at(pass.key, pass.now.after(RETRY_MS));
    delete_template(pass, version);
}

/// Deletes the template of a job in this version; if it has changed, it is reconciled again.
fn delete_template(pass: &mut JobPass<'_>, resource_version: String) {
    let message = "ttlSecondsAfterFinished has passed since its end".to_owned();
    pass.record_event(JobEvent::normal(Reason::Finished, "Expire", message));
    let job = pass.bound_job();
    pass.push(Effect::DeleteTemplate {
        job,
        resource_version,
    });
}

/// Returns when the last part of a job ended; `None` if a part has not ended or has no time.
fn ended_at(binding: &ResourceBinding) -> Option<Time> {
    if !outcome(binding).is_finished() {
        return None;
    }
    let resource = &binding.spec.resource;
    let ends = statuses(binding).into_iter().map(|status| {
        let at = workload::ended_at(&resource.api_version, &resource.kind, &status)?;
        let at: jiff::Timestamp = at.parse().ok()?;
        Some(Time(at.as_millisecond()))
    });
    ends.collect::<Option<Vec<_>>>()?.into_iter().max()
}
