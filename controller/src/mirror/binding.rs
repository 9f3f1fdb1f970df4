//! Reads the gate, placement, record, finalizers and claims of one binding. Pure.

use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::{AdmissionRecord, RecordError, RecordState};
use serde_json::Value;

/// Returns the `NAMESPACE/NAME` of a placed binding that this one is a dependency of. Karmada renders it to
/// the same clusters, whatever its own gate and placement say. No kind that Karmada knows depends on
/// workloads; a custom interpreter of an operator may say so.
pub(crate) fn required_by(binding: &ResourceBinding) -> Option<String> {
    let required = binding.spec.required_by.as_deref().unwrap_or_default();
    let placed = |snapshot: &&Value| {
        let clusters = snapshot["clusters"].as_array();
        clusters.is_some_and(|clusters| !clusters.is_empty())
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let first = required.iter().find(placed)?;
    Some(format!(
        "{}/{}",
        text(&first["namespace"]),
        text(&first["name"])
    ))
}

/// Returns true if a policy has claimed the binding. No policy claims bindings that depend on another one,
/// or whose policy is gone.
pub(crate) fn is_claimed(binding: &ResourceBinding) -> bool {
    binding.metadata.labels.as_ref().is_some_and(|labels| {
        labels.contains_key(names::POLICY_PERMANENT_ID)
            || labels.contains_key(names::CLUSTER_POLICY_PERMANENT_ID)
    })
}

/// Returns true if its policy names Muster as the scheduler.
pub(crate) fn has_our_scheduler(binding: &ResourceBinding) -> bool {
    binding.spec.scheduler_name.as_deref() == Some(names::SCHEDULER_NAME)
}

/// Returns true if it starts pods, as far as its kind and Karmada's interpreter say.
pub(crate) fn is_workload(binding: &ResourceBinding) -> bool {
    let resource = &binding.spec.resource;
    let interpreted = binding.spec.replicas.unwrap_or(0) > 0
        || binding.spec.replica_requirements.is_some()
        || binding
            .spec
            .components
            .as_ref()
            .is_some_and(|c| !c.is_empty());
    interpreted || workload::may_start_pods(&resource.api_version, &resource.kind)
}

/// Resource versions of one API server are comparable integers (Kubernetes KEP-5504).
pub(crate) fn version(binding: &ResourceBinding) -> u64 {
    binding
        .metadata
        .resource_version
        .as_deref()
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}

/// Returns the record on a binding, whichever template it is of, if it can be read.
pub(crate) fn written_record(binding: &ResourceBinding) -> Option<AdmissionRecord> {
    let record = AdmissionRecord::read(binding.metadata.annotations.as_ref());
    record.ok().flatten()
}

/// Returns the record if it is readable and belongs to the template that is bound now.
pub(crate) fn own_record(binding: &ResourceBinding) -> Option<AdmissionRecord> {
    AdmissionRecord::own(binding)
}

/// Returns the record of a job that is admitted.
pub(crate) fn admitted_record(binding: &ResourceBinding) -> Option<AdmissionRecord> {
    own_record(binding).filter(|record| record.state == RecordState::Admitted)
}

/// Returns why this version cannot act on the record, if so.
pub(crate) fn unreadable(binding: &ResourceBinding) -> Option<RecordError> {
    AdmissionRecord::read(binding.metadata.annotations.as_ref()).err()
}

/// Returns why the record cannot be used, if so.
pub(crate) fn record_problem(binding: &ResourceBinding) -> Option<String> {
    match AdmissionRecord::read(binding.metadata.annotations.as_ref()) {
        Err(error) => Some(error.to_string()),
        Ok(Some(record)) if record.template_uid != *binding.spec.resource.uid => Some(format!(
            "annotation {} is of template UID {}, the binding is of {}",
            names::ADMISSION_ANNOTATION,
            record.template_uid,
            binding.spec.resource.uid
        )),
        Ok(_) => None,
    }
}

pub(crate) fn has_record(binding: &ResourceBinding) -> bool {
    binding
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(names::ADMISSION_ANNOTATION))
}

pub(crate) fn has_finalizer(binding: &ResourceBinding) -> bool {
    binding
        .metadata
        .finalizers
        .as_ref()
        .is_some_and(|finalizers| finalizers.iter().any(|f| f == names::ACCOUNTING_FINALIZER))
}

/// Karmada's own finalizer keeps a binding until Karmada has removed its Works.
pub(crate) fn has_karmada_finalizer(binding: &ResourceBinding) -> bool {
    let finalizers = binding.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers
        .iter()
        .any(|finalizer| finalizer == "karmada.io/binding-controller")
}

pub(crate) fn is_gated(binding: &ResourceBinding) -> bool {
    binding
        .spec
        .suspension
        .as_ref()
        .and_then(|s| s.scheduling)
        .unwrap_or(false)
}

pub(crate) fn is_placed(binding: &ResourceBinding) -> bool {
    !binding.spec.clusters.is_empty()
}
