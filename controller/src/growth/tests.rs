#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn the_override_names_one_template_and_goes_with_its_binding() {
    let binding = serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": "a-job", "uid": "b-uid"},
        "spec": {"resource": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "team", "name": "a",
        }},
    }))
    .unwrap();
    let overriders = [(
        "/spec/tasks".to_owned(),
        json!([{"name": "w", "replicas": 4}]),
    )];
    let policy = policy(&JobKey::new("team", "a-job"), &binding, &overriders);
    assert_eq!(
        policy,
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": "OverridePolicy",
            "metadata": {
                "name": "muster-a-job",
                "namespace": "team",
                "ownerReferences": [{
                    "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                    "name": "a-job", "uid": "b-uid",
                }],
            },
            "spec": {
                "resourceSelectors": [{
                    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                    "namespace": "team", "name": "a",
                }],
                "overrideRules": [{"overriders": {"plaintext": [{
                    "path": "/spec/tasks", "operator": "replace",
                    "value": [{"name": "w", "replicas": 4}],
                }]}}],
            },
        })
    );
}

#[test]
fn admitted_pods_are_summed_over_the_clusters() {
    let share = |name: &str, pods: Value| json!({"name": name, "pods": pods, "charge": {}});
    let record: AdmissionRecord = serde_json::from_value(json!({
        "templateUID": "u", "attempt": 1, "state": "Admitted", "queue": "q",
        "time": "2026-11-21T00:00:00Z",
        "clusters": [
            share("m1", json!([{"role": "head", "count": 1}, {"role": "worker", "count": 2}])),
            share("m2", json!([{"role": "worker", "count": 3}])),
        ],
    }))
    .unwrap();
    let pods = admitted_pods(&record);
    assert_eq!(
        pods,
        [("head".to_owned(), 1), ("worker".to_owned(), 5)].into()
    );
}
