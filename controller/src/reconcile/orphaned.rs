//! Jobs whose object was deleted without what belongs to it (`kubectl delete --cascade=orphan`).
//!
//! Kubernetes' garbage collector then takes the object off the owners of the binding, and Karmada removes the binding
//! or keeps it, as it happens. One that it keeps runs on as a job that nobody can end: tenants may not delete bindings.
//! So the binding is deleted too, as that of any deleted job. Its pods are charged until they are gone.
//!
//! It never deletes a binding with an owner, which the garbage collector sees to, nor one whose object the API server
//! still has.

use crate::messages::action::Effect;
use crate::mirror::binding::required_by;
use crate::reconcile::{ReconcileCtx, Reconciler};
use crds::karmada::ResourceBinding;

/// Milliseconds for which the object has to be missing: a watch may lag.
const MISSING_FOR_MS: i64 = 10_000;

impl Reconciler {
    /// Deletes the binding of a job whose object is gone and which does not go with it.
    pub(crate) fn end_if_orphaned(&mut self, ctx: &ReconcileCtx<'_>) {
        let missing = self.mirror.template_of(&ctx.binding).is_none();
        if !missing || !is_without_owner(&ctx.binding) {
            self.in_flight_of(ctx.key).orphaned_since = None;
            return;
        }
        let since = &mut self.in_flight_of(ctx.key).orphaned_since;
        let due = since.get_or_insert(ctx.now).after(MISSING_FOR_MS);
        if ctx.now < due {
            return self.work_queue.add_at(ctx.key, due);
        }
        *since = Some(ctx.now);
        self.work_queue
            .add_at(ctx.key, ctx.now.after(MISSING_FOR_MS));
        self.push(Effect::DeleteOrphan(ctx.job()));
    }
}

/// Returns true if its object does not own a binding that lives.
fn is_without_owner(binding: &ResourceBinding) -> bool {
    let uid = &binding.spec.resource.uid;
    let mut owners = binding.metadata.owner_references.iter().flatten();
    binding.metadata.deletion_timestamp.is_none()
        && required_by(binding).is_none()
        && !owners.any(|owner| owner.uid == **uid)
}
