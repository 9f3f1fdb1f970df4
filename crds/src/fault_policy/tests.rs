#![allow(clippy::unwrap_used)]
use super::*;
use facts::faults::{AvoidNode, Symptom};
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
            {"name": "flaky", "class": "Network", "match": {"pod": {"reasons": ["CrashLoopBackOff"]}}},
            {"name": "new", "class": "Cosmic", "match": {"pod": {"reasons": ["Ray"]}}},
            {"name": "all", "class": "User", "match": {"pod": {}}},
            {"name": "any", "class": "User", "match": {"pod": {"messages": [" "]}}},
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
        "name": "memory", "class": "Device", "match": {"node": {"conditions": ["GpuMemWatch"]}},
    }));
    assert_eq!((rules.nodes.len(), wrong), (1, None));
    let pod = json!({"pod": {"exitCodes": [3]}});
    let node = json!({"node": {"conditions": ["A"]}});
    let avoid = |settings: serde_json::Value| json!([{"type": "AvoidNode", "avoidNode": settings}]);
    let (rules, wrong) = read(json!({
        "name": "lemon", "class": "Node", "match": pod,
        "actions": avoid(json!({"jobs": 1, "avoidSeconds": 5400})),
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
        (
            json!({"match": {"node": {}}}),
            "spec.rules[0].match.node: is empty",
        ),
        (
            json!({"match": {"alert": {"names": ["A"], "resolveAfterSeconds": 0}}}),
            "spec.rules[0].match.alert.resolveAfterSeconds: 0 is too small; 1 or more",
        ),
        (
            json!({"match": {"alert": {"names": [""]}}}),
            "spec.rules[0].match.alert.names: contains an empty",
        ),
        (
            json!({"match": {"alert": {}}}),
            "spec.rules[0].match.alert.names: is empty",
        ),
        (
            json!({"match": {"node": {"conditions": ["Ready"]}}}),
            "spec.rules[0].match.node.conditions[0]: \"Ready\" is True",
        ),
        (
            json!({"match": {"pod": {"exitCodes": [3]}, "node": {"conditions": ["A"]}}}),
            "spec.rules[0].match: exactly one of pod, node and alert",
        ),
        (json!({}), "spec.rules[0].match: exactly one of"),
        (
            json!({"match": node, "actions": avoid(json!({}))}),
            "spec.rules[0].actions: a rule about a node",
        ),
        (
            json!({"match": pod, "actions": avoid(json!({"jobs": 0}))}),
            "spec.rules[0].actions[0].avoidNode.jobs: 0 is too small",
        ),
        (
            json!({"match": pod, "actions": avoid(json!({"windowSeconds": 0}))}),
            "spec.rules[0].actions[0].avoidNode.windowSeconds: 0 is too small",
        ),
        (
            json!({"match": pod, "actions": [{"type": "AvoidNodeForJob", "avoidNodeForJob": {"nodes": 17}}]}),
            "spec.rules[0].actions[0].avoidNodeForJob.nodes: 17 is too large; at most 16",
        ),
        (
            json!({"match": pod, "actions": [{"type": "AvoidNodeForJob"}, {"type": "Remediate"}]}),
            "spec.rules[0].actions: Remediate needs the action AvoidNode",
        ),
        (
            json!({"match": pod, "actions": [{"type": "Reboot"}]}),
            "spec.rules[0].actions[0].type: \"Reboot\" is not known; AvoidNode, AvoidNodeForJob or Remediate",
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
fn actions_have_defaults() {
    let pod = json!({"pod": {"exitCodes": [3]}});
    let actions =
        json!([{"type": "AvoidNode"}, {"type": "AvoidNodeForJob"}, {"type": "Remediate"}]);
    let rules = json!([
        {"name": "pod", "class": "Node", "match": pod, "actions": actions},
        {"name": "node", "class": "Node", "match": {"node": {"conditions": ["A"]}}, "actions": [
            {"type": "Remediate", "remediate": {"action": "Reboot"}},
        ]},
    ]);
    let policy = json!({"metadata": {"name": "p"}, "spec": {"rules": rules}});
    let policy: FaultPolicy = serde_json::from_value(policy).unwrap();
    let (rules, wrong) = policy.to_rules();
    assert_eq!(wrong, None);
    let rule = &rules.rules[0];
    let avoid = rule.avoid_node.as_ref().unwrap();
    assert_eq!(
        (avoid.jobs, avoid.namespaces, avoid.within_ms, avoid.for_ms),
        (3, 2, 86_400_000, 86_400_000)
    );
    let for_job = rule.avoid_for_job.as_ref().unwrap();
    assert_eq!((for_job.nodes, for_job.for_ms), (3, 86_400_000));
    let action = |rule| {
        let remediate = rules.remediation_of("p", rule, false);
        remediate.map(|remediate| remediate.action.clone())
    };
    assert_eq!(action("pod").as_deref(), Some(""));
    assert_eq!(action("node").as_deref(), Some("Reboot"));
}

#[test]
fn policies_are_read_by_priority_and_then_by_name() {
    let policy = |name: &str, priority: Option<i32>, class: &str, mode: &str| {
        let rule = json!({"name": "r", "class": class, "match": {"pod": {"reasons": ["Ray"]}}});
        let policy = json!({
            "metadata": {"name": name}, "spec": {"priority": priority, "mode": mode, "rules": [rule]},
        });
        serde_json::from_value::<FaultPolicy>(policy).unwrap()
    };
    let a = policy("a", None, "User", "Enforce");
    let b = policy("b", Some(0), "Network", "Enforce");
    let c = policy("c", Some(5), "Storage", "Enforce");
    let first = |policies: &[&FaultPolicy]| {
        let rules = rules_in_force(policies.iter().copied());
        class(&rules, "Ray", "")
    };
    assert_eq!(first(&[&b, &a]), FaultClass::User);
    assert_eq!(first(&[&a, &b, &c]), FaultClass::Storage);
    let unknown = policy("z", None, "User", "Audit");
    assert!(unknown.is_dry_run());
    assert_eq!(
        unknown.to_rules().1.as_deref(),
        Some("spec.mode: \"Audit\" is not known; Enforce or DryRun is needed")
    );
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
