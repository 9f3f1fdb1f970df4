//! DeviceTaintRules.

use super::*;

/// A rule named `r` with this selector, whose taint has the key `x/maintenance`.
fn rule(selector: Value, effect: &str) -> DeviceDelta {
    let rule = json!({
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": selector,
            "taint": {
                "key": "x/maintenance", "value": "rack-7", "effect": effect,
                "timeAdded": "2026-11-25T10:00:00Z",
            },
        },
    });
    let rule = serde_json::from_value(rule).unwrap();
    DeviceDelta::Rule(rule_delta(Delta::Upserted(rule)))
}

/// Two GPUs on each of two nodes, of which `n1` has one of another model.
fn two_nodes() -> Devices {
    let other = with(
        gpu("gpu-1"),
        "attributes",
        json!({"type": {"string": "gpu"}, "model": {"string": "A"}}),
    );
    known(&[
        slice("a", "n1", 1, 1, &[gpu("gpu-0"), other]),
        slice("b", "n2", 1, 1, &gpus(2)),
    ])
}

/// The taints of the devices of a node.
fn told(devices: &Devices, node: &str) -> Vec<String> {
    let taints = devices.taints_of(node).iter();
    taints.map(NodeCondition::words).collect()
}

#[test]
fn a_rule_taints_the_devices_to_which_all_of_its_selector_applies() {
    let none = "n1: gpu 2; n2: gpu 2";
    let cel = |expression: &str| json!({"selectors": [{"cel": {"expression": expression}}]});
    let rows = [
        (json!({}), "n1: gpu 0; n2: gpu 0"),
        (json!(null), none),
        (json!({"driver": "gpu.x"}), "n1: gpu 0; n2: gpu 0"),
        (json!({"driver": "gpu.y"}), none),
        (json!({"pool": "n2"}), "n1: gpu 2; n2: gpu 0"),
        (json!({"device": "gpu-1"}), "n1: gpu 1; n2: gpu 1"),
        (
            json!({"driver": "gpu.x", "pool": "n1", "device": "gpu-0"}),
            "n1: gpu 1; n2: gpu 2",
        ),
        (
            json!({"driver": "gpu.y", "pool": "n1", "device": "gpu-0"}),
            none,
        ),
        // Up to Kubernetes 1.34.
        (json!({"deviceClassName": "gpu"}), "n1: gpu 0; n2: gpu 0"),
        (json!({"deviceClassName": "unheard-of"}), none),
        (
            json!({"deviceClassName": "gpu", "pool": "n1"}),
            "n1: gpu 0; n2: gpu 2",
        ),
        // The others have no model, which is an error: a rule does not apply then.
        (
            cel("device.attributes['gpu.x'].model == 'A'"),
            "n1: gpu 1; n2: gpu 2",
        ),
        (cel("device.driver.matches('gpu.*')"), none),
        (json!({"rack": "7"}), none),
        (json!({"rack": null}), "n1: gpu 0; n2: gpu 0"),
    ];
    for (selector, want) in rows {
        let mut devices = two_nodes();
        let touched = devices.take(rule(selector.clone(), "NoSchedule"));
        assert!(touched.devices, "{selector}");
        assert_eq!(offered(&devices), want, "{selector}");
        let is_tainted = !told(&devices, "n1").is_empty() || !told(&devices, "n2").is_empty();
        assert_eq!(is_tainted, want != none, "{selector}");
    }
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_named() {
    let mut devices = two_nodes();
    let cel = json!([{"cel": {"expression": "device.driver.matches('gpu.*')"}}]);
    devices.take(rule(json!({"selectors": cel}), "NoSchedule"));
    let why = &devices.logged_rules["r"];
    assert!(why.contains("uses `matches`"), "{why}");
    devices.take(rule(json!({"rack": "7"}), "NoSchedule"));
    let why = &devices.logged_rules["r"];
    assert_eq!(why, "spec.deviceSelector.rack is not known to this version");
    devices.take(DeviceDelta::Rule(Delta::Gone(cluster_key("r"))));
    assert!(devices.logged_rules.is_empty());
}

#[test]
fn a_taint_of_a_rule_is_a_condition_of_the_nodes_unless_it_has_no_effect() {
    let maintenance = "its devices have the taint x/maintenance (gpu-0: rack-7, gpu-1: rack-7)";
    let mut devices = two_nodes();
    devices.take(rule(json!({"pool": "n1"}), "None"));
    assert_eq!(told(&devices, "n1"), [""; 0]);
    assert_eq!(offered(&devices), "n1: gpu 2; n2: gpu 2");
    for effect in ["NoSchedule", "NoExecute"] {
        devices.take(rule(json!({"pool": "n1"}), effect));
        assert_eq!(told(&devices, "n1"), [maintenance]);
        assert_eq!(told(&devices, "n2"), [""; 0]);
        assert_eq!(
            devices.taints_of("n1")[0].since.map(|at| at.to_string()),
            Some("2026-11-25T10:00:00Z".to_owned())
        );
    }
    devices.take(DeviceDelta::Rule(Delta::Gone(cluster_key("r"))));
    assert_eq!(told(&devices, "n1"), [""; 0]);
    assert_eq!(offered(&devices), "n1: gpu 2; n2: gpu 2");
}

#[test]
fn a_device_with_the_same_taint_twice_is_named_once() {
    let taint = json!({"key": "x/maintenance", "value": "rack-7", "effect": "NoSchedule"});
    let device = with(gpu("gpu-0"), "taints", json!([taint]));
    let mut devices = known(&[slice("a", "n1", 1, 1, &[device])]);
    devices.take(rule(json!({}), "NoSchedule"));
    assert_eq!(
        told(&devices, "n1"),
        ["its devices have the taint x/maintenance (gpu-0: rack-7)"]
    );
}

#[test]
fn devices_are_counted_when_the_rules_have_listed() {
    let mut devices = two_nodes();
    devices.take(rule(json!({}), "NoSchedule"));
    devices.begin();
    for listed in [
        DeviceDelta::Class(Delta::Listed),
        DeviceDelta::Claim(Delta::Listed),
    ] {
        devices.take(listed);
    }
    let again = serde_json::from_value(slice("b", "n2", 1, 1, &gpus(2))).unwrap();
    devices.take(DeviceDelta::Slice(Delta::Upserted(again)));
    devices.take(DeviceDelta::Slice(Delta::Listed));
    assert!(!devices.has_listed());
    // The class was deleted meanwhile, and the rule too.
    assert!(devices.take(DeviceDelta::Rule(Delta::Listed)).devices);
    assert!(devices.has_listed());
    assert_eq!(told(&devices, "n2"), [""; 0]);
    assert_eq!(offered(&devices), "");
    // An unchanged rule changes nothing.
    devices.take(rule(json!({}), "NoSchedule"));
    assert!(!devices.take(rule(json!({}), "NoSchedule")).devices);
}
