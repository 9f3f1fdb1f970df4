#![allow(clippy::unwrap_used)]
use super::*;
use insta::assert_snapshot;
use runtime::Delta;
use serde_json::json;

fn labelled(labels: &Value, before: &Value) -> String {
    let object = |labels: &Value| json!({"metadata": {"name": "team", "labels": labels}});
    let request = json!({
        "uid": "u", "operation": "UPDATE", "name": "team", "namespace": "team",
        "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        "object": object(labels), "oldObject": object(before),
    });
    of_namespace(&serde_json::from_value(request).unwrap()).join("\n")
}

#[test]
fn a_label_of_a_namespace_that_has_no_effect_is_named() {
    let all = [
        json!({"muster.io/managed": "yes"}),
        json!({"muster.io/manage": "true"}),
        json!({"muster/managed": "true"}),
    ];
    let all = all.map(|labels| labelled(&labels, &Value::Null));
    assert_snapshot!(all.join("\n"), @r#"
    label muster.io/managed is "yes", and only "true" has jobs queued: Muster does not manage namespace team; run kubectl label namespace team muster.io/managed=true --overwrite
    label muster.io/manage is none that Muster reads of a namespace; those are muster.io/managed and muster.io/default-queue; to have its jobs queued, run kubectl label namespace team muster.io/managed=true --overwrite
    label muster/managed is none that Muster reads of a namespace; those are muster.io/managed and muster.io/default-queue; to have its jobs queued, run kubectl label namespace team muster.io/managed=true --overwrite
    "#);
}

#[test]
fn other_labels_and_old_ones_are_not() {
    for labels in [
        json!({"muster.io/managed": "true", "muster.io/default-queue": "gold"}),
        json!({"muster.io/managed": "false"}),
        json!({"app": "muster", "example.com/managed": "yes"}),
        Value::Null,
    ] {
        assert_eq!(labelled(&labels, &Value::Null), "", "{labels}");
    }
    let wrong = json!({"muster.io/managed": "yes"});
    assert_eq!(labelled(&wrong, &wrong), "");
    let system = json!({
        "uid": "u", "operation": "CREATE", "name": "kube-system", "namespace": "kube-system",
        "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        "object": {"metadata": {"labels": wrong}},
    });
    assert_eq!(
        of_namespace(&serde_json::from_value(system).unwrap()).len(),
        0
    );
}

/// The warnings about an object in a namespace with these labels.
fn submitted(labels: &Value, api_version: &str, kind: &str, spec: &Value) -> String {
    let queues = QueueIndex::default();
    let namespace = json!({"metadata": {"name": "team", "labels": labels}});
    queues.namespace(Delta::Upserted(serde_json::from_value(namespace).unwrap()));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let request = json!({
        "uid": "u", "operation": "CREATE", "namespace": "team", "name": "train",
        "kind": {"group": group, "version": version, "kind": kind},
        "object": {
            "apiVersion": api_version, "kind": kind, "spec": spec,
            "metadata": {"name": "train", "labels": {"muster.io/queue": "gold"}},
        },
    });
    of_object(&serde_json::from_value(request).unwrap(), &queues).join("\n")
}

#[test]
fn an_object_that_looks_as_if_it_were_queued_says_what_to_do() {
    let (managed, wrong) = (
        json!({"muster.io/managed": "true"}),
        json!({"muster.io/managed": "True"}),
    );
    let pods = json!({"a": [{"template": {"spec": {"containers": []}}}]});
    let all = [
        submitted(&managed, "batch/v1", "CronJob", &json!({})),
        submitted(&managed, "example.com/v1", "Training", &pods),
        submitted(&wrong, "batch/v1", "Job", &json!({})),
        submitted(&Value::Null, "batch/v1", "Job", &json!({})),
        submitted(&Value::Null, "example.com/v1", "Training", &pods),
    ];
    assert_snapshot!(all.join("\n"), @r#"
    CronJob train: Muster queues the Jobs that it makes, where an operator runs the cronjob-controller on the control plane (docs/how-to/cronjob.md); else create each Job in this namespace, as with kubectl create job NAME --from=cronjob/CRONJOB
    Training train: Muster queues example.com/v1 Training only where Karmada can tell its size and a PropagationPolicy with schedulerName: muster selects it (docs/reference/jobs.md)
    namespace team is not managed (its label muster.io/managed is "True"): Job train is queued only if its policy names the scheduler muster; else run kubectl label namespace team muster.io/managed=true --overwrite
    namespace team is not managed: Job train is queued only if its policy names the scheduler muster; else run kubectl label namespace team muster.io/managed=true --overwrite
    namespace team is not managed: Training train is queued only if its policy names the scheduler muster; else run kubectl label namespace team muster.io/managed=true --overwrite
    "#);
}

#[test]
fn an_object_that_is_queued_or_starts_nothing_says_nothing_here() {
    let managed = json!({"muster.io/managed": "true"});
    assert_eq!(submitted(&managed, "batch/v1", "Job", &json!({})), "");
    for labels in [&managed, &Value::Null] {
        assert_eq!(submitted(labels, "v1", "ConfigMap", &json!({})), "");
        let template = json!({"template": {"spec": {"accessModes": []}}});
        assert_eq!(submitted(labels, "example.com/v1", "Volume", &template), "");
    }
}
