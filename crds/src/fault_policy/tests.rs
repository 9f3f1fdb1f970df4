#![allow(clippy::unwrap_used)]
use super::*;
use engine::faults::Symptom;
use serde_json::json;

fn class(rules: &FaultRuleSet, reason: &str, message: &str) -> FaultClass {
    rules.class_of(&Symptom {
        reason: reason.to_owned(),
        message: message.to_owned(),
        exit_code: None,
    })
}

#[test]
fn the_example_can_be_read() {
    let example = include_str!("../../../examples/fault-policy.yaml");
    let policy: FaultPolicy = serde_saphyr::from_str(example).unwrap();
    let (rules, wrong) = policy.to_rules();
    assert_eq!((rules.rules.len(), rules.nodes.len(), wrong), (2, 4, None));
}

#[test]
fn every_default_rule_can_be_read_and_has_a_name_of_its_own() {
    let policy: FaultPolicy = serde_saphyr::from_str(DEFAULT_YAML).unwrap();
    let (rules, wrong) = policy.to_rules();
    let rules = rules.rules;
    assert_eq!((rules.len(), wrong), (policy.spec.rules.len(), None));
    let names: std::collections::BTreeSet<&str> =
        rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names.len(), rules.len());
}

#[test]
fn the_defaults_tell_what_a_job_can_mend_from_what_it_cannot() {
    use FaultClass::{Device, Network, Node, Unknown, User};
    let rules = rules_in_force([]);
    for (reason, message, expected) in [
        (
            "ErrImagePull",
            "rpc error: code = NotFound desc = failed to pull and unpack image \"a:1\": not found",
            User,
        ),
        (
            "ImagePullBackOff",
            "Back-off pulling image \"a:1\": ErrImagePull: pull access denied",
            User,
        ),
        (
            "ImagePullBackOff",
            "Back-off pulling image \"a:1\"",
            Network,
        ),
        (
            "ErrImagePull",
            "dial tcp 10.0.0.1:443: i/o timeout",
            Network,
        ),
        ("InvalidImageName", "couldn't parse image reference", User),
        (
            "CreateContainerConfigError",
            "configmap \"c\" not found",
            User,
        ),
        (
            "RunContainerError",
            "exec: \"train\": executable file not found in $PATH",
            User,
        ),
        (
            "RunContainerError",
            "nvidia-container-cli: initialization error: nvml error",
            Device,
        ),
        (
            "CrashLoopBackOff",
            "back-off 40s restarting failed container",
            User,
        ),
        (
            "CrashLoopBackOff",
            "NVRM: Xid 79, GPU has fallen off the bus",
            Device,
        ),
        (
            "UnexpectedAdmissionError",
            "Allocate failed due to no healthy devices present",
            Device,
        ),
        ("OutOfcpu", "", Node),
        ("Evicted", "The node was low on resource: memory", Node),
        ("Error", "", Unknown),
    ] {
        assert_eq!(
            class(&rules, reason, message),
            expected,
            "{reason} {message}"
        );
    }
}

#[test]
fn the_rules_of_a_policy_come_before_the_defaults_and_wrong_ones_are_named() {
    let policy: FaultPolicy = serde_json::from_value(json!({
        "metadata": {"name": "a"},
        "spec": {"rules": [
            {"name": "flaky", "class": "Network", "pod": {"reasons": ["CrashLoopBackOff"]}},
            {"name": "new", "class": "Cosmic", "pod": {"reasons": ["Ray"]}},
            {"name": "all", "class": "User", "pod": {}},
            {"name": "any", "class": "User", "pod": {"messages": [" "]}},
        ]},
    }))
    .unwrap();
    let (rules, wrong) = policy.to_rules();
    assert_eq!(rules.rules.len(), 1);
    assert_eq!(
        wrong.unwrap(),
        "spec.rules[1].class: \"Cosmic\" is not known; one of User, Node, Device, Network, Storage, Cluster, Unknown is needed"
    );
    let rules = rules_in_force([&policy]);
    assert_eq!(class(&rules, "CrashLoopBackOff", ""), FaultClass::Network);
    assert_eq!(class(&rules, "OutOfcpu", ""), FaultClass::Node);
}

#[test]
fn rules_about_nodes_are_read_and_wrong_ones_are_named() {
    let read = |rule: serde_json::Value| {
        let policy: FaultPolicy =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"rules": [rule]}}))
                .unwrap();
        policy.to_rules()
    };
    let (rules, wrong) = read(json!({
        "name": "memory", "class": "Device", "node": {"conditions": ["GpuMemWatch"]},
    }));
    assert_eq!((rules.nodes.len(), wrong), (1, None));
    let pod = json!({"exitCodes": [3]});
    let (rules, wrong) = read(json!({
        "name": "lemon", "class": "Node", "pod": pod, "avoidNode": {"jobs": 1, "for": "90m"},
    }));
    assert_eq!(wrong, None);
    let expected = AvoidNode {
        jobs: 1,
        namespaces: 1,
        within_ms: 86_400_000,
        for_ms: 5_400_000,
    };
    assert_eq!(rules.rules[0].avoid_node, Some(expected));
    for (rule, said) in [
        (json!({"node": {}}), "spec.rules[0].node: is empty"),
        (
            json!({"node": {"alerts": ["A"], "alertsFor": "0s"}}),
            "spec.rules[0].node.alertsFor: is no time",
        ),
        (
            json!({"node": {"alerts": [""]}}),
            "spec.rules[0].node.alerts: contains an empty",
        ),
        (
            json!({"node": {"conditions": ["Ready"]}}),
            "spec.rules[0].node.conditions[0]: \"Ready\" is True",
        ),
        (
            json!({"pod": pod, "node": {"conditions": ["A"]}}),
            "spec.rules[0]: either pod or node",
        ),
        (json!({}), "spec.rules[0]: either pod or node"),
        (
            json!({"node": {"conditions": ["A"]}, "avoidNode": {}}),
            "spec.rules[0].avoidNode: belongs",
        ),
        (
            json!({"pod": pod, "avoidNode": {"jobs": 0}}),
            "spec.rules[0].avoidNode.jobs: 0",
        ),
        (
            json!({"pod": pod, "avoidNode": {"for": "1d"}}),
            "spec.rules[0].avoidNode.for: \"1d\" is not",
        ),
        (
            json!({"pod": pod, "avoidNode": {"within": "0s"}}),
            "spec.rules[0].avoidNode.within: is no time",
        ),
    ] {
        let mut rule = rule;
        rule["name"] = json!("a");
        rule["class"] = json!("Device");
        let (rules, wrong) = read(rule.clone());
        let wrong = wrong.unwrap_or_default();
        assert!(wrong.starts_with(said), "{rule}: {wrong}");
        assert_eq!(rules, FaultRuleSet::default());
    }
}

#[test]
fn a_status_names_what_it_has_no_more() {
    // It is written as a merge patch, which would leave a field that is absent as it was.
    let status = serde_json::to_value(FaultPolicyStatus::default()).unwrap();
    for field in ["pausedClusters", "wouldAvoid", "wouldAvoidNodes"] {
        assert!(status.get(field).is_some(), "{field}");
    }
    let pool = serde_json::to_value(crate::gpu_pool::GpuPoolStatus::default()).unwrap();
    assert_eq!(pool["avoidedNodes"], json!([]));
}
