//! Objects that Muster maintains for users: the propagation policy of a managed namespace, the capacity policy of a
//! Queue without one, and the Queue of a capacity policy without one.

use crate::effects::object_writer::ObjectWriter;
use crds::capacity_policy::CapacityPolicy;
use crds::karmada::PropagationPolicy;
use crds::names;
use crds::queue::Queue;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// Lower than every policy of a user, whose default priority is 0.
const PRIORITY: i32 = -1000;

/// Applies the propagation policy of a managed namespace. It claims every workload of a kind that Muster
/// knows, unless a policy of the user claims it.
pub(crate) fn keep_propagation(objects: &ObjectWriter, namespace: &str) {
    objects.apply(
        &propagation_policy(),
        Some(namespace),
        names::DEFAULT_POLICY,
        propagation(namespace),
    );
}

/// Deletes the policy of a namespace that is no longer managed.
pub(crate) fn drop_propagation(objects: &ObjectWriter, namespace: &str) {
    objects.delete(
        &propagation_policy(),
        Some(namespace),
        names::DEFAULT_POLICY,
    );
}

pub(crate) fn propagation(namespace: &str) -> Value {
    let selectors: Vec<Value> = workload::known_kinds()
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
            // Set explicitly, so that the choice of another manager does not stay: deleted objects are also deleted
            // in the members, and Karmada takes over no object that it did not create there.
            "preserveResourcesOnDeletion": false,
            "conflictResolution": "Abort",
            "resourceSelectors": selectors,
            "placement": { "clusterAffinity": { "clusterNames": [] } },
        },
    })
}

/// Returns true if `seen` has all fields of the policy of its namespace. Other fields are Karmada's, or
/// defaults.
pub(crate) fn is_kept(seen: &PropagationPolicy) -> bool {
    let namespace = seen.metadata.namespace.as_deref().unwrap_or_default();
    has_fields_of(&seen.spec, &propagation(namespace)["spec"])
}

/// Returns true if `seen` has every field of `object`, with as many elements in every list.
fn has_fields_of(seen: &Value, object: &Value) -> bool {
    match (seen, object) {
        (Value::Object(seen), Value::Object(object)) => object
            .iter()
            .all(|(name, value)| has_fields_of(seen.get(name).unwrap_or(&Value::Null), value)),
        (Value::Array(seen), Value::Array(object)) => {
            let mut pairs = seen.iter().zip(object);
            seen.len() == object.len() && pairs.all(|(seen, object)| has_fields_of(seen, object))
        }
        (Value::Null, Value::Array(object)) => object.is_empty(),
        (Value::Null, Value::Bool(object)) => !object,
        _ => seen == object,
    }
}

/// Creates the capacity policy of a queue without one. What a user writes in it stays.
pub(crate) fn make_policy(objects: &ObjectWriter, queue: &Queue) {
    let Some(name) = queue.metadata.name.as_deref() else {
        return;
    };
    let object = json!({
        "apiVersion": "muster.io/v1alpha2",
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

/// Creates the Queue of a policy that states its queue by itself. Members need the object, and the right to use a
/// queue is a right on it.
pub(crate) fn make_queue(objects: &ObjectWriter, name: &str) {
    let object = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": Queue::of_policy(name).metadata,
        "spec": {},
    });
    objects.create(&ApiResource::erase::<Queue>(&()), name, object);
}

/// Deletes the Queue that was created for a policy, unless it has changed: it may state an amount now.
pub(crate) fn drop_queue(objects: &ObjectWriter, queue: &Queue) {
    let kind = ApiResource::erase::<Queue>(&());
    objects.delete_version(&kind, &queue.metadata);
}

/// Deletes the capacity policy of a deleted queue, if it was created here.
pub(crate) fn drop_policy(objects: &ObjectWriter, queue: &str) {
    objects.delete(&ApiResource::erase::<CapacityPolicy>(&()), None, queue);
}

fn propagation_policy() -> ApiResource {
    let gvk = GroupVersionKind::gvk("policy.karmada.io", "v1alpha1", "PropagationPolicy");
    ApiResource::from_gvk_with_plural(&gvk, "propagationpolicies")
}
