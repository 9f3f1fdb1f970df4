//! Jobs whose policy has members keep what it started (`preserveResourcesOnDeletion`).
//!
//! The Works of such a job go and its pods stay: its charge would end while it runs, and a job that is
//! evicted would run twice. So
//!
//! 1. one that waits is not released: its policy has to be another first;
//! 2. one that is placed has the field set back on its binding, which Karmada's detector writes again
//!    at each change of template or policy only, so that its Works are deleted as those of all others;
//! 3. what a Work left in its member all the same stays charged until the object is deleted there, or has
//!    ended: the field was set in the moment of the deletion, or Muster was away.
//!
//! That a Work left something is known by the Work as it was when it went, and by the field of the
//! binding. A restart in the moment between the two forgets what the Work said.

use crate::reconcile::{ReconcileCtx, Reconciler};
use crate::status::events::JobEvent;
use binding_writer::Write;
use crds::karmada::ResourceBinding;
use crds::record::RecordState;
use engine::facts::Hold;
use engine::{ClusterName, Reason};
use std::collections::BTreeSet;

/// Whether members keep what is started for `binding`.
pub(crate) fn preserves(binding: &ResourceBinding) -> bool {
    binding.spec.preserve_resources_on_deletion == Some(true)
}

/// Why a job is not released: its quota could never be given back.
pub(crate) fn hold(binding: &ResourceBinding) -> Option<Hold> {
    let released = crate::mirror::binding::own_record(binding)
        .is_some_and(|record| record.state == RecordState::Admitted);
    (preserves(binding) && !released).then(|| Hold {
        reason: Reason::ResourcesPreserved,
        message: "its propagation policy says preserveResourcesOnDeletion: true, by which its pods would stay when \
                  it is deleted or evicted; set it to false in the policy"
            .to_owned(),
    })
}

impl Reconciler {
    /// Has members remove a placed job with its Works, whatever its policy says. Whether it wrote.
    pub(crate) fn remove_with_works(&mut self, ctx: &ReconcileCtx<'_>) -> bool {
        if !preserves(&ctx.binding) {
            return false;
        }
        let message = "its propagation policy says preserveResourcesOnDeletion: true; its binding is set back to false, \
                       for its quota ends with its Works"
            .to_owned();
        self.record_event(
            ctx,
            JobEvent::warning(Reason::ResourcesPreserved, "Remove", message),
        );
        self.write(ctx.key, &ctx.binding, Write::RemoveWithWorks);
        true
    }

    /// The members that may have kept a job whose Works go.
    pub(crate) fn preserving_members(&mut self, ctx: &ReconcileCtx<'_>) -> BTreeSet<ClusterName> {
        let mut clusters: BTreeSet<ClusterName> = self.mirror.left_by(&ctx.binding);
        if preserves(&ctx.binding) {
            let job = self.engine.job(ctx.key);
            let shares = job.and_then(|job| job.admission);
            let shares = shares.iter().flat_map(|held| &held.shares);
            clusters.extend(shares.map(|share| share.cluster.clone()));
        }
        let told = &mut self.in_flight_of(ctx.key).kept_told;
        if !clusters.is_empty() && !std::mem::replace(told, true) {
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
