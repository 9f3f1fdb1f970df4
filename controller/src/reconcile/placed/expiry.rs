//! Deletes finished jobs whose template says how long they stay after their end. Only the control plane
//! deletes them.
//!
//! If a member deleted its copy, Karmada would create it again, and the job would run again. An override
//! turns the time off in members whose operator applies it. The scheduler writes this override before the
//! placement; this module writes it for a time that was added later.

use crate::facts::holds::over_before;
use crate::messages::action::Effect;
use crate::messages::job_event::JobEvent;
use crate::mirror::binding::own_record;
use crate::reconcile::placed::{Placed, outcome, statuses};
use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::karmada::ResourceBinding;
use engine::{Reason, Time};
use workload::TimeToLive;

/// Milliseconds after which a failed deletion is tried again.
const RETRY_MS: i64 = 30_000;

impl Reconciler {
    /// Deletes a finished job once its time is over.
    pub(crate) fn expire(&mut self, placed: &Placed<'_>) {
        let (ctx, record) = (placed.ctx, &placed.record);
        let Some((ttl, version)) = self.time_to_live(ctx) else {
            return;
        };
        if record.adopted || ttl.by_control_plane {
            return;
        }
        if let Some(path) = ttl.in_members
            && !std::mem::replace(&mut self.in_flight_of(ctx.key).kept_alive, true)
        {
            let job = ctx.job();
            self.push(Effect::KeepInMembers { job, path });
        }
        if let Some(ended_at) = ended_at(&ctx.binding) {
            self.delete_at(ctx, ended_at.after(ttl.after_ms), version);
        }
    }

    /// Deletes a job whose parts were stopped because it had ended, once its time is over. Its parts are gone
    /// and report no end, so no other component would delete it.
    pub(crate) fn expire_stopped(&mut self, ctx: &ReconcileCtx<'_>) {
        // An aborted job may be resumed.
        let over = over_before(&ctx.binding).filter(|over| over.reason != Reason::Aborted);
        let stopped = over.and_then(|_| own_record(&ctx.binding));
        let ended_at = stopped.and_then(|record| record.evicted_at);
        if let (Some(at), Some((ttl, version))) = (ended_at, self.time_to_live(ctx)) {
            let over = Time(at.as_millisecond()).after(ttl.after_ms);
            self.delete_at(ctx, over, version);
        }
    }

    /// Returns how long a job stays and the version of its template, unless it is being deleted.
    fn time_to_live(&self, ctx: &ReconcileCtx<'_>) -> Option<(TimeToLive, String)> {
        let template = self.mirror.template_of(&ctx.binding)?;
        let ttl = template.time_to_live.filter(|_| !template.deleting)?;
        Some((ttl, template.resource_version.clone()))
    }

    fn delete_at(&mut self, ctx: &ReconcileCtx<'_>, over: Time, version: String) {
        if ctx.now < over {
            return self.work_queue.add_at(ctx.key, over);
        }
        // The deletion may be refused, or another client may be faster.
        self.work_queue.add_at(ctx.key, ctx.now.after(RETRY_MS));
        self.delete_template(ctx, version);
    }

    /// Deletes the template of a job in this version; if it has changed, it is reconciled again.
    fn delete_template(&mut self, ctx: &ReconcileCtx<'_>, resource_version: String) {
        let message = "ttlSecondsAfterFinished has passed since its end".to_owned();
        self.record_event(ctx, JobEvent::normal(Reason::Finished, "Expire", message));
        let job = ctx.job();
        self.push(Effect::DeleteTemplate {
            job,
            resource_version,
        });
    }
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
