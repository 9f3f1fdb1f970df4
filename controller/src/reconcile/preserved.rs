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
use crate::reconcile::JobPass;
use crate::reconcile::check_result::CheckResult;
use crate::reconcile::placed::Placed;
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

/// Makes members remove a placed job with its Works, whatever its policy says.
pub(crate) fn check_preserving(pass: &mut JobPass<'_>, _: &Placed) -> CheckResult {
    if !preserves(pass.binding) {
        return sync_preserving_works(pass);
    }
    let message = "its propagation policy says preserveResourcesOnDeletion: true; its binding is set back to false, \
                   for its quota ends with its Works"
        .to_owned();
    pass.record_event(JobEvent::warning(
        Reason::ResourcesPreserved,
        "Remove",
        message,
    ));
    CheckResult::write(Write::RemoveWithWorks)
}

/// Makes Karmada write the Works of a placed job again while one of them preserves its objects.
fn sync_preserving_works(pass: &mut JobPass<'_>) -> CheckResult {
    let preserving = pass
        .mirror
        .works
        .of(pass.binding)
        .any(|work| work.preserves && !work.deleting);
    if !preserving {
        pass.in_flight.preserved.sync_at = None;
        return CheckResult::Continue;
    }
    let next = pass.now.after(SYNC_MS);
    let due = *pass.in_flight.preserved.sync_at.get_or_insert(next);
    if pass.now < due {
        pass.out.work_queue.add_at(pass.key, due);
        return CheckResult::Continue;
    }
    pass.in_flight.preserved.sync_at = Some(next);
    pass.out.work_queue.add_at(pass.key, next);
    CheckResult::write(Write::RemoveWithWorks)
}

/// Returns the members that may have kept a job whose Works are going.
pub(crate) fn preserving_members(pass: &mut JobPass<'_>) -> BTreeSet<ClusterName> {
    let mut clusters: BTreeSet<ClusterName> = pass.mirror.works.left_by(pass.binding);
    if preserves(pass.binding) {
        let shares = pass.admission().into_iter().flat_map(|held| &held.shares);
        clusters.extend(shares.map(|share| share.cluster.clone()));
    }
    let reported = &mut pass.in_flight.preserved.reported;
    if !clusters.is_empty() && !std::mem::replace(reported, true) {
        let names: Vec<&str> = clusters.iter().map(ClusterName::as_str).collect();
        let template = &pass.binding.spec.resource;
        let message = format!(
            "its Works are gone and may have left {} {}/{} in {}, by preserveResourcesOnDeletion; the job is charged \
             until it is deleted there, or has ended",
            template.kind,
            template.namespace,
            template.name,
            names.join(", ")
        );
        pass.record_event(JobEvent::warning(
            Reason::ResourcesPreserved,
            "Charge",
            message,
        ));
    }
    clusters
}
