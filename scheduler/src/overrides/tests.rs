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
            fields: vec![
                (
                    "/spec/tasks".to_owned(),
                    json!([{"name": "w", "replicas": 4}]),
                ),
                ("/spec/policies".to_owned(), Value::Null),
            ],
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
                            "plaintext": [
                                {
                                    "path": "/spec/tasks", "operator": "add",
                                    "value": [{"name": "w", "replicas": 4}],
                                },
                                {"path": "/spec/policies", "operator": "remove"},
                            ],
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

#[tokio::test(start_paused = true)]
async fn what_a_later_attempt_has_written_stays() {
    const PATH: &str =
        "/apis/policy.karmada.io/v1alpha1/namespaces/team/overridepolicies/muster-a-job";
    let api = runtime::testing::FakeApi::new();
    let overrides = Overrides::new(api.client());
    let key = JobKey::new("team", "a-job");
    let put = |mark: Option<&str>| {
        let rule = Rule {
            cluster: None,
            mark: mark.map(str::to_owned),
            fields: Vec::new(),
        };
        let mut policy = policy(&key, &binding(), &[rule]);
        policy["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply"}]);
        api.put(PATH, policy);
    };
    put(Some("attempt 2, part 1 of 1: w=4"));
    overrides.clear(&binding(), Attempt(1)).await.unwrap();
    assert!(api.get(PATH).is_some());
    overrides.clear(&binding(), Attempt(2)).await.unwrap();
    assert!(api.get(PATH).is_none());
    // Gone already.
    overrides.clear(&binding(), Attempt(2)).await.unwrap();
    put(None);
    overrides.clear(&binding(), Attempt(1)).await.unwrap();
    assert!(api.get(PATH).is_none(), "a pin ends with its attempt");
}
