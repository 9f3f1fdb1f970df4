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
use crate::reconcile::JobPass;
use crds::karmada::ResourceBinding;

/// Milliseconds for which the object has to be missing: a watch may lag.
const MISSING_FOR_MS: i64 = 10_000;

/// Deletes the binding of a job whose object is gone and which does not go with it.
pub(crate) fn end_if_orphaned(pass: &mut JobPass<'_>) {
    let missing = pass.mirror.template_of(pass.binding).is_none();
    if !missing || !is_without_owner(pass.binding) {
        pass.in_flight.timers.orphaned_since = None;
        return;
    }
    let since = &mut pass.in_flight.timers.orphaned_since;
    let due = since.get_or_insert(pass.now).after(MISSING_FOR_MS);
    if pass.now < due {
        return pass.out.work_queue.add_at(pass.key, due);
    }
    *since = Some(pass.now);
    pass.out
        .work_queue
        .add_at(pass.key, pass.now.after(MISSING_FOR_MS));
    pass.push(Effect::DeleteOrphan(pass.bound_job()));
}

/// Returns true if its object does not own a binding that lives.
fn is_without_owner(binding: &ResourceBinding) -> bool {
    let uid = &binding.spec.resource.uid;
    let mut owners = binding.metadata.owner_references.iter().flatten();
    binding.metadata.deletion_timestamp.is_none()
        && required_by(binding).is_none()
        && !owners.any(|owner| owner.uid == **uid)
}
