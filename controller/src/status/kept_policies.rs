//! Objects that Muster keeps so that nobody has to write them: the propagation policy of a
//! managed namespace, the capacity policy of a queue that has none.

use crate::effects::object_writer::ObjectWriter;
use crds::capacity_policy::{CapacityPolicy, CapacityPolicySpec};
use crds::karmada::PropagationPolicy;
use crds::names;
use crds::queue::Queue;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// Below every policy that a user writes: a policy's priority is 0 unless it says otherwise.
const PRIORITY: i32 = -1000;

/// Keeps the propagation policy of a managed namespace: every workload of a kind that Muster
/// knows is claimed by it, unless a policy of the user's own claims it.
pub(crate) fn keep_propagation(objects: &ObjectWriter, namespace: &str) {
    objects.apply(
        &propagation_policy(),
        Some(namespace),
        names::DEFAULT_POLICY,
        propagation(namespace),
    );
}

/// Removes it again: the namespace is no longer managed.
pub(crate) fn drop_propagation(objects: &ObjectWriter, namespace: &str) {
    objects.delete(
        &propagation_policy(),
        Some(namespace),
        names::DEFAULT_POLICY,
    );
}

pub(crate) fn propagation(namespace: &str) -> Value {
    let selectors: Vec<Value> = workload::default_kinds()
        .map(|kind| json!({ "apiVersion": kind.api_version(), "kind": kind.kind }))
        .collect();
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {
            "name": names::DEFAULT_POLICY,
            "namespace": namespace,
            "annotations": {
                "muster.io/description":
                    "Managed by Muster while the namespace is labelled muster.io/managed=true. Policies of your own go before it.",
            },
        },
        "spec": {
            "priority": PRIORITY,
            "schedulerName": names::SCHEDULER_NAME,
            "propagateDeps": true,
            // Not left to defaults, so that nobody else's choice stays: what is deleted goes in the
            // members too, and nothing there that is not Karmada's is taken over.
            "preserveResourcesOnDeletion": false,
            "conflictResolution": "Abort",
            "resourceSelectors": selectors,
            "placement": { "clusterAffinity": { "clusterNames": [] } },
        },
    })
}

/// Whether `seen` says all that the policy of its namespace is to say. What else it says is
/// Karmada's, or a default.
pub(crate) fn is_kept(seen: &PropagationPolicy) -> bool {
    let namespace = seen.metadata.namespace.as_deref().unwrap_or_default();
    says(&seen.spec, &propagation(namespace)["spec"])
}

/// Whether `seen` has every field of `object`, with as many elements in every list.
fn says(seen: &Value, object: &Value) -> bool {
    match (seen, object) {
        (Value::Object(seen), Value::Object(object)) => object
            .iter()
            .all(|(name, value)| says(seen.get(name).unwrap_or(&Value::Null), value)),
        (Value::Array(seen), Value::Array(object)) => {
            let mut pairs = seen.iter().zip(object);
            seen.len() == object.len() && pairs.all(|(seen, object)| says(seen, object))
        }
        (Value::Null, Value::Array(object)) => object.is_empty(),
        (Value::Null, Value::Bool(object)) => !object,
        _ => seen == object,
    }
}

/// Makes the capacity policy of a queue that has none. What a user writes in it stays.
pub(crate) fn make_policy(objects: &ObjectWriter, queue: &Queue) {
    let Some(name) = queue.metadata.name.as_deref() else {
        return;
    };
    let object = json!({
        "apiVersion": "muster.io/v1alpha1",
        "kind": "CapacityPolicy",
        "metadata": { "name": name },
        "spec": {},
    });
    objects.apply(
        &ApiResource::erase::<CapacityPolicy>(&()),
        None,
        name,
        object,
    );
}

/// Whether a capacity policy says nothing, as one that was made here does.
pub(crate) fn is_empty(policy: &CapacityPolicy) -> bool {
    policy.spec == CapacityPolicySpec::default()
}

/// Removes the capacity policy of a queue that is gone, if it was made here.
pub(crate) fn drop_policy(objects: &ObjectWriter, queue: &str) {
    objects.delete(&ApiResource::erase::<CapacityPolicy>(&()), None, queue);
}

fn propagation_policy() -> ApiResource {
    let gvk = GroupVersionKind::gvk("policy.karmada.io", "v1alpha1", "PropagationPolicy");
    ApiResource::from_gvk_with_plural(&gvk, "propagationpolicies")
}
