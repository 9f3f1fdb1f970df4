#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use serde_json::json;

#[test]
fn the_first_that_is_set_names_the_queue() {
    let mut template = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "labels": {
                "muster.io/queue": "1", "scheduling.volcano.sh/queue-name": "4", "volcano.sh/queue-name": "5",
            },
            "annotations": {"muster.io/queue": "2", "scheduling.volcano.sh/queue-name": "3"},
        },
        "spec": {"template": {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "6"}}}},
    });
    let places = [
        "/metadata/labels/muster.io~1queue",
        "/metadata/annotations/muster.io~1queue",
        "/metadata/annotations/scheduling.volcano.sh~1queue-name",
        "/metadata/labels/scheduling.volcano.sh~1queue-name",
        "/metadata/labels/volcano.sh~1queue-name",
        "/spec/template/metadata/annotations/scheduling.volcano.sh~1queue-name",
    ];
    for (index, place) in places.iter().enumerate() {
        assert_eq!(
            named_queue(&template),
            Some((index + 1).to_string()),
            "{place}"
        );
        // An empty string names nothing, and neither does a value that is no string.
        *template.pointer_mut(place).unwrap() = if index % 2 == 0 { "".into() } else { 7.into() };
    }
    assert_eq!(named_queue(&template), None);
    assert_eq!(queue_of(&template, Some("team")), "team");
    assert_eq!(queue_of(&template, Some("")), "default");
    assert_eq!(queue_of(&template, None), "default");
}

#[test]
fn kubeflow_names_it_in_its_policy() {
    let template = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"labels": {"muster.io/queue": "label"}},
        "spec": {"runPolicy": {"schedulingPolicy": {"queue": "field"}}},
    });
    assert_eq!(named_queue(&template).as_deref(), Some("field"));
}

/// Merges `patch` into `value` as the API server does (RFC 7386).
fn merge(value: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (name, field) in fields {
        match field {
            Value::Null => drop(value.as_object_mut().unwrap().remove(name)),
            field => merge(&mut value[name], field),
        }
    }
}

#[test]
fn a_template_is_moved_to_a_queue_from_any_other() {
    let metadata = [
        json!({}),
        json!({"labels": {"muster.io/queue": "other", "a": "b"}}),
        json!({"annotations": {"muster.io/queue": "other"}}),
        json!({"annotations": {"scheduling.volcano.sh/queue-name": "other"}}),
        json!({"labels": {"volcano.sh/queue-name": "other"}}),
    ];
    let kinds = [
        json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"queue": "no field"}}),
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"queue": "field", "tasks": []}}),
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"queue": "default"}}),
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}),
        json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "spec": {"runPolicy": {"schedulingPolicy": {"queue": "field", "minAvailable": 2}}},
        }),
        json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"runPolicy": {}}}),
    ];
    let long = "q".repeat(64);
    for (kind, metadata) in kinds
        .iter()
        .flat_map(|kind| metadata.iter().map(move |m| (kind, m)))
    {
        for queue in ["night", "default", &long] {
            let mut template = kind.clone();
            template["metadata"] = metadata.clone();
            let patch = to_queue(&template, queue);
            merge(&mut template, &patch);
            assert_eq!(
                named_queue(&template).as_deref(),
                Some(queue),
                "{kind} {metadata}"
            );
        }
    }
    // No field appears that was not there, and what else is in the patched objects stays.
    let patch = to_queue(&kinds[5], "night");
    assert_eq!(
        patch,
        json!({"metadata": {"labels": {"muster.io/queue": "night"}}})
    );
    let patch = to_queue(&kinds[4], "night");
    let field = json!({"runPolicy": {"schedulingPolicy": {"queue": "night"}}});
    assert_eq!(patch["spec"], field);
}
