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
