//! Jobs whose policy makes members keep their pods (`preserveResourcesOnDeletion`).
//!
//! The Works of such a job go and its pods stay: its charge would end while it runs, and an evicted job
//! would run twice. So
//!
//! 1. a pending job is not admitted before its policy has changed;
//! 2. a placed job gets the field reset on its binding, so that its Works are deleted like all others;
//!    Karmada's detector writes the field again only at a change of the template or policy. Karmada's binding
//!    controller may miss the reset: it compares with its cache of Works, and that may not show yet what it
//!    wrote a moment ago. A Work that still has the field makes Muster change the binding again;
//! 3. objects that a Work left in its member stay charged until they are deleted there or have ended. This
//!    happens if the field was set at the moment of the deletion, or Muster was away.
//!
//! The last state of a Work and the field of the binding show that a Work left something. A restart between
//! the two loses what the Work said.

use crate::facts::holds::preserves;
use crate::messages::job_event::JobEvent;
use crate::reconcile::check_result::CheckResult;
use crate::reconcile::placed::Placed;
use crate::reconcile::{ReconcileCtx, Reconciler};
use binding_writer::Write;
use engine::{ClusterName, Reason, Time};
use std::collections::BTreeSet;

/// Milliseconds that Karmada has to write the Works of a binding again.
const SYNC_MS: i64 = 10_000;

/// What was done about the objects of a job that its Works may leave in members.
#[derive(Debug, Default)]
pub(crate) struct PreservedObjects {
    /// True if its user was told that members have kept it.
    reported: bool,
    /// When Karmada is made to write its Works again, while one of them preserves its objects.
    sync_at: Option<Time>,
}

impl Reconciler {
    /// Makes members remove a placed job with its Works, whatever its policy says.
    pub(crate) fn check_preserving(&mut self, placed: &Placed<'_>) -> CheckResult {
        let ctx = placed.ctx;
        if !preserves(&ctx.binding) {
            return self.sync_preserving_works(ctx);
        }
        let message = "its propagation policy says preserveResourcesOnDeletion: true; its binding is set back to false, \
                       for its quota ends with its Works"
            .to_owned();
        self.record_event(
            ctx,
            JobEvent::warning(Reason::ResourcesPreserved, "Remove", message),
        );
        CheckResult::write(Write::RemoveWithWorks)
    }

    /// Makes Karmada write the Works of a placed job again while one of them preserves its objects.
    fn sync_preserving_works(&mut self, ctx: &ReconcileCtx<'_>) -> CheckResult {
        let preserving = self
            .mirror
            .works_of(&ctx.binding)
            .any(|work| work.preserves && !work.deleting);
        if !preserving {
            self.in_flight_of(ctx.key).preserved.sync_at = None;
            return CheckResult::Continue;
        }
        let next = ctx.now.after(SYNC_MS);
        let due = *self
            .in_flight_of(ctx.key)
            .preserved
            .sync_at
            .get_or_insert(next);
        if ctx.now < due {
            self.work_queue.add_at(ctx.key, due);
            return CheckResult::Continue;
        }
        self.in_flight_of(ctx.key).preserved.sync_at = Some(next);
        self.work_queue.add_at(ctx.key, next);
        CheckResult::write(Write::RemoveWithWorks)
    }

    /// Returns the members that may have kept a job whose Works are going.
    pub(crate) fn preserving_members(&mut self, ctx: &ReconcileCtx<'_>) -> BTreeSet<ClusterName> {
        let mut clusters: BTreeSet<ClusterName> = self.mirror.left_by(&ctx.binding);
        if preserves(&ctx.binding) {
            let job = self.engine.job(ctx.key);
            let shares = job.and_then(|job| job.admission);
            let shares = shares.iter().flat_map(|held| &held.shares);
            clusters.extend(shares.map(|share| share.cluster.clone()));
        }
        let reported = &mut self.in_flight_of(ctx.key).preserved.reported;
        if !clusters.is_empty() && !std::mem::replace(reported, true) {
            let names: Vec<&str> = clusters.iter().map(ClusterName::as_str).collect();
            let template = &ctx.binding.spec.resource;
            let message = format!(
                "its Works are gone and may have left {} {}/{} in {}, by preserveResourcesOnDeletion; the job is charged \
                 until it is deleted there, or has ended",
                template.kind,
                template.namespace,
                template.name,
                names.join(", ")
            );
            self.record_event(
                ctx,
                JobEvent::warning(Reason::ResourcesPreserved, "Charge", message),
            );
        }
        clusters
    }
}
