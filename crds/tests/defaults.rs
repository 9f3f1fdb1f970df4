//! The defaults that the schemas state are those that Muster has where nothing is stated.
#![allow(clippy::unwrap_used)]

use crds::capacity_policy::{CapacityPolicy, CapacityPolicySpec};
use crds::fault_policy::FaultPolicy;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Fills `value` in as the API server does.
fn fill(value: &mut Value, schema: &Value) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if value.get(name).is_none()
            && let Some(default) = property.get("default")
        {
            value[name] = default.clone();
        }
        if let Some(inner) = value.get_mut(name) {
            fill(inner, property);
        }
    }
    for item in value.as_array_mut().into_iter().flatten() {
        fill(item, &schema["items"]);
    }
}

/// Returns the object with `spec` as it is, and as the API server fills it in.
fn both<T: DeserializeOwned>(kind: &str, spec: Value) -> [T; 2] {
    let manifests = crds::yaml::manifests();
    let definitions = manifests
        .iter()
        .map(|(_, yaml)| serde_saphyr::from_str(yaml).unwrap());
    let mut definitions =
        definitions.filter(|found: &Value| found["spec"]["names"]["kind"] == kind);
    let schema = &definitions.next().unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let plain = json!({"metadata": {"name": "a"}, "spec": spec});
    let mut filled = plain.clone();
    fill(&mut filled, schema);
    assert_ne!(plain, filled, "nothing has a default");
    [plain, filled].map(|object| serde_json::from_value(object).unwrap())
}

#[test]
fn a_capacity_policy_means_the_same_with_its_defaults() {
    for spec in [
        json!({}),
        json!({
            "ageing": {"intervalSeconds": 60}, "backfill": {}, "fairShare": {}, "preemption": {}, "limits": {},
            "retries": {}, "placement": {"weights": {"price": 3}}, "spare": {"nodes": 1, "forGangsOf": 2},
            "pools": [{"name": "a", "class": "a"}],
        }),
    ] {
        let [plain, filled] = both::<CapacityPolicy>("CapacityPolicy", spec);
        assert_eq!(plain.to_fact(None), filled.to_fact(None));
        assert_eq!(plain.retries(), filled.retries());
        assert_eq!(plain.filters(), filled.filters());
        assert_eq!(plain.split(), filled.split());
        assert_eq!(plain.pre_pulls(), filled.pre_pulls());
    }
}

#[test]
fn an_empty_capacity_policy_is_known_as_the_api_server_shows_it() {
    let [plain, filled] = both::<CapacityPolicy>("CapacityPolicy", json!({}));
    assert_eq!(filled.spec, CapacityPolicySpec::with_defaults());
    assert!(plain.is_empty() && filled.is_empty());
    let [_, stated] = both::<CapacityPolicy>("CapacityPolicy", json!({"stopPolicy": "Hold"}));
    assert!(!stated.is_empty());
}

#[test]
fn a_fault_policy_means_the_same_with_its_defaults() {
    let actions = json!([
        {"type": "AvoidNode", "avoidNode": {}}, {"type": "AvoidNodeForJob", "avoidNodeForJob": {}},
        {"type": "Remediate", "remediate": {}},
    ]);
    let spec = json!({
        "clusterBreaker": {},
        "rules": [
            {"name": "a", "class": "Node", "match": {"pod": {"exitCodes": [1]}}, "actions": actions},
            {"name": "b", "class": "Node", "match": {"alert": {"names": ["A"]}}},
        ],
    });
    let [plain, filled] = both::<FaultPolicy>("FaultPolicy", spec);
    assert_eq!(plain.to_rules(), filled.to_rules());
    assert_eq!(plain.to_rules().1, None);
    assert_eq!(plain.breaker(), filled.breaker());
    assert_eq!(plain.is_dry_run(), filled.is_dry_run());
}
