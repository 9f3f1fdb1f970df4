#![allow(clippy::unwrap_used)]

use super::*;

fn binding() -> ResourceBinding {
    serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": "a-job", "uid": "b-uid"},
        "spec": {"resource": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "team", "name": "a",
        }},
    }))
    .unwrap()
}

#[test]
fn a_policy_names_one_template_and_goes_with_its_binding() {
    let rules = [
        Rule {
            cluster: Some(ClusterName::new("gpu-a")),
            mark: Some("attempt 1, part 1 of 1: w=4".to_owned()),
            fields: vec![(
                "/spec/tasks".to_owned(),
                json!([{"name": "w", "replicas": 4}]),
            )],
        },
        Rule {
            cluster: None,
            mark: None,
            fields: vec![("/spec/minAvailable".to_owned(), json!(4))],
        },
    ];
    let policy = policy(&JobKey::new("team", "a-job"), &binding(), &rules);
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
                "overrideRules": [
                    {
                        "targetCluster": {"clusterNames": ["gpu-a"]},
                        "overriders": {
                            "annotationsOverrider": [{
                                "operator": "add",
                                "value": {"muster.io/part": "attempt 1, part 1 of 1: w=4"},
                            }],
                            "plaintext": [{
                                "path": "/spec/tasks", "operator": "add",
                                "value": [{"name": "w", "replicas": 4}],
                            }],
                        },
                    },
                    {"overriders": {"plaintext": [
                        {"path": "/spec/minAvailable", "operator": "add", "value": 4},
                    ]}},
                ],
            },
        })
    );
}
