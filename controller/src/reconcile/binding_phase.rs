//! The phase of a binding: the one place that reads its gate, placement, record and finalizer together.
//!
//! Every pass derives the phase from the whole binding and remembers nothing; after a restart at any point
//! the phase is the same. Pure.

use crate::mirror::binding::{
    has_finalizer, has_karmada_finalizer, has_our_scheduler, has_record, is_claimed, is_gated,
    is_placed, is_workload, own_record, required_by, unreadable,
};
use crate::mirror::namespace::NamespaceRule;
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::{AdmissionRecord, RecordError, RecordState};

/// The phase of a binding; the first that applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BindingPhase {
    /// Not managed, and without any mark of Muster.
    Foreign,
    /// No workload, under a policy that names Muster: no other scheduler would place it.
    ToSpread,
    /// No longer managed, but it carries Muster's gate, record or finalizer.
    ToUnmanage,
    /// Managed, with a record that this version cannot act on: charged, and not touched.
    NotTouched(RecordError),
    /// Being deleted; the finalizer keeps it until its Works are gone.
    Deleting(Option<AdmissionRecord>),
    /// Managed and open, with nothing placed: the webhook was away, or a user opened the gate.
    Ungated {
        /// True if it had been gated before, so that a user opened it.
        by_hand: bool,
    },
    /// In a managed namespace, and placed before Muster managed it. In another namespace a policy that names Muster
    /// leaves its jobs to Muster from the beginning.
    ToAdopt,
    /// Managed, and placed or opened without an admission.
    OpenedByHand(Option<AdmissionRecord>),
    /// Gated and pending; the record has the earlier attempts.
    Waiting(Option<AdmissionRecord>),
    /// Planned by the controller; a scheduler process has yet to answer.
    Planned(AdmissionRecord),
    /// The scheduler process refused the plan.
    Refused(AdmissionRecord),
    /// Admitted and placed as its record says.
    Admitted(AdmissionRecord),
    /// Admitted, but its clusters are no longer those of its record.
    Displaced(AdmissionRecord),
    /// Evicted; charged until its Works are gone.
    Ending(AdmissionRecord),
}

/// Returns true if `binding` is a workload that Muster decides about.
///
/// In a managed namespace a binding that is marked or placed stays managed without a policy: when its
/// policy goes, Karmada removes the claim, for a moment or for good, and leaves it placed. The same holds
/// for a binding that Karmada places together with another one, which needs neither claim nor placement. In
/// other namespaces Muster decides only about bindings that a policy with its scheduler name claims; this
/// is how a namespace leaves Muster's management.
pub(crate) fn is_managed(binding: &ResourceBinding, namespace: NamespaceRule) -> bool {
    let in_namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
    let ours = match namespace.managed {
        true => {
            is_claimed(binding)
                || is_marked(binding)
                || is_placed(binding)
                || required_by(binding).is_some()
        }
        false => is_claimed(binding) && has_our_scheduler(binding),
    };
    !names::is_system_namespace(in_namespace) && is_workload(binding) && ours
}

/// Returns true if it carries a mark of Muster.
fn is_marked(binding: &ResourceBinding) -> bool {
    has_finalizer(binding) || has_record(binding)
}

/// Returns true if it starts no pods and its policy leaves it to Muster.
fn is_plain_and_ours(binding: &ResourceBinding) -> bool {
    let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
    !names::is_system_namespace(namespace) && is_claimed(binding) && has_our_scheduler(binding)
}

/// Returns the phase of `binding`. A record of another template counts as none, because it does not
/// describe this workload.
///
/// A record of a later version may say things that this version cannot know, so the job is not touched. A
/// corrupt record says nothing: a placed job may still run and is not touched either; a job that is not
/// placed counts as without a record.
pub(crate) fn binding_phase(binding: &ResourceBinding, namespace: NamespaceRule) -> BindingPhase {
    let record = own_record(binding);
    let finalizer = has_finalizer(binding);
    if binding.metadata.deletion_timestamp.is_some() {
        // Without the finalizer it is charged for as long as Karmada keeps it.
        let charged = is_managed(binding, namespace) && record.is_some();
        return match finalizer || charged && has_karmada_finalizer(binding) {
            true => BindingPhase::Deleting(record),
            false => BindingPhase::Foreign,
        };
    }
    if !is_managed(binding, namespace) {
        return match is_marked(binding) {
            true => BindingPhase::ToUnmanage,
            false if is_plain_and_ours(binding) => BindingPhase::ToSpread,
            false => BindingPhase::Foreign,
        };
    }
    let gated = is_gated(binding);
    let placed = is_placed(binding);
    if let Some(error) = unreadable(binding)
        && (placed || !error.is_garbage())
    {
        return BindingPhase::NotTouched(error);
    }
    match record {
        None if placed && !gated && !finalizer && namespace.adopts() => BindingPhase::ToAdopt,
        None if placed => BindingPhase::OpenedByHand(None),
        None if !gated => BindingPhase::Ungated { by_hand: finalizer },
        None => BindingPhase::Waiting(None),
        Some(record) => with_record(record, binding, gated, placed),
    }
}

fn with_record(
    record: AdmissionRecord,
    binding: &ResourceBinding,
    gated: bool,
    placed: bool,
) -> BindingPhase {
    let closed = gated && !placed;
    match record.state {
        RecordState::Admitted if record.adopted && placed => BindingPhase::Admitted(record),
        RecordState::Admitted if gated => BindingPhase::OpenedByHand(Some(record)),
        RecordState::Admitted if same_clusters(&record, binding) => BindingPhase::Admitted(record),
        RecordState::Admitted => BindingPhase::Displaced(record),
        RecordState::Planned if closed => BindingPhase::Planned(record),
        RecordState::Refused if closed => BindingPhase::Refused(record),
        RecordState::Ending if closed => BindingPhase::Ending(record),
        RecordState::Requeued if closed => BindingPhase::Waiting(Some(record)),
        RecordState::Requeued if !placed => BindingPhase::Ungated { by_hand: true },
        RecordState::Planned
        | RecordState::Refused
        | RecordState::Ending
        | RecordState::Requeued => BindingPhase::OpenedByHand(Some(record)),
    }
}

fn same_clusters(record: &AdmissionRecord, binding: &ResourceBinding) -> bool {
    let mut recorded: Vec<&str> = record
        .clusters
        .iter()
        .map(|share| share.name.as_str())
        .collect();
    let mut placed: Vec<&str> = binding
        .spec
        .clusters
        .iter()
        .map(|c| c.name.as_str())
        .collect();
    recorded.sort_unstable();
    placed.sort_unstable();
    recorded == placed
}

#[cfg(test)]
mod tests;
