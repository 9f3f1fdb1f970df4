//! What a binding is to Muster: the one place that reads a binding's gate, placement, record
//! and finalizer together.
//!
//! Every pass looks at the whole binding and forgets how it came to be so; a restart at any
//! line sees the same phase again. Pure.

use crate::mirror::binding::{
    has_finalizer, has_karmada_finalizer, has_our_scheduler, has_record, is_claimed, is_gated,
    is_placed, is_workload, own_record, required_by, unreadable,
};
use crate::mirror::namespace::NamespaceRule;
use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::{AdmissionRecord, RecordError, RecordState};

/// A binding's phase, from the most binding fact down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BindingPhase {
    /// Not ours, and nothing of ours is on it.
    Foreign,
    /// No workload, under a policy that names Muster: nobody else would place it.
    ToSpread,
    /// No longer ours, but it carries our gate, record or finalizer.
    ToUnmanage,
    /// Ours, with a record that this version cannot act on: charged, and not touched.
    NotTouched(RecordError),
    /// Being deleted; kept by our finalizer until its Works are gone.
    Deleting(Option<AdmissionRecord>),
    /// Ours, open, nothing placed: the webhook was away, or the gate was opened by hand.
    Ungated {
        /// Whether it had been gated before, so that somebody opened it.
        by_hand: bool,
    },
    /// Ours, placed before Muster knew it.
    ToAdopt,
    /// Ours, and placed or opened without an admission that says so.
    OpenedByHand(Option<AdmissionRecord>),
    /// Gated and waiting; the record tells of earlier attempts.
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

/// Whether `binding` is a workload that Muster decides about.
///
/// In a managed namespace what is marked or placed stays Muster's without a policy: Karmada takes
/// the claim off a binding whose policy goes, for a moment or for good, and leaves it placed. So does
/// what Karmada takes along with another binding, which needs neither claim nor placement. In
/// other namespaces Muster decides only about what a policy that names it claims: that is how such
/// a namespace is left.
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

/// Whether it carries a mark of ours.
fn is_marked(binding: &ResourceBinding) -> bool {
    has_finalizer(binding) || has_record(binding)
}

/// Whether it starts no pods, and is left to us by its policy.
fn is_plain_and_ours(binding: &ResourceBinding) -> bool {
    let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
    !names::is_system_namespace(namespace) && is_claimed(binding) && has_our_scheduler(binding)
}

/// The phase of `binding`. A record of another template counts as none: what it would admit
/// is not what is there.
///
/// A record that a later version wrote says what this one cannot know, so the job is not touched,
/// wherever it stands. One that no version wrote says nothing: where the job is placed it may run
/// all the same and is not touched either; where it is not, it has no record.
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
        None if placed && !gated && !finalizer && !namespace.adopted => BindingPhase::ToAdopt,
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
